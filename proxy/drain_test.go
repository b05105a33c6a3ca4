package proxy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/drain"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// drained is a drain under way.
type drained struct {
	done   chan struct{}
	result drain.Drained
	took   time.Duration
}

// drain begins a drain, which has done all that it does at once when this
// returns.
func (r *rig) drain(limit time.Duration) *drained {
	d := &drained{done: make(chan struct{})}
	begun := time.Now()
	go func() {
		defer close(d.done)
		ctx, stop := context.WithTimeout(context.Background(), limit)
		defer stop()
		d.result = r.p.Drain(ctx)
		d.took = time.Since(begun)
	}()
	synctest.Wait()
	return d
}

func (d *drained) want(t *testing.T, result drain.Drained, took time.Duration) {
	t.Helper()
	<-d.done
	if d.result != result || d.took != took {
		t.Errorf("drained %+v in %v, want %+v in %v", d.result, d.took, result, took)
	}
}

// has fails the test unless all the texts are in an answer.
func has(t *testing.T, answer string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			t.Errorf("%q is not in %s", text, answer)
		}
	}
}

func TestDrainWaitsForWhatIsUnderWay(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		if r.p.Draining() {
			t.Error("it is draining before")
		}
		call := c.call("write_plan")
		up := c.up.next()
		d := r.drain(time.Minute)
		if !r.p.Draining() {
			t.Error("it is not draining")
		}
		for _, method := range []string{"tools/call", "initialize", "made/up", "logging/setLevel", "completion/complete"} {
			has(t, c.ask(method, "{}"), "-32603", "is ending")
		}
		has(t, c.ask("tools/list", ""), `"write_plan"`)
		has(t, c.call("status").wait(), "-32603", "was not sent")
		has(t, r.open().ask("initialize", plainHello), "-32603")
		has(t, c.ask("ping", ""), `"result":{}`)
		time.Sleep(time.Second)
		up.result(ok)
		has(t, call.wait(), `"ok"`)
		d.want(t, drain.Drained{Finished: 1, Refused: 7}, time.Second)
		equal(t, "told", call.messages(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`})
	})
}

func TestDrainBreaksOffWhatHasNoAnswer(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		c.do("ask", ok)
		tool := c.call("apply")
		up := c.up.next()
		d := r.drain(25 * time.Second)
		d.want(t, drain.Drained{BrokenOff: 1}, 25*time.Second)
		has(t, tool.wait(), `"outcome_unknown"`, "before the proxy had to end; it may have happened", `"state":"review"`, `"isError":true`)
		if told := up.cancelled(); len(told) != 1 || !strings.Contains(told[0], "ending") {
			t.Errorf("the upstream was told %q", told)
		}
		if up.result(ok) {
			t.Error("a late answer was taken")
		}
	})
}

// A call that is given up just as it is sent is cancelled upstream like any other.
func TestDrainBreaksOffWhatIsBeingSent(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.answers(func(*upcall) (string, bool) {
			time.Sleep(1500 * time.Millisecond) // the drain's end lies in the midst of it
			return "", false
		})
		var tool *reply
		go func() { tool = c.call("write_plan") }()
		synctest.Wait()
		d := r.drain(time.Second)
		d.want(t, drain.Drained{BrokenOff: 1}, 1500*time.Millisecond)
		synctest.Wait()
		has(t, tool.wait(), `"outcome_unknown"`)
		if told := r.up.next().cancelled(); len(told) != 1 || !strings.Contains(told[0], "ending") {
			t.Errorf("the upstream was told %q", told)
		}
	})
}

func TestDrainBreaksOffReads(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		read := c.request("resources/read", `{"uri":"file:///plan"}`)
		completing := c.request("completion/complete", `{"ref":{"type":"ref/prompt","name":"plan"},"argument":{"name":"a","value":""}}`)
		c.up.conn(0).drop(wire.Tools)
		c.up.conn(0).slow = time.Hour
		listing := c.request("tools/list", "")
		d := r.drain(time.Second)
		d.want(t, drain.Drained{BrokenOff: 3}, time.Second)
		answer := read.wait()
		has(t, answer, "-32603")
		c.refused(answer, policy.OutcomeUnknown)
		has(t, completing.wait(), "-32603", "had to end")
		has(t, listing.wait(), "-32603", "had to end")
	})
}

// A list that is being read as the last call under way comes to its end is answered: a client that
// listed behind another's result would lose its session.
func TestListUnderWayAsADrainEnds(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("read_file")
		up := c.up.next()
		d := r.drain(time.Minute)
		synctest.Wait()
		c.up.conn(0).drop(wire.Tools)
		c.up.conn(0).slow = 300 * time.Millisecond
		listing := c.request("tools/list", "")
		synctest.Wait()
		up.result(ok)
		has(t, call.wait(), `"ok"`)
		d.want(t, drain.Drained{Finished: 1}, 0)
		has(t, listing.wait(), `"tools":[`)
	})
}

// A list that the upstream refuses after the last call of a drain has ended is refused for the
// upstream's reason.
func TestListThatFailsAsADrainEnds(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("read_file")
		up := c.up.next()
		r.drain(time.Minute)
		synctest.Wait()
		c.up.conn(0).drop(wire.Tools)
		c.up.conn(0).slow = 300 * time.Millisecond
		c.up.conn(0).fail = errors.New("boom")
		listing := c.request("tools/list", "")
		synctest.Wait()
		up.result(ok)
		call.wait()
		has(t, listing.wait(), `boom`)
	})
}

// A call that the client has cancelled before is told to the upstream once, and
// has no answer.
func TestDrainOfCancelledCalls(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("read_file")
		up := c.up.next()
		c.cancel(call)
		d := r.drain(time.Second)
		d.want(t, drain.Drained{BrokenOff: 1}, time.Second)
		equal(t, "answer", call.wait(), "")
		equal(t, "cancellations", len(up.cancelled()), 1)
	})
}

func TestDrainOfAQueue(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		first := c.call("write_plan")
		up := c.up.next()
		queued := []*reply{c.call("write_plan"), c.call("write_plan"), c.call("write_plan")}
		d := r.drain(time.Minute)
		for _, q := range queued {
			answer := q.wait()
			c.refused(answer, policy.UpstreamUnavailable)
			has(t, answer, "was not sent", "Nothing was done")
		}
		up.result(ok)
		has(t, first.wait(), `"ok"`)
		d.want(t, drain.Drained{Finished: 4}, 0)
		equal(t, "sent", c.up.count("tools/call write_plan"), 1)
	})
}

// Calls, and sessions, that wait for a connection wait no longer; none is made.
func TestDrainWhileConnecting(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.up.conn(0).fade()
		call := c.call("read_file")
		initializing := r.open().request("initialize", plainHello)
		synctest.Wait()
		d := r.drain(time.Minute)
		d.want(t, drain.Drained{Finished: 2, Refused: 1}, 0)
		c.refused(call.wait(), policy.UpstreamUnavailable)
		has(t, initializing.wait(), "-32603", "is ending")
		equal(t, "dialled", c.up.dialled(), 1)
	}, func(c *proxy.Config, u *server) {
		dial, first := c.Dial, true
		c.Dial = func(ctx context.Context, with bridge.Opening, to wire.Receiver) (bridge.Conn, error) {
			if first {
				first = false
				return dial(ctx, with, to)
			}
			return slowly(dial, time.Hour)(ctx, with, to)
		}
	})
}

// What waits for an initialize that is refused is refused with it.
func TestDrainRefusesWhatWaitsForInitialize(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		initializing := c.request("initialize", plainHello)
		synctest.Wait()
		early := []*reply{c.request("tools/list", ""), c.call("read_file")}
		synctest.Wait()
		r.drain(time.Minute).want(t, drain.Drained{Finished: 3, Refused: 3}, 0)
		for _, one := range append(early, initializing) {
			has(t, one.wait(), "-32603", "is ending", "was not sent")
		}
	}, func(c *proxy.Config, _ *server) { c.Dial = slowly(c.Dial, time.Hour) })
}

// Lists are answered to the end: behind the last answer, where clients still read it, too, and whether or not the proxy has them.
func TestListsAreAnsweredToTheEnd(t *testing.T) {
	for _, mode := range []runs.Mode{runs.Enforce, runs.Shadow} {
		bubble(t, review, func(r *rig) {
			c := r.connect(plainHello)
			call := c.call("read_file")
			up := c.up.next()
			d := r.drain(time.Minute)
			lists := func() {
				t.Helper()
				c.up.conn(0).drop(wire.Tools)
				has(t, c.ask("tools/list", ""), `"result":{"tools":[`)
				has(t, c.ask("prompts/list", ""), `"result":{"prompts":[`)
				has(t, c.ask("resources/list", ""), `"result":{"resources":[`)
			}
			lists()
			up.result(ok)
			has(t, call.wait(), `"ok"`)
			d.want(t, drain.Drained{Finished: 1}, 0)
			lists()
			has(t, c.call("read_file").wait(), "is ending")
		}, func(c *proxy.Config, u *server) {
			c.Mode = mode
			u.auto = func(k *upcall) (string, bool) { // as in shadow it is asked for them
				kind, list := strings.CutSuffix(k.m.Method, "/list")
				return `{"` + kind + `":[]}`, list
			}
		})
	}
}

// declining is a stream that can say that a request is to be made elsewhere.
type declining struct {
	*stream
	declined int
}

func (d *declining) Decline(msg []byte) {
	d.declined++
	d.Answer(msg)
}

func TestLateRequestsAreDeclinedWhereTheyCanBe(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.p.Refuse()
		out := &declining{stream: c.stream("late")}
		c.s.Handle(read(t, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"status"}}`, wire.FromClient), out)
		equal(t, "declined", out.declined, 1)
		has(t, out.answers[0], `"id":9`, "-32603")
		ping := &declining{stream: c.stream("ping")}
		c.s.Handle(read(t, `{"jsonrpc":"2.0","id":9,"method":"ping"}`, wire.FromClient), ping)
		equal(t, "declined", ping.declined, 0)
	})
}

// Calls that come, end and wait while the drain begins are answered, every one.
func TestDrainUnderLoad(t *testing.T) {
	r := newRig(t, review, func(c *proxy.Config, u *server) {
		u.auto = func(*upcall) (string, bool) { return ok, true }
	})
	const clients = 8
	began := make(chan struct{}, clients)
	results := make(chan int)
	for range clients {
		c := r.connect(plainHello)
		go func() {
			for n := 1; ; n++ {
				answer := c.call([]string{"read_file", "status"}[n%2]).wait()
				if n == 50 {
					began <- struct{}{}
				}
				if strings.Contains(answer, "ending") {
					results <- n - 1
					return
				}
			}
		}()
	}
	for range clients {
		<-began
	}
	done := r.p.Drain(context.Background())
	answered := 0
	for range clients {
		answered += <-results
	}
	if done.BrokenOff != 0 {
		t.Errorf("drained %+v", done)
	}
	if sent := r.up.count("tools/call read_file") + r.up.count("tools/call status"); sent != answered {
		t.Errorf("%d calls were sent, %d answered", sent, answered)
	}
	r.p.Close()
}
