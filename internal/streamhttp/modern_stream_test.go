package streamhttp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func TestModernAnswers(t *testing.T) {
	cfg, came := stands(ServerConfig{}, false)
	r := newRig(t, cfg, nil)
	t.Run("JSON, byte for byte", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		(<-came).answer(`{"a":1,` + "\n" + `"b":2}`)
		p := c.reply().want(t, 200, "").wantHeader(t, "Content-Type", typeJSON)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"a":1,` + "\n" + `"b":2}}`; p.body != want || p.ContentLength != int64(len(want)) {
			t.Errorf("got %q, length %d", p.body, p.ContentLength)
		}
	})
	t.Run("in parts", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		s := <-came
		s.out.(wire.ResultStream).AnswerResult([]byte("1"), []byte(`{"tools":[]}`))
		s.end()
		c.reply().want(t, 200, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
	})
	t.Run("events where something is sent first", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		s := <-came
		s.out.Send(note(1))
		e := c.events()
		e.plainEvent(`"data":1`)
		s.out.Send(note(2))
		s.answer(`"done"`)
		e.plainEvent(`"data":2`)
		e.plainEvent(`"done"`)
		e.end()
		if e.resp.Header.Get("Cache-Control") != "no-cache, no-transform" || e.resp.Header.Get("X-Accel-Buffering") != "no" {
			t.Error(e.resp.Header)
		}
		if s.out.Send(note(3)) || s.out.Listening() {
			t.Error("a stream that has ended takes more")
		}
	})
	t.Run("a failure on a stream is an event", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		s := <-came
		s.out.Send(note(1))
		s.out.Fail(wire.CodeMethodNotFound, wire.ErrorAnswer([]byte("1"), wire.CodeMethodNotFound, "no", nil))
		s.end()
		e := c.events()
		e.plainEvent(`"data":1`)
		e.plainEvent(`-32601`)
		e.end()
	})
	t.Run("events only", func(t *testing.T) {
		c := r.connect().send(tool("a", "Accept: text/event-stream"))
		(<-came).answer("{\"a\":1,\n\"b\":2}")
		e := c.events()
		e.plainEvent(`{"a":1, "b":2}`) // a line break would end the line
		e.end()
	})
	t.Run("JSON only: nothing is sent", func(t *testing.T) {
		c := r.connect().send(tool("a", "Accept: application/json"))
		s := <-came
		if s.out.Listening() || s.out.Send(note(1)) {
			t.Error("a notification is taken")
		}
		s.answer(`"done"`)
		c.reply().want(t, 200, `"done"`).wantHeader(t, "Content-Type", typeJSON)
	})
	t.Run("declined", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		s := <-came
		s.out.(wire.DecliningStream).Decline(wire.ErrorAnswer([]byte("1"), wire.CodeInternal, "ending", nil))
		s.end()
		c.reply().want(t, 503, "ending").wantHeader(t, "Retry-After", "1")
	})
	t.Run("answered twice", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		s := <-came
		s.out.Answer(result(s.m, `"first"`))
		s.answer(`"second"`)
		c.reply().want(t, 200, `"first"`)
	})
	t.Run("no answer", func(t *testing.T) {
		c := r.connect().send(tool("a"))
		(<-came).answer("")
		c.reply().want(t, 200, `"id":1,"error"`)
	})
	t.Run("headers", func(t *testing.T) {
		c := r.connect().send(tool("a", "Mcp-Param-Region: eu", "Traceparent: 00-1"))
		s := <-came
		out := s.out.(wire.HeadedStream)
		if out.Header("Traceparent") != "00-1" || strings.Join(out.Headers("Mcp-Param-Region"), " ") != "eu" || out.Headers("Mcp-Param-Other") != nil {
			t.Error("headers are not those that were sent")
		}
		s.answer(`"done"`)
		c.reply()
	})
	t.Run("one after the other on a connection", func(t *testing.T) {
		c := r.connect()
		for i := range 15 {
			c.send(tool(fmt.Sprint("a", i%6)))
			s := <-came
			if name := s.out.(wire.HeadedStream).Header(wire.HeaderName); name != s.m.P.Name || name != fmt.Sprint("a", i%6) {
				t.Errorf("the header names %s, the body %s", name, s.m.P.Name)
			}
			if i%2 == 0 {
				s.out.Send(note(i))
			}
			s.answer(fmt.Sprintf(`"done %d"`, i))
			c.reply().want(t, 200, fmt.Sprintf(`"done %d"`, i))
		}
	})
}

// Whatever does not come for long becomes an event stream, which is never silent
// for long, and loses nothing.
func TestModernPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, came := stands(ServerConfig{Patience: 2 * time.Second, KeepAlive: 20 * time.Second}, false)
		r := newBubbleRig(t, cfg, nil)
		begun := time.Now()
		c := r.connect().send(tool("a"))
		s := <-came
		e := c.events()
		if took := time.Since(begun); took < 2*time.Second || took > 5*time.Second {
			t.Error("an event stream after", took)
		}
		for range 3 {
			if ev := e.next(); ev.comment != "keep-alive" || ev.id != "" {
				t.Errorf("got %+v", ev)
			}
		}
		if took := time.Since(begun); took < 40*time.Second || took > 50*time.Second {
			t.Error("kept alive after", took)
		}
		s.answer(`"done"`)
		e.plainEvent(`"done"`)
		e.end()
	})
}

func TestModernPatienceWithJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, came := stands(ServerConfig{}, false)
		r := newBubbleRig(t, cfg, nil)
		c := r.connect().send(tool("a", "Accept: application/json"))
		s := <-came
		time.Sleep(5 * time.Minute)
		s.answer(`"done"`)
		c.reply().want(t, 200, `"done"`)
	})
}

// A client that closes its response has cancelled the request, whether or not
// anything was sent, and no other one.
func TestModernCancelledByClosing(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		send bool
	}{
		"before anything is sent": {tool("a"), false},
		"one that takes JSON":     {tool("a", "Accept: application/json"), false},
		"on a stream":             {tool("a"), true},
		"one that listens":        {listenPost(), true},
	} {
		for _, detaches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, detaches %t", name, detaches), func(t *testing.T) {
				t.Parallel()
				cfg, came := stands(ServerConfig{}, detaches)
				r := newRig(t, cfg, nil)
				other := r.connect().send(tool("other"))
				staying := <-came
				conn := r.connect().send(c.raw)
				s := <-came
				if c.send {
					s.out.Send(note(1))
					conn.events().next()
				}
				conn.Close()
				<-s.cancelled
				<-s.over
				if staying.times() > 0 {
					t.Error("another request was cancelled")
				}
				staying.answer(`"done"`)
				other.reply().want(t, 200, `"done"`)
				eventually(t, "the request is over", func() bool { return r.srv.posts.count() == 0 })
				if s.times() != 1 {
					t.Errorf("cancelled %d times", s.times())
				}
			})
		}
	}
}

func (l *postList) len() (n int) {
	for p := l.newest; p != nil; p = p.link.older {
		n++
	}
	return n
}

func (e *modernPosts) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.count + e.listens.count + e.all.len()
}

// A request that was answered is cancelled no more.
func TestModernAnsweredIsNotCancelled(t *testing.T) {
	cfg, came := stands(ServerConfig{}, false)
	r := newRig(t, cfg, nil)
	c := r.connect().send(tool("a"))
	s := <-came
	s.answer(`"done"`)
	c.reply().want(t, 200, `"done"`)
	c.Close()
	eventually(t, "the request is over", func() bool { return r.srv.posts.count() == 0 })
	if s.times() != 0 {
		t.Error("cancelled")
	}
}

// A stream whose client does not read is closed, and its request cancelled.
func TestModernSlowReader(t *testing.T) {
	for name, raw := range map[string]string{"a call": tool("a"), "one that listens": listenPost()} {
		t.Run(name, func(t *testing.T) {
			cfg, came := stands(ServerConfig{Queue: 64 << 10}, false)
			r := newRig(t, cfg, nil)
			r.connect().send(raw)
			s := <-came
			long := wire.NotificationMessage("notifications/message", []byte(`{"data":"`+strings.Repeat("x", 32<<10)+`"}`))
			sent := 0
			for s.out.Send(long) {
				if sent++; sent > 10_000 {
					t.Fatal("it takes all")
				}
			}
			<-s.cancelled
			if s.out.Listening() || s.out.Send(note(1)) {
				t.Error("it takes more")
			}
		})
	}
}

// A client that does not read within the time for it is given up.
func TestModernWriteTimeout(t *testing.T) {
	cfg, came := stands(ServerConfig{Queue: 64 << 20}, false)
	r := startHurriedRig(t, NewServer(cfg), 50*time.Millisecond)
	r.connect().send(tool("a"))
	s := <-came
	long := wire.NotificationMessage("notifications/message", []byte(`{"data":"`+strings.Repeat("x", 8<<20)+`"}`))
	for range 3 {
		s.out.Send(long)
	}
	<-s.cancelled
}

func TestListen(t *testing.T) {
	for _, detaches := range []bool{false, true} {
		t.Run(fmt.Sprint("detaches ", detaches), func(t *testing.T) {
			cfg, came := stands(ServerConfig{}, detaches)
			r := newRig(t, cfg, nil)
			c := r.connect().send(listenPost())
			e := c.events()
			e.plainEvent("acknowledged")
			s := <-came
			for i := range 100 {
				s.out.Send(note(i))
				e.plainEvent(fmt.Sprintf(`"data":%d}`, i))
			}
			s.answer(`{"resultType":"complete"}`)
			e.plainEvent(`"resultType":"complete"`)
			e.end()
			c.send(headed(alone("tools/list", ""), "tools/list")) // the connection goes on
			(<-came).answer(`"done"`)
			c.reply().want(t, 200, `"done"`)
		})
	}
}

// A stream that nothing is sent on yet is one at once, and is kept alive.
func TestListenInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		r := newBubbleRig(t, ServerConfig{Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
			return pending(func() { <-over; out.Answer(result(m, "{}")) })
		}}, nil)
		begun := time.Now()
		e := r.connect().send(listenPost()).events()
		for range 3 {
			if ev := e.next(); ev.comment == "" {
				t.Errorf("got %+v", ev)
			}
		}
		if took := time.Since(begun); took < 50*time.Second || took > time.Minute {
			t.Error("two comments more after", took)
		}
		close(over)
		e.plainEvent(`"result"`)
		e.end()
	})
}

// A client that sends its next request early has not gone.
func TestModernPipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, came := stands(ServerConfig{}, false)
		r := newBubbleRig(t, cfg, nil)
		c := r.connect()
		go io.WriteString(c, tool("a", "Accept: application/json")+tool("b", "Accept: application/json"))
		for _, name := range []string{"a", "b"} {
			s := <-came
			time.Sleep(10 * time.Second)
			if s.m.P.Name != name || s.times() > 0 {
				t.Errorf("%s, cancelled %d times", s.m.P.Name, s.times())
			}
			s.answer(`"done"`)
			c.reply().want(t, 200, `"done"`)
		}
	})
}

// What is answered before it waits is no stream that lasts.
func TestListenAnsweredAtOnce(t *testing.T) {
	r := newRig(t, ServerConfig{Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
		if string(m.Bytes(m.P.Notifications)) == "{}" {
			out.(wire.FailingStream).Fail(wire.CodeMethodNotFound, wire.ErrorAnswer([]byte("1"), wire.CodeMethodNotFound, "no", nil))
			return nil
		}
		out.Send(note(1))
		out.Answer(result(m, "{}"))
		return nil
	}}, nil)
	r.do(headed(alone("subscriptions/listen", `"notifications":{}`), "subscriptions/listen")).want(t, 404, "-32601")
	e := r.connect().send(listenPost()).events()
	e.plainEvent(`"data":1`)
	e.plainEvent(`"result"`)
	e.end()
}

func TestFloodOfListenStreams(t *testing.T) {
	cfg, came := stands(ServerConfig{Listens: 3, Requests: 2}, false)
	r := newRig(t, cfg, nil)
	for range 3 {
		r.connect().send(listenPost()).events().plainEvent("acknowledged")
	}
	r.do(listenPost()).want(t, 503, `"id":1,"error"`).wantHeader(t, "Retry-After", "1")
	first := <-came
	c := r.connect().send(tool("a")) // calls are none of them
	<-came
	<-came
	call := <-came
	call.answer(`"done"`)
	c.reply().want(t, 200, `"done"`)
	first.answer("{}")
	eventually(t, "there is room again", func() bool { return r.srv.posts.room(true) })
	r.connect().send(listenPost()).events().plainEvent("acknowledged")
}

func (e *modernPosts) room(listens bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.quotaLocked(&post{listens: listens})
	return q.count < q.limit
}

func TestFloodOfModernRequestsLocksOutItself(t *testing.T) {
	var e modernPosts
	e.init(&ServerConfig{Requests: 10, Listens: 10})
	flood, other := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	var all []*post
	for range 20 {
		if x := (&post{party: party{network: flood}}); e.enter(x) {
			all = append(all, x)
		}
	}
	if len(all) != 5 {
		t.Errorf("one address has %d requests under way", len(all))
	}
	x := &post{party: party{network: other}}
	if !e.enter(x) || !e.enter(&post{party: party{network: flood}, listens: true}) {
		t.Error("others are locked out")
	}
	for _, x := range all {
		e.leave(x)
	}
	e.leave(x)
	listening := e.append(nil)
	if e.requests.count != 0 || len(e.requests.networks) != 0 || len(listening) != 1 || !listening[0].listens || e.all.len() != 1 {
		t.Errorf("left: %+v", e.requests)
	}
	if n := e.takeRefused(); n != 15 {
		t.Errorf("%d refused", n)
	}
}

// Closing cancels what is under way, and gives it the time to be answered.
func TestCloseWithModernRequests(t *testing.T) {
	cfg, came := stands(ServerConfig{}, false)
	r := newRig(t, cfg, nil)
	call := r.connect().send(tool("a"))
	s := <-came
	e := r.connect().send(listenPost()).events()
	e.plainEvent("acknowledged")
	<-came
	if err := r.srv.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s.times() != 1 {
		t.Errorf("cancelled %d times", s.times())
	}
	call.reply().want(t, 200, `"id":1,"error"`)
	e.end()
	r.do(tool("a")).want(t, 503, "")
}

// Over TLS, too, a client is watched while it waits, and its connection goes on.
func TestModernOverTLS(t *testing.T) {
	t.Parallel()
	cfg, came := stands(ServerConfig{}, false)
	srv := NewServer(cfg)
	defer srv.Close(context.Background())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfgTLS, clients := mcptest.TLS(t)
	server := &httpserver.Server{Handler: srv, TLSConfig: cfgTLS}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
	url := "https://" + l.Addr().String()
	for protocol, client := range clients {
		ask := func(ctx context.Context) (string, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/mcp", strings.NewReader(alone("tools/call", `"name":"a"`)))
			if err != nil {
				return "", err
			}
			r.Header = http.Header{"Content-Type": {typeJSON}, "Accept": {typeJSON}, wire.HeaderVersion: {wire.ModernRevision},
				wire.HeaderMethod: {"tools/call"}, wire.HeaderName: {"a"}}
			answer, err := client.Do(r)
			if err != nil {
				return "", err
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			return string(body), err
		}
		for range 2 {
			go func() {
				s := <-came
				<-time.After(1300 * time.Millisecond) // the watcher has come by then
				s.answer(`"done"`)
			}()
			if body, err := ask(t.Context()); err != nil || !strings.Contains(body, `"done"`) {
				t.Errorf("%s: %q, %v", protocol, body, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { s := <-came; cancel(); <-s.cancelled }()
		if body, err := ask(ctx); err == nil {
			t.Errorf("%s: %q", protocol, body)
		}
		eventually(t, "the request is over", func() bool { return srv.posts.count() == 0 })
	}
}
