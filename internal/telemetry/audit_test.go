package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// tape is a writer that can be slow, and can fail.
type tape struct {
	mu     sync.Mutex // guards what follows
	text   bytes.Buffer
	gate   chan struct{} // nil: open
	faults []fault       // of the next writes
}

// fault is a write that takes so many bytes and then fails.
type fault struct{ takes int }

var errFull = errors.New("no space left on device")

func (w *tape) Write(p []byte) (int, error) {
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) > 0 {
		f := w.faults[0]
		w.faults = w.faults[1:]
		n := min(f.takes, len(p))
		w.text.Write(p[:n])
		return n, errFull
	}
	return w.text.Write(p)
}

func (w *tape) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// record is one line of an audit.
type record map[string]any

// read reads the lines of an audit, each of which must be safe to print.
func read(t *testing.T, text string) (all []record) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			t.Fatalf("half a line: %q", line)
		}
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' {
				t.Errorf("%q in %q", r, line)
			}
		}
		got := record{}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if seq, _ := got["seq"].(float64); int(seq) != len(all)+1 {
			t.Errorf("line %d has the number %v", len(all)+1, got["seq"])
		}
		if _, err := time.Parse(time.RFC3339Nano, got["time"].(string)); err != nil {
			t.Error(err)
		}
		all = append(all, got)
	}
	return all
}

// is fails the test unless the members given are the record's.
func (r record) is(t *testing.T, want string) {
	t.Helper()
	wanted := record{}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	for key, value := range wanted {
		a, _ := json.Marshal(r[key])
		b, _ := json.Marshal(value)
		if string(a) != string(b) {
			t.Errorf("%s is %s, want %s, in %v", key, a, b, r)
		}
	}
}

func audit(t *testing.T, cfg telemetry.AuditConfig) *telemetry.Audit {
	t.Helper()
	a, err := telemetry.NewAudit(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func shut(t *testing.T, a *telemetry.Audit) {
	t.Helper()
	if err := a.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func refusal(name string) observe.Decision {
	return observe.Decision{Message: message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`),
		Named: true, Name: name, State: "start", Fault: observe.Fault{Code: policy.UnknownAction}}
}

// Every request of a session has its line, and what was sent a second one.
func TestAuditOfASession(t *testing.T) {
	w := &tape{}
	a := audit(t, telemetry.AuditConfig{Out: w})
	r := newRig(t, observe.Telemetry{Auditor: a})
	c, _ := r.open()
	c.Call("ping", "")
	c.Call("tools/list", "")
	c.Tool("look", `{"secret":"s3cret"}`)
	c.Tool("fail", "")
	c.Tool("fail", "")
	c.Call("resources/read", `{"uri":"w://other"}`)
	c.Call("prompts/get", `{"name":"none"}`)
	c.Call("resources/templates/list", "")
	c.Call("odd/method", "")
	c.Send(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"look","name":"move"}}`)
	c.Next()
	r.proxy.Close()
	shut(t, a)
	if strings.Contains(w.String(), "s3cret") {
		t.Error("there are arguments in it")
	}
	got := read(t, w.String())
	digest := r.proxy.Policy().Digest()
	for i, want := range []string{
		`{"event":"decision","decision":"allow","method":"initialize"}`,
		`{"event":"decision","decision":"allow","method":"tools/list","policy":"` + digest + `"}`,
		`{"event":"decision","decision":"allow","method":"tools/call","kind":"tool","name":"look","state":"start","rule":"plan.yaml:6:13"}`,
		`{"event":"outcome","of":3,"outcome":"success","method":"tools/call","name":"look"}`,
		`{"decision":"allow","name":"fail","state":"start"}`,
		`{"event":"outcome","of":5,"outcome":"error","error":"tool_error","from":"start","to":"after"}`,
		`{"decision":"refuse","reason":"invalid_transition","name":"fail","state":"after"}`,
		`{"decision":"refuse","reason":"unknown_action","kind":"resource","name":"w://other"}`,
		`{"decision":"refuse","reason":"unknown_action","kind":"prompt","name":"none"}`,
		`{"decision":"refuse","reason":"-32601","method":"resources/templates/list"}`,
		`{"decision":"refuse","reason":"-32601","method":"odd/method"}`,
		`{"decision":"refuse","reason":"-32600"}`,
	} {
		if i >= len(got) {
			t.Fatalf("there are %d lines:\n%s", len(got), w)
		}
		got[i].is(t, want)
		if s, _ := got[i]["session"].(string); len(s) != 8 || got[i]["remote"] == nil {
			t.Errorf("whose is it? %v", got[i])
		}
	}
	if len(got) != 12 || a.Written() != 12 {
		t.Errorf("%d lines, %d of them counted:\n%s", len(got), a.Written(), w)
	}
}

// In shadow mode the line says what would have been.
func TestAuditOfShadows(t *testing.T) {
	w := &tape{}
	a := audit(t, telemetry.AuditConfig{Out: w})
	r := newRig(t, observe.Telemetry{Auditor: a})
	r.proxy.SetMode(runs.Shadow)
	c, _ := r.open()
	c.Tool("hidden", "")
	r.proxy.Close()
	shut(t, a)
	got := read(t, w.String())
	got[1].is(t, `{"decision":"shadow","reason":"unknown_action","name":"hidden"}`)
	got[2].is(t, `{"event":"outcome","of":2,"outcome":"success"}`)
}

func TestAuditOfHostileText(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, want := range map[string]string{
		"a\n{\"seq\":9}":     "a\n{\"seq\":9}",
		"\x1b[2J\x07\u009b":  "\x1b[2J\x07\u009b",
		"\u2028\u2029\u202e": "\u2028\u2029\u202e",
		"\"\\</script>":      "\"\\</script>",
		"größe 大きさ 😀":        "größe 大きさ 😀",
		"\U000e0041":         "\U000e0041", // a tag: invisible
		"\xff\xfe":           "\ufffd\ufffd",
		long:                 long[:256] + "…",
		"":                   "",
	} {
		w := &tape{}
		a := audit(t, telemetry.AuditConfig{Out: w})
		a.Decided(refusal(name))
		shut(t, a)
		if got := read(t, w.String())[0]["name"]; got != want {
			t.Errorf("%.40q became %.40q", name, got)
		}
	}
}

// The note of a signal is the agent's, and whole: nothing in it ends the line, or the value.
func TestAuditOfHostileNotes(t *testing.T) {
	for _, note := range []string{
		"a\n{\"seq\":9,\"decision\":\"allow\"}", "\r\n\t\x00\x1b[2J\x07\u007f\u009b", "\u2028\u2029\u202e\u2066", `","decision":"allow`, `\`, `\u0000\"`, "größe 😀",
		strings.Repeat("\u202e", 300), strings.Repeat("n", 1024),
	} {
		w := &tape{}
		a := audit(t, telemetry.AuditConfig{Out: w})
		d := refusal("give_up")
		d.Kind, d.Note = policy.Signal, note
		a.Decided(d)
		shut(t, a)
		got := read(t, w.String())
		if len(got) != 1 || got[0]["note"] != note || got[0]["decision"] != "refuse" || got[0]["kind"] != "signal" {
			t.Errorf("%.40q became %v", note, got)
		}
		if strings.ContainsAny(w.String(), "\u2066") {
			t.Errorf("it is written as it came: %s", w)
		}
	}
}

func TestAuditOfArguments(t *testing.T) {
	w := &tape{}
	a := audit(t, telemetry.AuditConfig{Out: w, Arguments: true})
	call := func(arguments string) {
		d := refusal("x")
		d.Message = message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"` + arguments + `}}`)
		a.Decided(d)
	}
	call(``)
	call(",\"arguments\":{\n\t\"n\": 9007199254740993,\r \"s\":\"\u2028\\n\u009b\u202e\\\"\"}")
	call(`,"arguments":{"s":"` + strings.Repeat("y", 20000) + `"}`)
	shut(t, a)
	got := read(t, w.String())
	if _, there := got[0]["arguments"]; there {
		t.Error("arguments from nowhere")
	}
	if !strings.Contains(w.String(), `"arguments":{  "n": 9007199254740993,  "s":"\u2028\n\u009b\u202e\""}`) {
		t.Errorf("not the arguments as they came: %s", w)
	}
	got[1].is(t, `{"arguments":{"n":9007199254740993,"s":"\u2028\n\u009b\u202e\""}}`)
	got[2].is(t, `{"arguments_bytes":20008}`)
	if cut := got[2]["arguments_cut"].(string); len(cut) != 16<<10 || !strings.HasPrefix(cut, `{"s":"yyy`) {
		t.Errorf("%.40q, %d bytes", cut, len(cut))
	}
}

// While the audit cannot be written calls wait, undecided and unsent, and pings do
// not. Nothing is lost.
func TestSlowAuditMakesCallsWait(t *testing.T) {
	w := &tape{gate: make(chan struct{})}
	a := audit(t, telemetry.AuditConfig{Out: w, Queue: 1})
	r := newRig(t, observe.Telemetry{Auditor: a})
	c, _ := r.open()
	for range 20 {
		c.Request("tools/call", `{"name":"look"}`)
	}
	c.Call("ping", "")
	if n := r.upstream.Count("tools/call"); n != 0 {
		t.Errorf("%d calls were sent before the audit had room", n)
	}
	w.mu.Lock()
	close(w.gate)
	w.gate = nil
	w.mu.Unlock()
	r.upstream.Await(t, 20, "tools/call")
	r.proxy.Close()
	shut(t, a)
	if got := read(t, w.String()); len(got) != 1+2*20 {
		t.Errorf("%d lines:\n%s", len(got), w)
	}
}

// A proxy that ends does not wait for an audit that cannot be written.
func TestEndBeforeAStuckAudit(t *testing.T) {
	w := &tape{gate: make(chan struct{})}
	a := audit(t, telemetry.AuditConfig{Out: w, Queue: 1})
	r := newRig(t, observe.Telemetry{Auditor: a})
	c, _ := r.open()
	id := c.Request("tools/call", `{"name":"look"}`)
	c.Call("ping", "")
	r.proxy.Drain(t.Context())
	if answer, _ := c.Answer(id); !strings.Contains(answer.String(), "not sent") {
		t.Errorf("got %s", answer)
	}
	r.proxy.Close()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := a.Shutdown(ctx); err == nil {
		t.Error("it could be written")
	}
	close(w.gate)
}

// What could not be written is tried again, a line that was begun is ended, and
// the order stays.
func TestAuditIsWrittenAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &tape{faults: []fault{{0}, {70}, {10}, {0}, {200}}}
		a := audit(t, telemetry.AuditConfig{Out: w})
		for range 10 {
			a.Decided(refusal("x"))
		}
		synctest.Wait()
		for len(w.left()) > 0 {
			time.Sleep(10 * time.Second) // of the bubble's own time
		}
		shut(t, a)
		if got := read(t, w.String()); len(got) != 10 || a.Written() != 10 {
			t.Errorf("%d lines:\n%s", len(got), w)
		}
	})
}

func (w *tape) left() []fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults
}

func TestAuditFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	a := audit(t, telemetry.AuditConfig{Path: path})
	a.Decided(refusal("first"))
	awaitWritten(t, a, 1)
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if runtime.GOOS != "windows" { // where an open file keeps its name
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
	}
	a.Decided(refusal("second"))
	shut(t, a)
	all := text(t, path)
	if runtime.GOOS != "windows" {
		if strings.Contains(all, "first") {
			t.Error("the file that was moved away is still written to")
		}
		all = text(t, path+".1") + all
	}
	a = audit(t, telemetry.AuditConfig{Path: path}) // appended to
	a.Decided(refusal("third"))
	shut(t, a)
	if again := text(t, path); !strings.Contains(again, "second") || !strings.Contains(again, "third") {
		t.Errorf("not appended: %s", again)
	}
	if got := read(t, all); len(got) != 2 {
		t.Error(all)
	}
}

func TestAuditThatCannotBeOpened(t *testing.T) {
	_, err := telemetry.NewAudit(telemetry.AuditConfig{Path: filepath.Join(t.TempDir(), "no", "audit.log")})
	if err == nil || !strings.HasPrefix(err.Error(), "opening the audit: ") {
		t.Error(err)
	}
}

func TestAuditOfDenials(t *testing.T) {
	w := &tape{}
	a := audit(t, telemetry.AuditConfig{Out: w})
	a.Denied(telemetry.Denial{Reason: "origin_not_allowed", Request: denied()})
	shut(t, a)
	read(t, w.String())[0].is(t, `{"event":"denial","decision":"refuse","reason":"origin_not_allowed","remote":"192.0.2.1:5",
		"http_method":"POST","host":"evil.example","origin":"http://evil.example\u2028"}`)
	if strings.Contains(w.String(), "s3cret") {
		t.Error(w)
	}
}

// deniedFrom is a denial of one address.
func deniedFrom(remote string) telemetry.Denial {
	r := denied()
	r.RemoteAddr = remote
	return telemetry.Denial{Reason: "bearer_missing", Request: r}
}

// The first request that is denied to an address is written at once, and those that follow as one line with their
// count, every ten seconds and at the end. A /64 is one address, and so is an IPv4 address in whatever form.
func TestDenialsAreCountedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &tape{}
		a := audit(t, telemetry.AuditConfig{Out: w})
		record := func(n int, remotes ...string) {
			for range n {
				for _, remote := range remotes {
					a.Denied(deniedFrom(remote))
				}
			}
			synctest.Wait()
		}
		record(1, "192.0.2.1:5")
		record(100, "192.0.2.1:6", "[::ffff:192.0.2.1]:7")
		record(1, "[2001:db8::1]:8")
		record(50, "[2001:db8::2]:8", "[2001:db8::ffff:0:0:3%eth0]:9")
		record(1, "[2001:db8:0:1::1]:8")
		if n := a.Written(); n != 3 {
			t.Errorf("%d lines at once, want 3:\n%s", n, w)
		}
		time.Sleep(11 * time.Second) // of the bubble's own time
		synctest.Wait()
		if n := a.Written(); n != 5 {
			t.Errorf("%d lines after the interval, want 5:\n%s", n, w)
		}
		record(7, "192.0.2.1:9")
		time.Sleep(5 * time.Second)
		if n := a.Written(); n != 5 {
			t.Errorf("%d lines before the next is over, want 5", n)
		}
		shut(t, a)
		got := read(t, w.String())
		for i, want := range []string{
			`{"event":"denial","reason":"bearer_missing","remote":"192.0.2.1:5","count":1}`,
			`{"remote":"[2001:db8::1]:8","count":1}`,
			`{"remote":"[2001:db8:0:1::1]:8","count":1}`,
			`{"remote":"192.0.2.1:6","count":200,"origin":"http://evil.example\u2028"}`,
			`{"remote":"[2001:db8::2]:8","count":100}`,
			`{"remote":"192.0.2.1:9","count":7}`,
		} {
			got[i].is(t, want)
			if since, _ := got[i]["since"].(string); (since != "") != (got[i]["count"].(float64) > 1) || since > got[i]["time"].(string) {
				t.Errorf("line %d is of %v, since %q", i+1, got[i]["time"], since)
			}
		}
		if len(got) != 6 {
			t.Errorf("%d lines:\n%s", len(got), w)
		}
	})
}

// However many addresses are denied, few lines are written, what is kept is bounded, and no request is left out.
func TestDenialsOfManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100_000
		w := &tape{}
		a := audit(t, telemetry.AuditConfig{Out: w})
		long := strings.Repeat("x", 30_000)
		for i := range many {
			d := deniedFrom(fmt.Sprintf("[2001:db8:%x:%x::1]:5", i>>16, i&0xffff))
			d.Request.Host = long
			a.Denied(d)
			if i%(many/4) == 0 {
				time.Sleep(4 * time.Second) // of the bubble's own time
			}
		}
		shut(t, a)
		sum := 0
		got := read(t, w.String())
		others := 0
		for _, line := range got {
			sum += int(line["count"].(float64))
			if line["remote"] == nil {
				others++
			}
		}
		if sum != many || others == 0 || len(got) > 3*260 || len(w.String()) > 600<<10 {
			t.Errorf("%d of %d requests, %d lines of %d bytes, %d of them for all others", sum, many, len(got), len(w.String()), others)
		}
	})
}

// What is denied waits for no room, takes none, and is written once the audit can be.
func TestDenialsTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &tape{gate: make(chan struct{})}
		a := audit(t, telemetry.AuditConfig{Out: w, Queue: 4 << 10})
		a.Decided(refusal("x"))
		synctest.Wait() // the writer is stuck
		if err := a.Blocked(); err != nil {
			t.Errorf("blocked at once: %v", err)
		}
		for i := range 100_000 {
			a.Denied(deniedFrom(fmt.Sprintf("192.0.2.%d:5", i%200)))
		}
		if !a.Room() {
			t.Error("requests that were denied have taken the room of calls")
		}
		time.Sleep(3 * time.Second) // of the bubble's own time
		if err := a.Blocked(); err == nil || !strings.Contains(err.Error(), "calls wait") {
			t.Errorf("a writer that is stuck is %v", err)
		}
		close(w.gate)
		synctest.Wait()
		if err := a.Blocked(); err != nil {
			t.Errorf("blocked for ever: %v", err)
		}
		shut(t, a)
		sum := 0
		for _, line := range read(t, w.String()) {
			if line["event"] == "denial" {
				sum += int(line["count"].(float64))
			}
		}
		if sum != 100_000 {
			t.Errorf("%d requests were counted", sum)
		}
	})
}

// denied is a request that means no good.
func denied() *http.Request {
	r, _ := http.NewRequest(http.MethodPost, "http://evil.example/mcp", nil)
	r.RemoteAddr = "192.0.2.1:5"
	r.Header.Set("Authorization", "Bearer s3cret")
	r.Header.Set("Origin", "http://evil.example\u2028")
	return r
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// awaitWritten waits until so many lines were written.
func awaitWritten(t *testing.T, a *telemetry.Audit, n uint64) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for a.Written() < n {
		if time.Now().After(deadline) {
			t.Fatalf("%d lines were written, not %d", a.Written(), n)
		}
		runtime.Gosched()
	}
}

// What recording a decision costs who is decided on.
func BenchmarkDecided(b *testing.B) {
	a, err := telemetry.NewAudit(telemetry.AuditConfig{Out: &tape{}})
	if err != nil {
		b.Fatal(err)
	}
	d := refusal("look")
	b.ReportAllocs()
	for b.Loop() {
		a.Decided(d)
	}
	_ = a.Shutdown(context.Background())
}
