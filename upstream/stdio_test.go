//go:build unix

package upstream

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func TestProcessBytes(t *testing.T) {
	r := newRecorder()
	c := dial(t, newServer(t, child("server")), r)
	if early := r.next(t, "notifications/message"); early.tag != nil || !strings.Contains(string(early.Raw), "early") {
		t.Error("a message before the answer to initialize:", string(early.Raw))
	}
	if string(c.Hello().Bytes(c.Hello().ID)) != "1" || c.Streams() {
		t.Error(string(c.Hello().Raw))
	}
	got := textOf(t, mustCall(t, c, "echo"))
	want := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":2},"arguments":{"n":12345678901234567890}}}`
	if got != want {
		t.Errorf("the upstream got\n%s, want\n%s", got, want)
	}
}

// Id and token are edited wherever they stand.
func TestStartEditsInAnyOrder(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	m := read(t, "{\"params\":{\"_meta\":{ \"progressToken\": 7 ,\"x\":1},\n\"name\":\"echo\"}, \"method\":\"tools/call\",\"id\":\"a\" ,\"jsonrpc\":\"2.0\"}")
	answer, err := c.Start(m, nil).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"params":{"_meta":{ "progressToken": 2 ,"x":1}, "name":"echo"}, "method":"tools/call","id":2 ,"jsonrpc":"2.0"}`
	if got := textOf(t, string(answer.Bytes(answer.Result))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestProcessOrder(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	var calls []wire.Call
	for range 100 {
		calls = append(calls, c.Start(request(t, "count"), nil))
	}
	for i, k := range calls {
		m, err := k.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := textOf(t, string(m.Bytes(m.Result))); got != strconv.Itoa(i+3) { // after initialize and initialized
			t.Fatalf("call %d was line %s", i, got)
		}
	}
}

func TestProcessParallel(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				if _, err := callTool(t, c, "echo"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// Death in mid-call is noticed at once, by the call and by Done.
func TestProcessDiesInMidCall(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	waiting := c.Start(request(t, "silent"), nil)
	_, err := callTool(t, c, "die")
	if e := callError(t, err); !e.Sent {
		t.Error("sent, and then?", e)
	}
	contains(t, err.Error(), "exit status 7", "out of memory")
	if _, err := waiting.Wait(t.Context()); !callError(t, err).Sent {
		t.Error(err)
	}
	<-c.Done()
	contains(t, c.Err().Error(), "exit status 7")
	_, err = callTool(t, c, "echo")
	if e := callError(t, err); e.Sent {
		t.Error("nothing was sent", e)
	}
	if err := c.Notify([]byte(initializedRaw)); err == nil {
		t.Error("a dead process took a notification")
	}
}

// What the child said before it died arrives.
func TestProcessLastWords(t *testing.T) {
	for range 20 {
		c := dial(t, newServer(t, child("server")), newRecorder())
		if got := textOf(t, mustCall(t, c, "answer-and-die")); got != "last words" {
			t.Error(got)
		}
		<-c.Done()
	}
}

func TestProcessClosesOutput(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	if _, err := callTool(t, c, "close-output"); !errors.Is(err, errOutputClosed) || !callError(t, err).Sent {
		t.Error(err)
	}
	<-c.Done()
}

func TestProcessSecondAnswer(t *testing.T) {
	s := newServer(t, child("server"))
	c := dial(t, s, newRecorder())
	if got := textOf(t, mustCall(t, c, "twice")); got != "first" {
		t.Error(got)
	}
	mustCall(t, c, "echo")
	if n := s.Stats().Stray; n != 1 {
		t.Error("stray:", n)
	}
}

func TestProcessAnswersToNobody(t *testing.T) {
	s := newServer(t, child("server"))
	c := dial(t, s, newRecorder())
	if got := textOf(t, mustCall(t, c, "stranger")); got != "mine" {
		t.Error(got)
	}
	if n := s.Stats().Stray; n != 3 {
		t.Error("stray:", n)
	}
}

func TestProcessLateAnswer(t *testing.T) {
	s := newServer(t, child("server"))
	r := newRecorder()
	c := dial(t, s, r)
	ctx, cancel := context.WithCancel(t.Context())
	k := c.Start(request(t, "echo"), nil)
	cancel()
	if _, err := k.Wait(ctx); err != nil { // unless the answer was faster
		if e := callError(t, err); !e.Sent || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	mustCall(t, c, "echo")
	if c.mu.Lock(); len(c.calls) != 0 {
		t.Error("calls are kept:", len(c.calls))
	}
	c.mu.Unlock()
}

func TestProcessNoise(t *testing.T) {
	cfg := child("server")
	cfg.MaxMessage = 1 << 20
	s := newServer(t, cfg)
	c := dial(t, s, newRecorder())
	if got := textOf(t, mustCall(t, c, "noise")); got != "after the noise" {
		t.Error(got)
	}
	if n := s.Stats().Noise; n != 8 {
		t.Error("noise:", n)
	}
}

// An answer that cannot be read ends its call; a request with the same id does
// not, and is answered.
func TestProcessUnreadable(t *testing.T) {
	r := newRecorder()
	c := dial(t, newServer(t, child("server")), r)
	_, err := callTool(t, c, "unreadable")
	if e := callError(t, err); !e.Sent {
		t.Error(e)
	}
	contains(t, err.Error(), "duplicate member name")
	if got := textOf(t, mustCall(t, c, "unreadable-request")); got != "still here" {
		t.Error(got)
	}
}

func TestProcessProgress(t *testing.T) {
	s := newServer(t, child("server"))
	r := newRecorder()
	c := dial(t, s, r)
	r.next(t, "notifications/message")
	mustCall(t, c, "progress")
	first := r.next(t, "notifications/progress")
	want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.10,"progressToken":"tok\u0065n", "message":"half"}}`
	if string(first.Raw) != want || first.tag != "progress" || string(first.Bytes(first.P.ProgressToken)) != `"tok\u0065n"` {
		t.Errorf("%s %v", first.Raw, first.tag)
	}
	if m := <-r.got; m.Method != "notifications/message" {
		t.Error("progress with an unknown token, or after the answer:", string(m.Raw))
	}
	if n := s.Stats().Stray; n != 3 {
		t.Error("stray:", n)
	}
}

// Requests of the upstream go to the receiver, in order; ping is answered here.
func TestProcessAsks(t *testing.T) {
	r := newRecorder()
	c := dial(t, newServer(t, child("server")), r)
	r.next(t, "notifications/message")
	mustCall(t, c, "ask")
	roots := <-r.got
	if roots.Method != "roots/list" || roots.tag != nil {
		t.Error(string(roots.Raw))
	}
	contains(t, string(r.next(t, "notifications/message").Raw), `{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"result\":{}}`)
	if err := c.Notify(wire.ResultAnswer(roots.Bytes(roots.ID), []byte(`{"roots":[]}`))); err != nil {
		t.Error(err)
	}
	contains(t, string(r.next(t, "notifications/message").Raw), `\"roots\":[]`)
}

func TestProcessBatch(t *testing.T) {
	r := newRecorder()
	c := dial(t, newServer(t, child("server")), r)
	r.next(t, "notifications/message")
	if got := mustCall(t, c, "batch"); got != `{"batch":true}` {
		t.Error(got)
	}
	r.next(t, "notifications/message")
}

func TestProcessCancel(t *testing.T) {
	r := newRecorder()
	c := dial(t, newServer(t, child("server")), r)
	r.next(t, "notifications/message")
	k := c.Start(request(t, "silent"), nil)
	r.next(t, "notifications/message")
	k.Cancel([]byte(`{"reason":"why","requestId":"mine","x":1}`))
	contains(t, string(r.next(t, "notifications/message").Raw), `\"params\":{\"reason\":\"why\",\"requestId\":2,\"x\":1}`)
	k.Cancel(nil)
	contains(t, string(r.next(t, "notifications/message").Raw), `\"params\":{\"requestId\":2}`)
}

func TestCloseEndsCalls(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	k := c.Start(request(t, "silent"), nil)
	c.Close()
	if _, err := k.Wait(t.Context()); !callError(t, err).Sent || !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	<-c.Done()
	c.Close()
}

// alive reports whether a process is there, and no zombie.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if pid <= 1 {
		t.Fatal("no pid:", pid)
	}
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(after, []byte("Z"))
}

// ourZombie reports whether a process is a zombie of this one.
func ourZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	return fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid())
}

func pidOf(t *testing.T, c *Conn, tool string) int {
	t.Helper()
	pid, err := strconv.Atoi(textOf(t, mustCall(t, c, tool)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// awaitGone waits until a process that was killed has ended.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, func() bool { return !alive(t, pid) })
}

// Close ends children of the child as well, however it ends them itself.
func TestCloseEndsTheGroup(t *testing.T) {
	for _, role := range []string{"server", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			cfg := child(role)
			cfg.Grace = 100 * time.Millisecond
			s := newServer(t, cfg)
			c := dial(t, s, newRecorder())
			own, grandchild := pidOf(t, c, "pid"), pidOf(t, c, "spawn")
			s.Close()
			if alive(t, own) || ourZombie(own) {
				t.Error("the child is there")
			}
			awaitGone(t, grandchild)
			if _, err := s.Dial(t.Context(), opening(t), newRecorder()); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// Kill ends a child as well that is only being started, which nobody knows of yet.
func TestKillDuringAStart(t *testing.T) {
	cfg := child("stubborn")
	cfg.Grace = 100 * time.Millisecond
	s := newServer(t, cfg)
	c := newConn(s, newRecorder())
	c.link = newStdioLink(c)
	if err := s.admit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := c.link.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(c.dialled)
	eventually(t, func() bool { return c.Err() != nil })
	contains(t, c.Err().Error(), "killed")
}

// A child that dies takes its children with it.
func TestDeathEndsTheGroup(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	own := pidOf(t, c, "pid")
	grandchild := pidOf(t, c, "spawn-and-die")
	<-c.Done()
	awaitGone(t, grandchild)
	if ourZombie(own) {
		t.Error("a zombie is left")
	}
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestStderrFlood(t *testing.T) {
	var log syncBuffer
	cfg := child("server")
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: &log})
	s := newServer(t, cfg)
	c := dial(t, s, newRecorder())
	mustCall(t, c, "flood")
	s.Close()
	out := log.String()
	contains(t, out, "line 0 ", "lines left out")
	if n := strings.Count(out, "\n"); n > 200 {
		t.Errorf("%d lines logged", n)
	}
	for line := range strings.Lines(out) {
		if len(line) > 2<<10+200 || strings.ContainsAny(line, "\x1b\x07") {
			t.Errorf("logged: %.100q", line)
		}
	}
	if n := s.Stats().Stderr; n < 19_000 {
		t.Error("left out:", n)
	}
}

func TestDialRefused(t *testing.T) {
	s := newServer(t, child("refuse"))
	for range 2 { // and that is no reason to back off
		_, err := s.Dial(t.Context(), opening(t), newRecorder())
		refused, ok := errors.AsType[*InitializeError](err)
		if !ok {
			t.Fatal(err)
		}
		contains(t, string(refused.Answer.Raw), `"data":{"supported":["x"]}`)
	}
}

// What a child said last is for the log alone where its clients are others.
func TestLastWordsAreNotForStrangers(t *testing.T) {
	cfg := child("die")
	cfg.Quote = false
	_, err := newServer(t, cfg).Dial(t.Context(), opening(t), newRecorder())
	if text := callError(t, err).Error(); strings.Contains(text, "database") || !strings.Contains(text, "exit status 3") {
		t.Error(text)
	}
}

func TestDialDies(t *testing.T) {
	cfg := child("die")
	cfg.MinBackoff = time.Hour
	cfg.MaxBackoff = time.Hour
	s := newServer(t, cfg)
	_, err := s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent {
		t.Error("nothing of a call was sent")
	}
	contains(t, err.Error(), "connecting to the upstream", "exit status 3", "cannot open the database")
	_, err = s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent || e.RetryAfter < 40*time.Minute || e.RetryAfter > time.Hour {
		t.Errorf("%+v", e)
	}
	contains(t, err.Error(), "exit status 3", "tried again in")
}

func TestDialTimeout(t *testing.T) {
	cfg := child("mute")
	cfg.DialTimeout = 300 * time.Millisecond
	_, err := newServer(t, cfg).Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent {
		t.Error(e)
	}
	contains(t, err.Error(), "no answer to initialize in 3", "still ran, and was ended")
}

// A caller that gives up is no reason to back off.
func TestDialCancelled(t *testing.T) {
	s := newServer(t, child("mute"))
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err := s.Dial(ctx, opening(t), newRecorder())
		if e := callError(t, err); e.RetryAfter != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v", e)
		}
	}
}

// Close while a connection is being made ends that.
func TestCloseDuringDial(t *testing.T) {
	s := newServer(t, child("mute"))
	failed := make(chan error)
	go func() {
		_, err := s.Dial(context.Background(), opening(t), newRecorder())
		failed <- err
	}()
	eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 1
	})
	s.Close()
	if err := <-failed; err == nil {
		t.Error("it went on")
	}
}

func TestMaxProcesses(t *testing.T) {
	cfg := child("server")
	cfg.MaxProcesses = 2
	s := newServer(t, cfg)
	c := dial(t, s, newRecorder())
	dial(t, s, newRecorder())
	_, err := s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent {
		t.Error(e)
	}
	contains(t, err.Error(), "as many processes", "--max-upstreams 2", "--share-upstream")
	mustCall(t, c, "echo") // the live ones go on
	for range 5 {
		c.Close()
		if c, err = s.Dial(t.Context(), opening(t), newRecorder()); err != nil { // as soon as the first has ended
			t.Fatal(err)
		}
	}
}

func TestBackoffGrows(t *testing.T) {
	s := newServer(t, child("die"))
	var last time.Duration
	for range 12 {
		s.settle(t.Context(), newConn(s, nil), errors.New("x"))
		wait := time.Until(s.blocked)
		if wait < last/2 || wait > 5*time.Second {
			t.Error(wait, "after", last)
		}
		last = wait
	}
	if last < 3*time.Second {
		t.Error(last)
	}
	s.settle(t.Context(), newConn(s, nil), nil)
	s.settle(t.Context(), newConn(s, nil), errors.New("x"))
	if wait := time.Until(s.blocked); wait > 200*time.Millisecond {
		t.Error(wait)
	}
}

func TestProcessEnvironment(t *testing.T) {
	cfg := child("server")
	cfg.Env = []string{roleVar + "=server", "ONLY=this"}
	cfg.Dir = t.TempDir()
	c := dial(t, newServer(t, cfg), newRecorder())
	if got := textOf(t, mustCall(t, c, "env")); got != roleVar+"=server\nONLY=this\nPWD="+cfg.Dir && got != roleVar+"=server\nONLY=this" {
		t.Errorf("%q", got)
	}
}

func TestNewErrors(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"give a command or a URL":                   {},
		"not both":                                  {Command: []string{"sh"}, URL: "http://x"},
		`no command "no-such-command-x" in PATH`:    {Command: []string{"no-such-command-x"}},
		"put its interpreter in front of it":        {Command: []string{plain}},
		"no-such-file":                              {Command: []string{"/no-such-file"}},
		"belong to a URL":                           {Command: []string{"sh"}, SSE: true},
		"must begin with http:// or https://":       {URL: "ftp://x"},
		"names no host":                             {URL: "http:///mcp"},
		"a password or user name":                   {URL: "http://u:secret@x/"},
		"reading the upstream's URL":                {URL: "http://[::1/"},
		"Mcp-Session-Id is set by the proxy itself": {URL: "http://x", Header: map[string][]string{"mcp-session-id": {"1"}}},
		"is no header":                              {URL: "http://x", Header: map[string][]string{"A": {"1\r\nB: 2"}}},
		"give one of":                               {URL: "http://x", Header: map[string][]string{"authorization": {"1"}}, BearerFile: plain},
		"--upstream-bearer-file /no-such-file":      {URL: "http://x", BearerFile: "/no-such-file"},
		"must hold one token":                       {URL: "http://x", BearerFile: plain},
		"give a client id":                          {URL: "http://x", OAuth: &OAuth{}},
	} {
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%q: %v", want, err)
		}
	}
}
