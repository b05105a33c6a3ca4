package runs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// turns is a policy whose edges can be taken in turns alone. Where nobody knows whether one was taken, somebody has to
// look.
const turns = `version: 1
name: turns
initial: a
states:
  a: {tools: {to_b: {on_success: b, on_unknown: lost}}}
  b: {tools: {to_a: {on_success: a, on_unknown: lost}}}
  lost: {tools: {found_a: {on_success: a, on_unknown: lost}, found_b: {on_success: b, on_unknown: lost}}}
`

// effects is an upstream that remembers what it has done for whom.
type effects struct {
	mu  sync.Mutex
	all map[string][]string // the calls, by who
	ids map[string]int      // how often a call has come, by its id

	latest map[string]int // the number of the latest call of each who
	crowd  bool           // several clients are on one run: a call is late that would be done twice in a row
	late   int            // so many calls may come when their clients have gone on, and are not done
	tardy  []string       // these have

	came chan struct{} // is closed, and made anew, when a call comes
}

// await waits until so many calls have come more.
func (e *effects) await(ctx context.Context, more int) {
	for more > 0 {
		e.mu.Lock()
		came := e.came
		e.mu.Unlock()
		select {
		case <-came:
			more--
		case <-ctx.Done():
			return
		}
	}
}

func (e *effects) server() mcptest.Server {
	return mcptest.Server{Handle: func(x *mcptest.Exchange) {
		switch {
		case x.Method == "initialize":
			x.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"effects","version":"1"}}`)
		case x.Method == "tools/list":
			var all []string
			for _, name := range strings.Fields("to_a to_b found_a found_b") {
				all = append(all, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
			}
			x.Result(`{"tools":[` + strings.Join(all, ",") + `]}`)
		case x.Method != "tools/call":
			x.Fail(-32601, "no such method")
		default:
			if !e.does(x.Argument("who"), x.Argument("id"), x.Name) {
				x.Fail(-32603, "too late")
				return
			}
			x.Result(mcptest.Text(x.Name))
		}
	}}
}

// newEffects has done nothing yet.
func newEffects() *effects {
	return &effects{all: map[string][]string{}, ids: map[string]int{}, latest: map[string]int{}, came: make(chan struct{})}
}

// does does what a call asks for; false where it comes too late.
func (e *effects) does(who, id, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	is := e.atLocked(who)
	if strings.HasPrefix(name, "found_") && name != "found_"+is { // another one has been quicker
		return false
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(id, who+"/")) // as a walker numbers them
	late := n < e.latest[who]
	if e.crowd {
		late = name == "to_"+is
	}
	if late && e.late > 0 {
		e.late--
		e.tardy = append(e.tardy, fmt.Sprintf("%s %s at %s, after %d", name, id, time.Now().Format(time.StampMicro), e.latest[who]))
		return false
	}
	e.latest[who] = max(n, e.latest[who])
	e.all[who] = append(e.all[who], name)
	e.ids[id]++
	close(e.came)
	e.came = make(chan struct{})
	return true
}

// at is where a walker is by what was done for it: "a" or "b".
func (e *effects) at(who string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.atLocked(who)
}

func (e *effects) atLocked(who string) string {
	if done := e.all[who]; len(done) > 0 {
		last := done[len(done)-1]
		return last[len(last)-1:]
	}
	return "a"
}

// walker goes to and fro while the proxy is killed under it.
type walker struct {
	*client
	who     string
	effects *effects
	calls   int
	known   int // answers that said success
	fault   string
	pace    time.Duration // how long it waits before each call
	strict  bool          // each call is to be answered with its own result
	crowd   bool          // others are on the same run
	last    string        // the last answer, for people
}

// asks posts one call; ok is false where no answer came.
func (w *walker) asks(ctx context.Context, tool string) (r reply, ok bool) {
	w.calls++
	arguments := fmt.Sprintf(`"who":%q,"id":"%s/%d"`, w.who, w.who, w.calls)
	if w.handle != "" {
		arguments += fmt.Sprintf(`,"fsm_run":%q`, w.handle)
	}
	params := mcptest.ToolParams(tool, "{"+arguments+"}")
	if w.key.modern() {
		params = mcptest.Modern{}.Params(params)
	}
	answer := w.web.Post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, w.calls, params))
	w.last = fmt.Sprintf("%d %s %v %s", answer.Status, answer.Body, answer.Err, answer.Messages)
	if answer.Status == http.StatusNotFound && w.web.ID() != "" {
		w.anew(ctx)
	}
	last := len(answer.Messages) - 1
	if last < 0 || !answer.Messages[last].IsResponse() { // else it has come, however its stream has ended
		return r, false
	}
	r = read(answer.Messages[last], nil)
	return r, r.verdict != "error" || answer.Status == http.StatusOK
}

// anew begins another session in place of one that has gone with its process, where that is what becomes of them.
func (w *walker) anew(ctx context.Context) {
	if w.key.kind == "session" {
		w.fault = "its session is gone"
		return
	}
	was := w.web.ID()
	w.web.SetID("")
	if answer := w.web.Post(ctx, mcptest.Request("hello", "initialize", hello)); answer.Status != http.StatusOK || answer.Err != nil {
		w.web.SetID(was) // which is not there the next time either
		return
	}
	w.web.Post(ctx, mcptest.Notification("notifications/initialized", ""))
}

// walk goes until ctx has ended.
func (w *walker) walk(ctx context.Context) {
	next := "to_b"
	for ctx.Err() == nil && w.fault == "" {
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.pace):
		}
		r, ok := w.asks(ctx, next)
		if !ok { // whoever asked before the proxy was there asks again
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
		at := w.effects.at(w.who)
		switch {
		case w.strict && (!ok || r.verdict != "success") && ctx.Err() == nil:
			w.fault = fmt.Sprintf("%s, call %d, is answered %s", next, w.calls, w.last)
		case !ok, r.verdict == "outcome_unknown", r.verdict == "store_unavailable", r.verdict == "upstream_unavailable":
		case r.verdict == "success":
			w.known++
			is := next[len(next)-1:]
			if at != is && !w.crowd {
				w.fault = fmt.Sprintf("%s has succeeded, and the upstream is at %s", next, at)
			}
			next = map[string]string{"a": "to_b", "b": "to_a"}[is]
		case r.verdict == "invalid_transition" && r.state == "lost", r.verdict == "error" && w.crowd && strings.HasPrefix(next, "found_"):
			next = "found_" + at
		case r.verdict == "invalid_transition":
			if r.state != at && !w.crowd {
				w.fault = fmt.Sprintf("the run is in %s, and the upstream at %s", r.state, at)
			}
			next = map[string]string{"a": "to_b", "b": "to_a"}[r.state]
		default:
			if strings.Contains(r.raw, "proxy is ending") || strings.Contains(r.raw, "is not available") {
				continue
			}
			w.fault = "cannot go on: " + r.raw
		}
	}
}

// walkers have runs go to and fro until stop, which waits for them.
func (h *house) walkers(k key, e *effects, n int) (all []*walker, stop func()) {
	for i := range n {
		w := &walker{client: h.who(k, ""), who: fmt.Sprint("walker ", i), effects: e}
		w.web.Header.Set(gatewayHeader, w.who)
		all = append(all, w)
	}
	return all, walking(h.t, all)
}

// walking has all go until stop, which waits for them.
func walking(t *testing.T, all []*walker) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var walking sync.WaitGroup
	for _, w := range all {
		walking.Go(func() { w.walk(ctx) })
	}
	return func() { cancel(); walking.Wait() }
}

// stood looks whether runs that have gone to and fro are where their upstream is, and all that was answered is kept, once
// those who served them have ended.
func stood(t *testing.T, all []*walker, e *effects, url string, atLeast int) {
	t.Helper()
	known := 0
	for _, w := range all {
		if w.fault != "" {
			t.Errorf("%s: %s", w.who, w.fault)
		}
		known += w.known
	}
	e.neverTwice(t)
	if kept := verified(t, url); kept < known || known < atLeast {
		t.Errorf("%d calls have succeeded, of %d it is kept", known, kept)
	}
	t.Logf("%d runs: %d calls sent, of which %d were answered", len(all), len(e.ids), known)
}

// killed plays some runs, and kills the proxy at random moments under them.
func killed(t *testing.T, walkers, kills int, url string, flags ...string) {
	e := newEffects()
	_, upstream := mcptest.HTTP(t, e.server())
	k := key{"modern", byHeader}
	h := open(t, k, turns, append(flags, "--annotate", "meta", "--store", url, "--upstream", upstream)...)
	all, stop := h.walkers(k, e, walkers)
	for range kills {
		e.await(t.Context(), rand.IntN(4*walkers)) // any moment
		h.again(os.Kill)
	}
	e.await(t.Context(), 2*walkers)
	stop()
	h.ends(os.Interrupt)
	stood(t, all, e, url, kills)
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`

// pipe is a proxy at standard input and output, which is killed now and then.
type pipe struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// piped starts one, and introduces its client.
func piped(t *testing.T, args ...string) (p *pipe, err error) {
	p = &pipe{command: exec.Command(mcptest.Proxy(t), append([]string{"run", "--log-level", "error"}, args...)...)}
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<20)
	_, err = p.ask(mcptest.Request(0, "initialize", hello))
	return p, err
}

// ask sends a request, and reads until its answer. The error is that the proxy has gone.
func (p *pipe) ask(text string) (answer mcptest.Message, err error) {
	if _, err = io.WriteString(p.in, text+"\n"); err != nil {
		return answer, err
	}
	for p.out.Scan() {
		if m := mcptest.ParseMessage(bytes.Clone(p.out.Bytes())); m.IsResponse() {
			return m, nil
		}
	}
	return answer, io.ErrUnexpectedEOF
}

func (p *pipe) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// killedPiped has one run go to and fro over stdio, under a proxy that is killed so many times.
func killedPiped(t *testing.T, e *effects, upstream, folder, who string, kills int) {
	policy := mcptest.WritePolicy(t, turns)
	next, calls, known := "to_b", 0, 0
	for range kills {
		began := time.Now()
		p, err := piped(t, "--policy", policy, "--annotate", "meta", "--store", "sqlite:"+folder+"/", "--run", who, "--upstream", upstream)
		if err != nil {
			t.Errorf("%s: %v", who, err)
			return
		}
		dies := time.AfterFunc(rand.N(time.Since(began)), func() { _ = p.command.Process.Kill() }) // any moment, however busy the machine is
		for {
			calls++
			m, err := p.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, calls, mcptest.ToolParams(next, fmt.Sprintf(`{"who":%q,"id":"%s/%d"}`, who, who, calls))))
			if err != nil {
				break
			}
			r, at := read(m, nil), e.at(who)
			switch {
			case r.verdict == "success" && at == next[len(next)-1:]:
				known++
				next = map[string]string{"a": "to_b", "b": "to_a"}[at]
			case r.verdict == "invalid_transition" && r.state == "lost":
				next = "found_" + at
			case r.verdict == "invalid_transition" && r.state == at:
				next = map[string]string{"a": "to_b", "b": "to_a"}[at]
			default:
				t.Errorf("%s: %s, and the upstream is at %s: %s", who, next, at, r.raw)
				p.kill()
				return
			}
		}
		dies.Stop()
		p.kill()
	}
	if kept := verified(t, "sqlite:"+filepath.Join(folder, who+".db")); kept < known {
		t.Errorf("%s: %d calls have succeeded, of %d it is kept", who, known, kept)
	}
}

// Proxies over stdio are killed, with a file each.
func TestKilledOverStdio(t *testing.T) {
	t.Parallel()
	killedOverStdio(t, 4, 8)
}

func killedOverStdio(t *testing.T, walkers, kills int) {
	t.Helper()
	e := newEffects()
	_, upstream := mcptest.HTTP(t, e.server())
	folder := t.TempDir()
	var walking sync.WaitGroup
	for i := range walkers {
		walking.Go(func() { killedPiped(t, e, upstream, folder, fmt.Sprint("walker-", i), kills) })
	}
	walking.Wait()
	e.neverTwice(t)
	if len(e.ids) < walkers {
		t.Errorf("only %d calls were sent", len(e.ids))
	}
	t.Logf("%d runs, %d kills each: %d calls sent", walkers, kills, len(e.ids))
}

// neverTwice fails the test if anything was done twice in a row, or sent twice.
func (e *effects) neverTwice(t *testing.T) {
	t.Helper()
	for who, all := range e.all {
		last := ""
		for _, done := range all {
			if strings.HasPrefix(done, "to_") && done == last {
				t.Errorf("%s: %s was done twice in a row: %v", who, done, all)
				break
			}
			if last = done; strings.HasPrefix(done, "found_") {
				last = map[string]string{"found_a": "to_a", "found_b": "to_b"}[done]
			}
		}
	}
	for id, n := range e.ids {
		if n != 1 {
			t.Errorf("call %s was sent %d times", id, n)
		}
	}
}

// verified looks through a store, and returns of how many calls it says that they have succeeded.
func verified(t *testing.T, url string) (succeeded int) {
	t.Helper()
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.List(t.Context(), journal.Query{Limit: 10_000})
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d runs are kept: %v", len(rows), err)
	}
	for i := range rows {
		fault, err := durable.Verifier(nil)(&rows[i], journal.All(t.Context(), s, rows[i].ID))
		if fault != nil || err != nil {
			t.Errorf("%v, %v", fault, err)
		}
		for x, err := range journal.All(t.Context(), s, rows[i].ID) {
			if err != nil {
				t.Fatal(err)
			}
			var e struct{ Type, Outcome string }
			if err := json.Unmarshal(x.Bytes, &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == "ended" && e.Outcome == "success" {
				succeeded++
			}
		}
	}
	return succeeded
}

// A proxy that is killed under its runs forgets nothing that it has said, and does nothing twice.
func TestKilledUnderRuns(t *testing.T) {
	t.Parallel()
	killed(t, 8, 10, store(t))
}
