package streamhttp

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// chatty sends a notification before it answers, "slow" waits for the test,
// "cancelled" has no answer.
func chatty(release chan struct{}) behaviour {
	return func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		switch {
		case m.Kind != wire.Request:
		case m.P.Name == "chatty":
			return pending(func() { to.Send(note(1)); to.Answer(result(m, `"done"`)) })
		case m.P.Name == "slow":
			return pending(func() { to.Send(note(1)); <-release; to.Send(note(2)); to.Answer(result(m, `"done"`)) })
		case m.P.Name == "silent":
			return pending(func() { <-release; to.Answer(result(m, `"done"`)) })
		case m.P.Name == "cancelled":
			return pending(func() { to.Answer(nil) })
		default:
			to.Answer(result(m, `{"a":1,`+"\n"+`"b":2}`))
		}
		return nil
	}
}

func TestAnswers(t *testing.T) {
	r := newRig(t, ServerConfig{}, chatty(nil))
	c := r.begin("2025-06-18")
	t.Run("JSON, byte for byte", func(t *testing.T) {
		p := c.post(ping).want(t, 200, "").wantHeader(t, "Content-Type", typeJSON)
		if want := `{"jsonrpc":"2.0","id":7,"result":{"a":1,` + "\n" + `"b":2}}`; p.body != want || p.ContentLength != int64(len(want)) {
			t.Errorf("got %q, length %d", p.body, p.ContentLength)
		}
	})
	t.Run("notifications and responses are accepted", func(t *testing.T) {
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"result":{}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`,
		} {
			if p := c.post(body).want(t, 202, ""); p.body != "" {
				t.Errorf("a body: %q", p.body)
			}
		}
	})
	t.Run("an event stream where something is sent first", func(t *testing.T) {
		s := c.open(call(1, "chatty")).events()
		s.message(`"data":1`)
		s.message(`"done"`)
		s.end()
		if s.resp.Header.Get("Cache-Control") != "no-cache, no-transform" || s.resp.Header.Get("X-Accel-Buffering") != "no" {
			t.Error(s.resp.Header)
		}
	})
	t.Run("JSON only: nothing is sent", func(t *testing.T) {
		c.post(call(1, "chatty"), "Accept: application/json").want(t, 200, `{"jsonrpc":"2.0","id":1,"result":"done"}`).
			wantHeader(t, "Content-Type", typeJSON)
	})
	t.Run("events only", func(t *testing.T) {
		s := c.open(ping, "Accept: text/event-stream").events()
		s.message(`{"a":1, "b":2}`) // a line break would end the line
		s.end()
	})
	t.Run("cancelled: no answer is due", func(t *testing.T) {
		c.open(call(1, "cancelled")).events().end()
		c.post(call(1, "cancelled"), "Accept: application/json").want(t, 200, `"id":1,"error"`)
	})
	t.Run("a long answer", func(t *testing.T) {
		long := strings.Repeat("x", 3<<20)
		r := newRig(t, ServerConfig{}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
			if m.P.Name == "chatty" {
				to.Send(note(1))
			}
			to.Answer(result(m, `"`+long+`"`))
			return nil
		})
		c := r.begin("2025-06-18")
		if p := c.post(ping); !strings.Contains(p.body, long) || p.ContentLength != int64(len(p.body)) {
			t.Errorf("%d bytes, length %d", len(p.body), p.ContentLength)
		}
		s := c.open(call(1, "chatty")).events()
		s.message(`"data":1`)
		s.message(long)
		s.end()
	})
}

func TestOneConnectionServesManyRequests(t *testing.T) {
	r := newRig(t, ServerConfig{}, chatty(nil))
	c := r.begin("2025-11-25")
	conn := c.connect()
	for range 3 {
		conn.send(post1(ping, c.id)).reply().want(t, 200, "result")
		conn.send(post1(call(1, "chatty"), c.id)).reply().want(t, 200, "done")
		conn.send(post1(`{"jsonrpc":"2.0","method":"x"}`, c.id)).reply().want(t, 202, "")
		conn.send(post1(ping, "Mcp-Session-Id: guess")).reply().want(t, 404, "")
	}
}

func TestLateMessagesAreNotTaken(t *testing.T) {
	streams := make(chan wire.Stream, 1)
	r := newRig(t, ServerConfig{}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		to.Answer(result(m, "1"))
		to.Answer(result(m, "2"))
		if to.Send(note(1)) || to.Listening() {
			t.Error("taken after the answer")
		}
		streams <- to
		return nil
	})
	c := r.begin("2025-06-18")
	c.post(ping).want(t, 200, `"result":1}`)
	s := <-streams
	s.Answer([]byte(`"late"`))
	if s.Send(note(1)) || s.Listening() {
		t.Error("taken after the end")
	}
}

func TestSlowAnswersBecomeEventStreams(t *testing.T) {
	for version, primed := range map[string]bool{"2024-11-05": false, "2025-06-18": false, "2025-11-25": true} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				r := newBubbleRig(t, ServerConfig{}, chatty(release))
				c := r.begin(version)
				begun := time.Now()
				s := c.open(call(1, "silent")).events()
				if waited := time.Since(begun); waited < 2*time.Second || waited > 3*time.Second {
					t.Errorf("opened after %v", waited)
				}
				first := s.next()
				if (first.id != "") != primed || (first.comment == "") != primed || first.data != "" {
					t.Errorf("begins with %+v", first)
				}
				if ev := s.next(); ev.comment != "keep-alive" || time.Since(begun) < 25*time.Second {
					t.Errorf("after %v: %+v", time.Since(begun), ev)
				}
				close(release)
				s.message("done")
				s.end()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // one that takes JSON only waits
		release := make(chan struct{})
		r := newBubbleRig(t, ServerConfig{}, chatty(release))
		c := r.begin("2025-11-25")
		conn := c.open(call(1, "silent"), "Accept: application/json")
		time.Sleep(time.Hour)
		close(release)
		conn.reply().want(t, 200, "done").wantHeader(t, "Content-Type", typeJSON)
	})
}

func TestDisconnectCancelsNothing(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, ServerConfig{}, chatty(release))
	c := r.begin("2025-11-25")
	s := c.open(call(1, "slow")).events()
	last := s.message(`"data":1`).id
	s.Close()
	close(release)
	resumed := c.stream("Last-Event-ID: " + last)
	resumed.message(`"data":2`)
	final := resumed.message("done").id
	resumed.end()

	again := c.stream("Last-Event-ID: " + last) // as often as it likes
	again.message(`"data":2`)
	again.message("done")
	again.end()
	r.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+final)).want(t, 204, "")
	select {
	case <-c.listen:
		t.Error("no GET of the session's own stream was opened")
	default:
	}
}

func TestResumeWhileTheCallGoesOn(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, ServerConfig{}, chatty(release))
	c := r.begin("2025-11-25")
	s := c.open(call(1, "slow")).events()
	prime := s.next()
	if prime.id == "" || prime.data != "" {
		t.Fatalf("begins with %+v", prime)
	}
	s.message(`"data":1`)
	resumed := c.stream("Last-Event-ID: " + prime.id) // the first connection half open still
	resumed.message(`"data":1`)
	close(release)
	resumed.message(`"data":2`)
	resumed.message("done")
	resumed.end()
	s.end() // no second copy
}

func TestForeignAndForgedEventIDs(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	r := newRig(t, ServerConfig{}, chatty(release))
	mine, other := r.begin("2025-11-25"), r.begin("2025-11-25")
	own := other.stream()
	<-other.listen
	other.own.Send(note(99))
	foreign := []string{own.message(`"data":99`).id, other.open(call(1, "slow")).events().message(`"data":1`).id}
	mine.open(call(1, "slow")).events().message(`"data":1`)
	tag, rest, _ := strings.Cut(foreign[1], ".")
	for _, id := range append(foreign, "x", tag, tag+".", tag+".1", tag+".1.", tag+".1.zzzzzzzzzzzzzzzz", "."+rest, mine.tag()+".7."+"1",
		mine.tag()+".1.zz", mine.tag()+".-1.1", mine.tag()+".1.1 x", mine.tag()+".1.1\r\nLast-Event-ID: x") {
		r.do(request("GET", "/mcp", "", mine.id, "Last-Event-ID: "+id)).want(t, 400, "Last-Event-ID")
	}
}

func (c *client) tag() string {
	c.t.Helper()
	s := c.stream()
	defer s.Close()
	<-c.listen
	tag, _, _ := strings.Cut(s.next().id, ".")
	return tag
}

func TestStoreForgetsWithTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newBubbleRig(t, ServerConfig{}, chatty(release))
		c := r.begin("2025-11-25")
		s := c.open(call(1, "slow")).events()
		last := s.message(`"data":1`).id
		s.Close()
		close(release)
		time.Sleep(58 * time.Second)
		c.stream("Last-Event-ID: " + last).message(`"data":2`)
		time.Sleep(5 * time.Second)
		r.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+last)).want(t, 400, "forgotten")
		if ses := r.srv.table.all(nil)[0]; ses.stored != 0 || len(ses.streams) != 0 || ses.over != nil {
			t.Errorf("left: %d bytes, %d streams", ses.stored, len(ses.streams))
		}
	})
}

func TestOwnStream(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-06-18")
	if c.own.Listening() {
		t.Error("nobody listens yet")
	}
	for i := range 3 { // waits for a listener
		if !c.own.Send(note(i)) {
			t.Fatal("not taken")
		}
	}
	s := c.stream()
	<-c.listen
	var last seenEvent
	for i := range 3 {
		last = s.message(fmt.Sprintf(`"data":%d`, i))
	}
	if !c.own.Listening() {
		t.Error("a GET is open")
	}
	s.Close()
	eventually(t, "gone", func() bool { return !c.own.Listening() })
	c.own.Send(note(3))

	plain := c.stream() // what it has not got, once
	plain.message(`"data":3`)
	plain.Close()
	eventually(t, "gone", func() bool { return !c.own.Listening() })
	resumed := c.stream("Last-Event-ID: " + last.id)
	resumed.message(`"data":3`)
	c.own.Send(note(4))
	resumed.message(`"data":4`)
}

func TestOwnStreamIsPrimed(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-11-25")
	s := c.stream()
	prime := s.next()
	s.Close()
	eventually(t, "gone", func() bool { return !c.own.Listening() })
	c.own.Send(note(1))
	c.stream("Last-Event-ID: " + prime.id).message(`"data":1`)
	old := r.begin("2025-06-18")
	if ev := old.stream().next(); ev.id != "" || ev.comment != "ok" {
		t.Errorf("clients before 2025-11-25 take no event without data: %+v", ev)
	}
}

func TestOwnStoreIsBounded(t *testing.T) {
	r := newRig(t, ServerConfig{Store: 100 << 10}, nil)
	c := r.begin("2025-06-18")
	taken := 0
	for c.own.Send(note(taken)) {
		taken++
	}
	if taken < 500 || taken > 1000 {
		t.Errorf("took %d messages", taken)
	}
	s := c.stream()
	for i := range taken { // none was lost that was taken
		s.message(fmt.Sprintf(`"data":%d}`, i))
	}
	if !c.own.Send(note(taken)) {
		t.Error("there is room again")
	}
	s.message(fmt.Sprintf(`"data":%d}`, taken))
}

func TestNeverTwoCopies(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-06-18")
	first := c.stream()
	<-c.listen
	second := c.stream()
	<-c.listen
	c.own.Send(note(1))
	second.message(`"data":1`)
	second.Close() // the older one takes over
	eventually(t, "gone", func() bool {
		ses := r.srv.table.all(nil)[0]
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return len(ses.own.writers) == 1
	})
	c.own.Send(note(2))
	first.message(`"data":2`)
}

func TestGETsAreBounded(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-06-18")
	for range maxGets {
		c.stream()
		<-c.listen
	}
	r.do(request("GET", "/mcp", "", c.id)).want(t, 409, "too many GET")
}

func TestSlowReaderLosesItsStream(t *testing.T) {
	r := newRig(t, ServerConfig{Queue: 1 << 20}, nil)
	c := r.begin("2025-06-18")
	c.stream() // never read
	<-c.listen
	msg := append(append([]byte(`{"jsonrpc":"2.0","method":"x","params":{"a":"`), bytes.Repeat([]byte("x"), 64<<10)...), `"}}`...)
	for range 1000 { // socket buffers take some of it
		if !c.own.Send(msg) || !c.own.Listening() {
			return
		}
	}
	t.Error("64 MB are queued")
}

func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, ServerConfig{}, nil)
		c := r.begin("2025-06-18")
		s := c.stream()
		s.next() // then it stops reading; a pipe has no buffers
		c.own.Send(note(1))
		time.Sleep(29 * time.Second)
		if !c.own.Listening() {
			t.Error("given up too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if c.own.Listening() {
			t.Error("a write may take 30 s")
		}
		c.stream().message(`"data":1`) // it was not lost
	})
}

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, ServerConfig{}, nil)
		c := r.begin("2025-06-18")
		s := c.stream()
		s.next()
		for range 3 {
			begun := time.Now()
			if ev := s.next(); ev.comment != "keep-alive" || time.Since(begun) > 27*time.Second {
				t.Errorf("after %v: %+v", time.Since(begun), ev)
			}
		}
	})
}

func TestBigAnswersOfClientsThatLeftAreDropped(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, ServerConfig{Store: 10 << 10}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() {
			to.Send(note(1))
			<-release
			to.Answer(result(m, `"`+strings.Repeat("x", 20<<10)+`"`))
		})
	})
	c := r.begin("2025-11-25")
	s := c.open(call(1, "big")).events()
	last := s.message(`"data":1`).id
	s.Close()
	eventually(t, "the disconnect is noticed", func() bool {
		ses := r.srv.table.all(nil)[0]
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return len(ses.streams) == 1 && !ses.streams[1].attached()
	})
	close(release)
	eventually(t, "the call's end", func() bool {
		ses := r.srv.table.all(nil)[0]
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return len(ses.over) == 1
	})
	s = c.stream("Last-Event-ID: " + last)
	s.message(`"id":1,"error":{"code":-32603,"message":"the request was answered, but the answer of 2`)
	s.end()
}

// A client that stays gets all of its answer, however little is kept for those who leave.
func TestAnswersWhereNothingIsKept(t *testing.T) {
	r := newRig(t, ServerConfig{Store: 1}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() {
			to.Send(note(1))
			to.Send(note(2))
			to.Answer(result(m, `"`+strings.Repeat("x", 200<<10)+`"`))
		})
	})
	c := r.begin("2025-11-25")
	for id := range 20 {
		s := c.open(call(id+1, "big")).events()
		s.message(`"data":1`)
		s.message(`"data":2`)
		s.message(strings.Repeat("x", 200<<10))
		s.end()
	}
}

func TestBatches(t *testing.T) {
	r := newRig(t, ServerConfig{}, chatty(nil))
	c := r.begin("2025-03-26")
	note := `{"jsonrpc":"2.0","method":"notifications/x"}`
	t.Run("answers in one array, in order", func(t *testing.T) {
		p := c.post(`[`+ping+`,`+note+`,`+call(2, "chatty")+`,`+call(3, "x")+`]`, "Accept: application/json")
		p.want(t, 200, "").wantHeader(t, "Content-Type", typeJSON)
		want := `[{"jsonrpc":"2.0","id":7,"result":{"a":1,` + "\n" + `"b":2}},{"jsonrpc":"2.0","id":2,"result":"done"},{"jsonrpc":"2.0","id":3,"result":{"a":1,` + "\n" + `"b":2}}]`
		if p.body != want {
			t.Errorf("got %s", p.body)
		}
	})
	t.Run("as events where something was sent", func(t *testing.T) {
		s := c.open(` [` + ping + `,` + call(2, "chatty") + `,` + call(3, "x") + `]`).events()
		s.message(`"id":7`)
		s.message(`"data":1`)
		s.message(`"id":2`)
		s.message(`"id":3`)
		s.end()
	})
	t.Run("nothing to answer", func(t *testing.T) { c.post(`[`+note+`,`+note+`]`).want(t, 202, "") })
	t.Run("each member by itself", func(t *testing.T) {
		p := c.post(`[{"jsonrpc":"2.0","id":1,"method":"a","method":"b"},5,` + fmt.Sprintf(initBody, "2025-11-25") + `,` + ping + `]`)
		p.want(t, 200, `"id":1,"error":{"code":-32600`).want(t, 200, `"id":null,"error":{"code":-32600`).
			want(t, 200, "initialize must not").want(t, 200, `"id":7,"result"`)
	})
	t.Run("a member of an era without batches", func(t *testing.T) {
		c.post(`[`+alone("tools/list", "")+`,`+ping+`]`).want(t, 200, `"id":1,"error":{"code":-32600`).want(t, 200, `"id":7,"result"`)
	})
	t.Run("events only", func(t *testing.T) {
		s := c.open(`[`+ping+`]`, "Accept: text/event-stream").events()
		s.message(`[{"jsonrpc"`)
		s.end()
	})
	t.Run("no batch", func(t *testing.T) {
		c.post(`[]`).want(t, 400, "-32600")
		c.post(`[`+ping).want(t, 400, "-32700")
		c.post(`[`+strings.Repeat(ping+`,`, 100)+ping+`]`).want(t, 400, "100")
	})
	if got := c.Version(); got != "2025-03-26" {
		t.Error("version is now", got)
	}
}

// A batch's members run one after the other, each fully.
func TestBatchMembersDoNotOverlap(t *testing.T) {
	var running, most int
	r := newRig(t, ServerConfig{}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		running++ // unguarded: the race detector sees an overlap
		most = max(most, running)
		return pending(func() { running--; to.Answer(result(m, "{}")) })
	})
	c := r.begin("2025-03-26")
	c.post(`[`+strings.Repeat(ping+`,`, 50)+ping+`]`).want(t, 200, "result")
	if most != 1 || running != 0 {
		t.Error(most, running)
	}
}

func TestManyCallersAndListeners(t *testing.T) {
	r := newRig(t, ServerConfig{}, chatty(nil))
	c := r.begin("2025-11-25")
	done := make(chan struct{})
	for i := range 16 {
		go func() {
			defer func() { done <- struct{}{} }()
			conn, err := c.dial()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			k := &client{rig: c.rig, script: c.script, id: c.id}
			for j := range 20 {
				tool := []string{"chatty", "x", "cancelled", "chatty"}[j%4]
				if _, err := io.WriteString(conn, post1(call(i*100+j, tool), k.id)); err != nil {
					t.Error(err)
					return
				}
				c.own.Send(note(j))
				if body := readAny(t, conn); tool == "chatty" && !strings.Contains(body, fmt.Sprintf(`"id":%d,`, i*100+j)) {
					t.Errorf("got %q", body)
				}
			}
		}()
	}
	for range 5 {
		s := c.stream()
		<-c.listen
		s.message("data")
		s.Close()
	}
	for range 16 {
		<-done
	}
}
