package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// approving waits for an operator.
const approving = `version: 1
name: approving
initial: idle
everywhere: {tools: [ok]}
states:
  idle: {tools: {once: waiting}}
  waiting:
    tools: {hold: {on_any: waiting, exclusive: true}}
    signals:
      give_up: {to: idle, description: Stop here.}
      approved: {to: applying, from: operator}
  applying: {tools: {elsewhere: idle}}
`

// shown is what an operator sees of one run.
type shown struct {
	known
	Seq     int
	Queued  int
	Signals []struct{ Name, Description, From, To string }
}

// said is what an operator is answered.
type said struct {
	status int
	text   string
	ID     string
	State  string
	Code   string
	Error  string
	Seq    int
	Next   struct{ Signals []string } `json:"valid_next"`
}

// dialer is how an admin address is reached, which may be a socket.
func dialer(address string) *http.Client {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// signals sends a run a signal, with whatever headers.
func (h *house) signals(ctx context.Context, run, name, body string, header ...string) (s said, err error) {
	host := h.admin
	if strings.HasPrefix(host, "unix:") {
		host = "localhost"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/v1/runs/"+run+"/signals/"+name, strings.NewReader(body))
	if err != nil {
		return s, err
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := dialer(h.admin).Do(r)
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	s.status, s.text = answer.StatusCode, string(text)
	return s, err
}

// approves is signals with the operator's token.
func (h *house) approves(run, name, body string) said {
	h.t.Helper()
	s, err := h.signals(h.t.Context(), run, name, body, "Authorization", "Bearer "+token(h.olga))
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// show is one run as an operator sees it.
func (h *house) show(run string) (s shown) {
	h.t.Helper()
	h.operator(http.MethodGet, "/v1/runs/"+run, &s)
	return s
}

// waiting is the id of the one run that waits for an operator.
func (h *house) waiting() string {
	h.t.Helper()
	var found []string
	for _, r := range h.known() {
		if r.State == "waiting" {
			found = append(found, r.ID)
		}
	}
	if len(found) != 1 {
		h.t.Fatalf("%d runs wait: %+v", len(found), h.known())
	}
	return found[0]
}

// A run is addressed by what an operator sees of it, however clients find it, and its id is none of their secrets; the
// client learns where it stands now.
func TestOperatorsSignalOfEachKey(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		h := counted(t, k, approving, "--admin-tokens", tokensOf(t, "olga"))
		c, other := h.enter(k, ""), (*client)(nil)
		if k.kind != "process" && k.kind != "principal" && k.kind != byHeader { // where another begins another run
			other = h.enter(k, "")
		}
		if r := c.call("once", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		id := h.waiting()
		for _, secret := range []string{c.handle, c.web.ID(), c.web.URL[strings.LastIndex(c.web.URL, "/")+1:]} {
			if secret != "" && strings.Contains(id, secret) {
				t.Errorf("the id %s tells %s", id, secret)
			}
		}
		s := h.show(id)
		if s.ID != id || s.Seq != 1 || fmt.Sprint(s.Signals) != "[{give_up Stop here. agent idle} {approved  operator applying}]" {
			t.Errorf("%+v", s)
		}
		if !k.modern() {
			c.web.Listen()
		}
		if r := h.approves(id, "approved", `{"note":"fine","seq":1}`); r.status != http.StatusOK || r.State != "applying" || r.ID != id || r.Seq != 2 || len(r.Next.Signals) != 0 {
			t.Errorf("%d %s", r.status, r.text)
		}
		if !k.modern() {
			c.hears()
		}
		if r := h.approves(id, "approved", ""); r.status != http.StatusConflict || r.Code != "invalid_transition" || r.Seq != 2 {
			t.Errorf("again: %d %s", r.status, r.text)
		}
		if r := h.approves(id, "aproved", ""); r.status != http.StatusNotFound || r.Code != "unknown_action" {
			t.Errorf("misspelt: %d %s", r.status, r.text)
		}
		if r := h.approves("0000000000000000", "approved", ""); r.status != http.StatusNotFound || r.Code != "run_not_found" {
			t.Errorf("no run's: %d %s", r.status, r.text)
		}
		if r := c.call("elsewhere", ""); r.verdict != "success" {
			t.Errorf("what was approved: %s", r.raw)
		}
		if other != nil {
			if r := other.call("elsewhere", ""); r.verdict != "invalid_transition" || r.state != "idle" {
				t.Errorf("another's run: %s", r.raw)
			}
		}
		for _, line := range []string{"subject=olga run=" + id + " signal=approved note=fine", "subject=olga run=" + id + " from=waiting to=applying signal=approved"} {
			h.process.Log().Await(t, line)
		}
	})
}

// The one client at standard input and output has a run that is addressed, too.
func TestOperatorsSignalOverStdio(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		h, c := atStdio(t, era, approving, tokensOf(t, "olga"))
		c.call("once", "")
		if r := h.approves(h.waiting(), "approved", `{"seq":1}`); r.State != "applying" {
			t.Errorf("%s: %d %s", era, r.status, r.text)
		}
		if r := c.call("elsewhere", ""); r.verdict != "success" {
			t.Errorf("%s: %s", era, r.raw)
		}
	}
}

// The agent's shell is this user, on loopback and at a socket: it sends no signal without a token, and one that is
// withdrawn is one no longer.
func TestApprovingFromTheAgentsOwnShell(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one-token")
	hashes := tokensOf(t, "olga")
	for name, flags := range map[string][]string{"no tokens": nil, "hashes": {"--admin-tokens", hashes}, "one token": {"--admin-bearer-file", file}} {
		for _, address := range []string{"loopback", "socket"} {
			t.Run(name+" on "+address, func(t *testing.T) {
				more := append([]string{"--reload-debounce", "5ms"}, flags...)
				socket := "unix:" + filepath.Join(t.TempDir(), "a")
				if address == "socket" {
					more = append(more, "--admin", socket)
				}
				h := counted(t, k, approving, more...)
				if address == "socket" {
					h.admin = socket
				}
				c := h.enter(k, "")
				c.call("once", "")
				id := strings.TrimSpace(c.nameInLog(t, h))
				for what, header := range map[string][]string{
					"nothing": nil, "a guess": {"Authorization", "Bearer guess"}, "the hash": {"Authorization", "Bearer " + hashOf(t, hashes)},
					"a client's": {"Authorization", "Bearer " + token("ann")}, "an empty one": {"Authorization", "Bearer "},
				} {
					want := http.StatusUnauthorized
					if flags == nil {
						want = http.StatusForbidden
					}
					for _, signal := range []string{"approved", "approved?access_token=one-token&token=" + strings.ReplaceAll(token("olga"), " ", "+"), "give_up"} {
						if s, err := h.signals(t.Context(), id, signal, "{}", header...); err != nil || s.status != want {
							t.Errorf("%s, %s: %d %s %v", what, signal, s.status, s.text, err)
						}
					}
				}
				if r := c.call("elsewhere", ""); r.state != "waiting" {
					t.Errorf("the run has moved: %s", r.raw)
				}
				if flags == nil {
					return
				}
				right := map[string]string{"hashes": token("olga"), "one token": "one-token"}[name]
				if s, err := h.signals(t.Context(), id, "approved", "", "Authorization", "Bearer "+right); err != nil || s.State != "applying" {
					t.Errorf("with the token: %d %s %v", s.status, s.text, err)
				}
				who := map[string]string{"hashes": "olga", "one token": "operator"}[name]
				h.process.Log().Await(t, "subject="+who+" run="+id+" signal=approved")
			})
		}
	}
}

// nameInLog is the name of the client's session, which is that of its run.
func (c *client) nameInLog(t *testing.T, h *house) string {
	t.Helper()
	var line string
	mcptest.Await(t, "the step is logged", func() bool {
		for _, l := range strings.Split(h.process.Log().String(), "\n") {
			if strings.Contains(l, "from=idle to=waiting") {
				line = l
			}
		}
		return line != ""
	})
	_, rest, _ := strings.Cut(line, "session=")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// hashOf is the hash that a file of tokens has.
func hashOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, hash, _ := strings.Cut(string(text), "sha256:")
	return strings.TrimSpace(hash)
}

// A token that is taken out of the file, or replaced by another, lets nobody in from then on.
func TestWithdrawnOperator(t *testing.T) {
	t.Parallel()
	path := tokensOf(t, "olga")
	k := key{"legacy", "session"}
	h := counted(t, k, approving, "--admin-tokens", path, "--reload-debounce", "5ms")
	c := h.enter(k, "")
	c.call("once", "")
	id := h.waiting()
	put := func(text string) {
		next := path + ".next"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	put("version: 1\ntokens: {olga: plain}\n")
	h.process.Log().Await(t, "the operators' token file was not reloaded")
	if r := h.approves(id, "nothing", ""); r.status != http.StatusNotFound {
		t.Errorf("after a file with an error: %d %s", r.status, r.text)
	}
	put("version: 1\ntokens: {paul: \"sha256:" + strings.Repeat("0", 64) + "\"}\n")
	h.process.Log().Await(t, "the operators' token file was reloaded")
	if r := h.approves(id, "approved", ""); r.status != http.StatusUnauthorized {
		t.Errorf("with a token that was withdrawn: %d %s", r.status, r.text)
	}
}

// A signal waits for the call that has the turn. Who goes away meanwhile leaves the queue; what waits when the proxy
// ends is told so, and nothing has been done.
func TestOperatorsSignalWaits(t *testing.T) {
	each(t, those("session", "handle"), func(t *testing.T, k key) {
		h := counted(t, k, approving, "--admin-tokens", tokensOf(t, "olga"))
		c := h.enter(k, "")
		c.call("once", "")
		id := h.waiting()
		held := c.asking("hold")
		h.upstream.Await(t, 1, "tools/call", "hold")
		sends := func(ctx context.Context) chan said {
			out := make(chan said, 1)
			go func() {
				s, _ := h.signals(ctx, id, "approved", "", "Authorization", "Bearer "+token("olga"))
				out <- s
			}()
			return out
		}
		queued := func(n int) {
			t.Helper()
			mcptest.Await(t, fmt.Sprintf("%d wait", n), func() bool { return h.show(id).Queued == n })
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := sends(ctx)
		queued(1)
		stays := sends(t.Context())
		queued(2)
		leave()
		<-gone
		queued(1)
		h.upstream.Open("hold")
		if r := c.answered(held); r.verdict != "success" {
			t.Errorf("the call: %s", r.raw)
		}
		if s := <-stays; s.status != http.StatusOK || s.State != "applying" || s.Seq != 3 {
			t.Errorf("%d %s", s.status, s.text)
		}
	})
}

func TestDrainWhileAnOperatorsSignalWaits(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	h := counted(t, k, approving, "--admin-tokens", tokensOf(t, "olga"))
	c := h.enter(k, "")
	c.call("once", "")
	id := h.waiting()
	held := c.asking("hold")
	h.upstream.Await(t, 1, "tools/call", "hold")
	waits := make(chan said, 1)
	go func() {
		s, _ := h.signals(t.Context(), id, "approved", "", "Authorization", "Bearer "+token("olga"))
		waits <- s
	}()
	mcptest.Await(t, "it waits", func() bool { return h.show(id).Queued == 1 })
	h.sends(syscall.SIGTERM)
	if s := <-waits; s.status != http.StatusServiceUnavailable || s.Code != "ending" || s.State != "waiting" {
		t.Errorf("%d %s", s.status, s.text)
	}
	if s := h.approves(id, "approved", ""); s.status != http.StatusServiceUnavailable {
		t.Errorf("in the drain: %d %s", s.status, s.text)
	}
	h.upstream.Open("hold")
	if r := c.answered(held); r.verdict != "success" {
		t.Errorf("the call: %s", r.raw)
	}
	if code := h.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A note is one value on one line of log and audit, whatever it is made of; the audit has both sides of a signal.
func TestNoteOfAnOperatorIsEscaped(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	h := counted(t, k, approving, "--admin-tokens", tokensOf(t, "olga"), "--audit", audit)
	c := h.enter(k, "")
	c.call("once", "")
	id := h.waiting()
	if s := h.approves(id, "approved", `{"note":"fine\n{\"event\":\"decision\"} \u001b[31m\u202e\" subject=eve","seq":1}`); s.status != http.StatusOK {
		t.Fatalf("%d %s", s.status, s.text)
	}
	h.approves(id, "approved", `{"seq":1}`)
	h.process.Log().Await(t, `signal=approved note="fine\n{\x22event\x22:\x22decision\x22} \x1b[31m\u202e\x22 subject=eve"`)
	var lines []string
	mcptest.Await(t, "the audit has all", func() bool {
		text, err := os.ReadFile(audit)
		lines = nil
		for _, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, `"kind":"signal"`) {
				lines = append(lines, line)
			}
		}
		return err == nil && len(lines) == 3
	})
	for i, wants := range [][]string{
		{`"decision":"allow"`, `"issuer":"admin","subject":"olga"`, `"name":"approved"`, `"note":"fine\u000a{\"event\":\"decision\"} \u001b[31m\u202e\" subject=eve"`, `"run":"` + id + `"`, `"state":"waiting"`, `"rule":"`},
		{`"event":"outcome"`, `"outcome":"success"`, `"from":"waiting","to":"applying"`, `"subject":"olga"`},
		{`"decision":"refuse"`, `"reason":"run_moved"`, `"run":"` + id + `"`, `"state":"applying"`, `"subject":"olga"`},
	} {
		for _, want := range wants {
			if !json.Valid([]byte(lines[i])) || !strings.Contains(lines[i], want) {
				t.Errorf("line %d lacks %s: %s", i, want, lines[i])
			}
		}
	}
}

// Of several at once one takes the edge.
func TestOperatorsSignalsAtOnce(t *testing.T) {
	each(t, those("session", "handle"), func(t *testing.T, k key) {
		h := counted(t, k, approving, "--admin-tokens", tokensOf(t, "olga"))
		c := h.enter(k, "")
		c.call("once", "")
		id := h.waiting()
		answers := make(chan said)
		for i := range 8 {
			body := []string{"", `{"seq":1}`}[i%2]
			go func() {
				s, _ := h.signals(t.Context(), id, "approved", body, "Authorization", "Bearer "+token("olga"))
				answers <- s
			}()
		}
		taken := 0
		for range 8 {
			switch s := <-answers; {
			case s.status == http.StatusOK:
				taken++
			case s.status != http.StatusConflict || s.Code != "invalid_transition" && s.Code != "run_moved":
				t.Errorf("%d %s", s.status, s.text)
			}
		}
		if s := h.show(id); taken != 1 || s.State != "applying" || s.Seq != 2 {
			t.Errorf("%d were taken: %+v", taken, s)
		}
	})
}
