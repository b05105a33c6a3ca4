package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// all are the ways to put the proxy between a client and an upstream.
var all = []way{pipes, web, webPipe, pipeWeb, webTLS}

func every(flags ...string) (ways []way) {
	for _, w := range all {
		ways = append(ways, w.with(flags...))
	}
	return ways
}

// end asks the proxy to end, and returns when it takes nothing new any more.
func (r *rig) end() {
	r.t.Helper()
	r.signal(syscall.SIGTERM)
	r.process.Log().Await(r.t, "ending")
}

// ended fails the test unless the proxy ends by itself, well, and with all that it has started.
func (r *rig) ended() {
	r.t.Helper()
	if code := r.process.ExitCode(); code != 0 {
		r.t.Errorf("exit code %d", code)
	}
	r.upstream.AwaitLive(r.t, 0)
}

// hold begins a call of hold_open, which has reached the upstream then.
func (r *rig) hold() (id int) {
	r.t.Helper()
	id = r.Request("tools/call", mcptest.ToolParams("hold_open", ""))
	r.upstream.Await(r.t, 1, "tools/call", "hold_open")
	return id
}

// declined fails the test unless a request is refused because the proxy is ending.
func (r *rig) declined(raw string) {
	r.t.Helper()
	var body string
	if r.web == nil {
		body = r.say(raw)
	} else {
		status, after := http.StatusOK, "" // in a session, which some SDKs give up for an error
		if r.web.ID() == "" {
			status, after = http.StatusServiceUnavailable, "1"
		}
		answer := r.web.Post(r.t.Context(), raw)
		if answer.Status != status || answer.Header.Get("Retry-After") != after {
			r.t.Errorf("%s is answered HTTP %d %v", raw, answer.Status, answer.Header)
		}
		body = string(answer.Body)
	}
	if !strings.Contains(body, "-32603") || !strings.Contains(body, "is ending") || !strings.Contains(body, `"id":"late"`) {
		r.t.Errorf("%s is answered %s", raw, body)
	}
}

// A call under way is answered, and one that comes later is not sent. Lists are answered to the end.
func TestEndingWithACallUnderWay(t *testing.T) {
	each(t, all, func(r *rig) {
		held := r.hold()
		r.end()
		r.declined(call(`"late"`, `{"name":"ok"}`))
		if answer := r.Call("tools/list", "{}"); answer.Error != nil || !strings.Contains(answer.String(), `"hold_open"`) {
			r.t.Errorf("a list is answered %s", answer)
		}
		if answer := r.Call("ping", ""); string(answer.Result) != "{}" {
			r.t.Errorf("a ping is answered %s", answer)
		}
		r.upstream.Open("hold_open")
		if answer, _ := r.Answer(held); string(answer.Result) != mcptest.Text("the true answer") {
			r.t.Errorf("the call under way is answered %s", answer)
		}
		r.ended()
		r.reached("tools/call hold_open")
	})
}

// There are no new sessions, and their clients are told so in words that balancers know.
func TestInitializeDuringTheDrain(t *testing.T) {
	each(t, []way{web, webPipe, webTLS}, func(r *rig) {
		held := r.hold()
		r.end()
		other := &rig{t: r.t, process: r.process}
		other.Session, other.web = mcptest.DialWeb(r.t, r.url)
		other.declined(mcptest.Request("late", "initialize", oldHello))
		if id := other.web.ID(); id != "" {
			r.t.Errorf("it has the session id %s", id)
		}
		r.upstream.Open("hold_open")
		r.Answer(held)
		r.ended()
		if n := r.upstream.Started(); n != 1 {
			r.t.Errorf("%d sessions upstream", n)
		}
	})
}

const slowly = "w://slow"

// post writes a POST of the session to a connection, and reads nothing.
func (r *rig) post(connection net.Conn, raw string) {
	fmt.Fprintf(connection, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", r.address(), r.web.ID(), len(raw), raw)
}

// A connection that is kept alive ends behind its next answer, which says so: no request is sent into one that is
// being closed.
func TestConnectionsEndBehindTheirAnswers(t *testing.T) {
	t.Parallel()
	r := web.open(t)
	connection, err := r.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	in := bufio.NewReader(connection)
	post := func(raw string) *http.Response {
		r.post(connection, raw)
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return answer
	}
	if answer := post(call("1", `{"name":"ok"}`)); answer.Close {
		t.Error("the connection ends before the drain")
	}
	held := r.hold()
	r.end()
	if answer := post(call(`"late"`, `{"name":"ok"}`)); !answer.Close || answer.StatusCode != http.StatusOK {
		t.Errorf("answered HTTP %d, closing: %v", answer.StatusCode, answer.Close)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the connection ends with %v", err)
	}
	r.upstream.Open("hold_open")
	r.Answer(held)
	r.ended()
}

// What has no answer when the time is up may have happened: the client is told so, the upstream is told to stop.
func TestDrainRunsOut(t *testing.T) {
	policy := strings.Replace(plan, `"w://shown":`, `"`+slowly+`":`, 1)
	var ways []way
	for _, w := range every("--drain", "300ms") {
		ways = append(ways, w.under(policy))
	}
	each(t, ways, func(r *rig) {
		tool := r.Request("tools/call", mcptest.ToolParams("silent", ""))
		read := r.Request("resources/read", `{"uri":"`+slowly+`"}`)
		r.upstream.Await(r.t, 1, "tools/call", "silent")
		r.upstream.Await(r.t, 1, "resources/read", slowly)
		r.end()
		answers := map[string]string{}
		for range 2 {
			answer := r.nextAnswer()
			answers[string(answer.ID)] = answer.String()
		}
		for id, want := range map[int][]string{
			tool: {`"isError":true`, `"outcome_unknown"`, "before the proxy had to end; it may have happened", `"state":"lost"`},
			read: {"-32603", `"outcome_unknown"`, "may have happened"},
		} {
			for _, text := range want {
				if answer := answers[string(mcptest.ID(id))]; !strings.Contains(answer, text) {
					r.t.Errorf("%q is not in %s", text, answer)
				}
			}
		}
		r.ended()
		r.reached("tools/call silent", "resources/read "+slowly, "notifications/cancelled", "notifications/cancelled")
	})
}

// Without time to drain, what is under way is answered at once.
func TestDrainOfNoTime(t *testing.T) {
	each(t, every("--drain", "0"), func(r *rig) {
		held := r.hold()
		r.signal(syscall.SIGTERM)
		if answer, _ := r.Answer(held); !strings.Contains(answer.String(), `"outcome_unknown"`) {
			r.t.Errorf("answered %s", answer)
		}
		r.ended()
		r.reached("tools/call hold_open", "notifications/cancelled")
	})
}

// A call that waits for its turn is not sent, and is told so at once.
func TestEndingWithAQueue(t *testing.T) {
	each(t, every("--max-queue", "1"), func(r *rig) {
		held := r.Request("tools/call", mcptest.ToolParams("hold", ""))
		r.upstream.Await(r.t, 1, "tools/call", "hold")
		r.Request("tools/call", mcptest.ToolParams("once", ""))
		r.Request("tools/call", mcptest.ToolParams("once", ""))
		if answer := r.nextAnswer(); !strings.Contains(answer.String(), `"busy"`) { // so the other one is in the queue
			r.t.Errorf("answered %s", answer)
		}
		r.end()
		answer := r.nextAnswer()
		if text := answer.String(); !strings.Contains(text, `"upstream_unavailable"`) || !strings.Contains(text, "was not sent") {
			r.t.Errorf("the queued call is answered %s", text)
		}
		r.upstream.Open("hold")
		if answer, _ := r.Answer(held); string(answer.Result) != mcptest.Text("held") {
			r.t.Errorf("the call under way is answered %s", answer)
		}
		r.ended()
		r.reached("tools/call hold")
	})
}

// A call whose server asks a person gets its answer through, and has its own.
func TestElicitationDuringTheDrain(t *testing.T) {
	each(t, all, func(r *rig) {
		asking := r.Request("tools/call", mcptest.ToolParams("elicit", ""))
		question := r.Next()
		for question.Method != "elicitation/create" {
			question = r.Next()
		}
		r.end()
		r.Send(mcptest.Result(question.ID, `{"action":"decline"}`))
		if answer, _ := r.Answer(asking); answer.Error != nil || strings.Contains(answer.String(), "unknown") {
			r.t.Errorf("answered %s", answer)
		}
		r.ended()
	})
}

// A cancellation during the drain reaches the upstream, and the call holds up nobody.
func TestCancelDuringTheDrain(t *testing.T) {
	each(t, every("--cancel-grace", "100ms"), func(r *rig) {
		held := r.hold()
		r.end()
		r.Notify("notifications/cancelled", `{"requestId":`+string(mcptest.ID(held))+`}`)
		r.ended()
		r.reached("tools/call hold_open", "notifications/cancelled")
	})
}

// A body that is refused, and read past for its id, holds up the end no longer than any other that does not come.
func TestEndlessBodyDuringTheDrain(t *testing.T) {
	t.Parallel()
	r := web.with("--drain", "300ms").open(t)
	held := r.hold()
	connection, err := r.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n{", r.address(), r.web.ID(), 5<<20)
	r.end()
	r.upstream.Open("hold_open")
	r.Answer(held)
	began := time.Now()
	r.ended()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// The client has gone in the midst of it: there is nobody left to wait for.
func TestInputEndsDuringTheDrain(t *testing.T) {
	each(t, []way{pipes, pipeWeb}, func(r *rig) {
		r.hold()
		r.end()
		r.Close()
		r.soon()
	})
}

// A GET stream lives on while calls do, and ends with its last chunk: not like a lost connection.
func TestGETStreamEndsCleanly(t *testing.T) {
	each(t, []way{web, webPipe}, func(r *rig) {
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Mcp-Session-Id", r.web.ID())
		stream, err := http.DefaultClient.Do(request)
		if err != nil || stream.StatusCode != http.StatusOK {
			r.t.Fatalf("%v %v", stream, err)
		}
		defer stream.Body.Close()
		r.hold()
		r.end()
		r.declined(call(`"late"`, `{"name":"ok"}`))
		if _, err := stream.Body.Read(make([]byte, 1)); err != nil { // its beginning, at the least
			r.t.Errorf("the stream has ended before the call: %v", err)
		}
		r.upstream.Open("hold_open")
		if _, err := io.ReadAll(stream.Body); err != nil {
			r.t.Errorf("the stream ends with %v", err)
		}
		r.ended()
	})
}

// A second signal ends the proxy at once, and what it has started with it.
func TestSecondSignal(t *testing.T) {
	codes := map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130}
	t.Parallel()
	for second, code := range codes {
		for _, w := range []way{pipes, webPipe} {
			w.server = "stubborn"
			t.Run(second.String()+" "+w.client, func(t *testing.T) {
				t.Parallel()
				r := w.open(t)
				r.Tool("children", "")
				r.upstream.AwaitLive(t, 2)
				group := r.group()
				r.hold()
				r.end()
				r.insist(second)
				if got := r.process.ExitCode(); got != code {
					t.Errorf("exit code %d", got)
				}
				r.upstream.AwaitLive(t, 0)
				awaitEmpty(t, group)
			})
		}
	}
}

// insist signals until the proxy has ended: for a second, a signal of the first one's kind counts as an echo of it.
func (r *rig) insist(s syscall.Signal) {
	r.t.Helper()
	patience := time.NewTimer(mcptest.Patience)
	defer patience.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		_ = r.process.Process.Signal(s) // it may just have ended
		select {
		case <-again.C:
		case <-r.process.Ended():
			return
		case <-patience.C:
			r.t.Fatalf("it goes on after many a %v", s)
		}
	}
}

// One Ctrl-C comes several times, from the terminal and from each launcher between it and the proxy. That is no second
// signal: what is under way is answered.
func TestSignalThatComesSeveralTimes(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, w := range []way{pipes, webPipe} {
			t.Run(s.String()+" "+w.client, func(t *testing.T) {
				t.Parallel()
				r := w.open(t)
				held := r.hold()
				apart := time.NewTicker(5 * time.Millisecond) // those sent at one time arrive as one
				defer apart.Stop()
				for range 10 {
					r.signal(s)
					<-apart.C
				}
				r.process.Log().Await(t, "ending")
				r.upstream.Open("hold_open")
				if answer, _ := r.Answer(held); string(answer.Result) != mcptest.Text("the true answer") {
					t.Errorf("answered %s", answer)
				}
				r.ended()
			})
		}
	}
}

// A server that never stops talking does not keep the proxy from ending.
func TestUpstreamFloodsDuringTheDrain(t *testing.T) {
	policy := strings.Replace(plan, "      sse:", "      sse:\n      spam: {on_unknown: lost}", 1)
	flags := []string{"--drain", "500ms"}
	each(t, []way{pipes.with(flags...).under(policy), webPipe.with(flags...).under(policy)}, func(r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("spam", ""))
		r.upstream.Await(r.t, 1, "tools/call", "spam")
		r.end()
		for {
			if answer := r.Next(); string(answer.ID) == string(mcptest.ID(id)) {
				if !strings.Contains(answer.String(), `"outcome_unknown"`) {
					r.t.Errorf("answered %s", answer)
				}
				break
			}
		}
		r.ended()
	})
}

// soon fails the test unless the proxy ends well before its patience does.
func (r *rig) soon() {
	r.t.Helper()
	begun := time.Now()
	r.ended()
	if took := time.Since(begun); took > 15*time.Second {
		r.t.Errorf("it took %v", took)
	}
}

// A client that reads nothing has its time to read, and no more.
func TestClientReadsNothingDuringTheDrain(t *testing.T) {
	t.Parallel()
	r := webPipe.with("--drain", "1s").open(t)
	connection, err := r.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	r.post(connection, call(`"big"`, `{"name":"big"}`))
	r.upstream.Await(t, 1, "tools/call", "big")
	r.end()
	r.soon()
}

func TestPipeIsNotReadDuringTheDrain(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "world")
	args := append([]string{"run", "--policy", mcptest.WritePolicy(t, plan), "--drain", "1s", "--"}, u.Command()...)
	cmd := exec.Command(mcptest.Proxy(t), args...)
	stdin, _, stderr := pipesOf(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, stderr)
	send(t, stdin, mcptest.Request(1, "initialize", oldHello), call(`"big"`, `{"name":"big"}`))
	u.Await(t, 1, "tools/call", "big")
	begun := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	u.AwaitLive(t, 0)
}

// A large answer is read to its end, however slowly.
func TestSlowClientHasItsAnswer(t *testing.T) {
	t.Parallel()
	r := webPipe.open(t)
	connection, err := r.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	r.post(connection, call(`"big"`, `{"name":"big"}`))
	r.upstream.Await(t, 1, "tools/call", "big")
	r.end()
	r.process.Log().Await(t, "drained")
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	pace := time.NewTicker(30 * time.Millisecond) // 3 s: more than clients have at the least
	defer pace.Stop()
	size := int64(0)
	for err == nil {
		<-pace.C
		var n int64
		n, err = io.CopyN(io.Discard, answer.Body, 64<<10)
		size += n
	}
	if err != io.EOF || size < 6<<20 {
		t.Errorf("%d bytes, then %v", size, err)
	}
	r.soon()
}

// What a client asks while its session is only about to begin waits for nothing, neither does the session.
func TestEndingInMidHandshake(t *testing.T) {
	t.Parallel()
	policy := mcptest.WritePolicy(t, plan)
	url, process := mcptest.Listen(t, "--policy", policy, "--", "cat", "/dev/zero")
	r := &rig{t: t, process: process, url: url}
	r.Session, r.web = mcptest.DialWeb(t, url)
	answered := make(chan mcptest.Response, 1)
	go func() { answered <- r.web.Post(t.Context(), mcptest.Request(1, "initialize", oldHello)) }()
	r.awaitChild()
	group := r.group()
	r.end()
	answer := <-answered
	if answer.Status != http.StatusServiceUnavailable || !strings.Contains(string(answer.Body), "is ending") {
		t.Errorf("answered HTTP %d %s", answer.Status, answer.Body)
	}
	if code := process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	awaitEmpty(t, group)
}

// A pod's end, in the kubelet's order: first the hook, and SIGTERM when the server's container has gone, while calls may
// still be under way. That is no second signal; the next one is.
func TestSIGTERMAfterTheHook(t *testing.T) {
	for name, insist := range map[string]bool{"drained": false, "insisting": true} {
		t.Run(name, func(t *testing.T) {
			each(t, []way{web, webPipe}, func(r *rig) {
				held := r.hold()
				pid := strconv.Itoa(r.process.Process.Pid)
				if said, err := exec.Command(mcptest.Proxy(r.t), "drain", "--pid", pid).CombinedOutput(); err != nil {
					r.t.Fatalf("%v: %s", err, said)
				}
				r.process.Log().Await(r.t, "ending")
				r.signal(syscall.SIGTERM)
				if answer := r.Call("ping", ""); string(answer.Result) != "{}" {
					r.t.Errorf("a ping is answered %s", answer)
				}
				if insist {
					r.signal(syscall.SIGINT) // two of a kind can become one on their way
					if code := r.process.ExitCode(); code != 130 && code != 143 {
						r.t.Errorf("exit code %d", code)
					}
					return
				}
				r.upstream.Open("hold_open")
				if answer, _ := r.Answer(held); string(answer.Result) != mcptest.Text("the true answer") {
					r.t.Errorf("answered %s", answer)
				}
				r.ended()
			})
		})
	}
}
