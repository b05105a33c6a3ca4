//go:build unix

package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// listened is a subscriptions/listen that a server has acknowledged.
type listened struct {
	*wire.Message
	say  chan string   // goes out on its stream
	cut  chan struct{} // ends it when closed
	gone chan struct{} // closes when it is over
}

// updated is a notification of the subscription.
func (l *listened) updated(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"%s","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s,"x":1}%s}}`, method, l.Bytes(l.ID), params)
}

// listens has the server take subscriptions, and agree to all that is asked for.
func (w *modernWeb) listens() <-chan *listened {
	opened := make(chan *listened, 10)
	w.on("subscriptions/listen", func(rw http.ResponseWriter, r *http.Request, m *wire.Message) {
		l := &listened{m, make(chan string, 10), make(chan struct{}), make(chan struct{})}
		defer close(l.gone)
		answerEvents(rw, l.updated("notifications/subscriptions/acknowledged", `,"notifications":`+string(m.Bytes(m.P.Notifications))))
		opened <- l
		for {
			select {
			case raw := <-l.say:
				answerEvents(rw, raw)
			case <-l.cut:
				return
			case <-r.Context().Done():
				return
			}
		}
	})
	return opened
}

// next waits for the next stream.
func nextListened(t testing.TB, opened <-chan *listened) *listened {
	t.Helper()
	select {
	case l := <-opened:
		return l
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is listened to")
		return nil
	}
}

// TestListenTellsOfChanges of lists, and the connection's own request is not in it.
func TestListenTellsOfChanges(t *testing.T) {
	w := newModernWeb(t)
	opened := w.listens()
	r := newRecorder()
	c := dialEra(t, newServer(t, Config{URL: w.URL, ListTTL: time.Nanosecond}), eras(t, wire.Modern), r, wire.Modern)
	l := nextListened(t, opened)
	if got := string(l.Bytes(l.P.Notifications)); got != `{"toolsListChanged":true}` || l.Era() != wire.Modern {
		t.Error(string(l.Raw))
	}
	eventually(t, func() bool { return c.listening(wire.Tools) })
	list := func() {
		if _, err := c.List(t.Context(), wire.Tools); err != nil {
			t.Fatal(err)
		}
	}
	list()
	eventually(t, func() bool { list(); return c.Cached(wire.Tools) != nil })
	before := w.count("tools/list")
	list()
	l.say <- l.updated("notifications/tools/list_changed", "")
	told := r.next(t, "notifications/tools/list_changed")
	if want := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"x":1}}}`; string(told.Raw) != want || told.tag != nil {
		t.Errorf("told %s of %v", told.Raw, told.tag)
	}
	list()
	if n := w.count("tools/list"); n != before+1 {
		t.Errorf("listed %d times, then %d", before, n)
	}
	c.Close()
	<-l.gone
}

// TestListenToResources opens the next stream before it closes the last.
func TestListenToResources(t *testing.T) {
	w := newModernWeb(t)
	opened := w.listens()
	r := newRecorder()
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), r, wire.Modern)
	first := nextListened(t, opened)
	wants := func(want string, uris ...string) *listened {
		t.Helper()
		if err := c.Listen(uris); err != nil {
			t.Fatal(err)
		}
		l := nextListened(t, opened)
		if got := string(l.Bytes(l.P.Notifications)); got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
		return l
	}
	second := wants(`{"toolsListChanged":true,"resourceSubscriptions":["file:///a","b\"c"]}`, "file:///a", `b"c`)
	<-first.gone
	second.say <- second.updated("notifications/resources/updated", `,"uri":"file:///a"`)
	if told := r.next(t, "notifications/resources/updated"); told.P.URI != "file:///a" || strings.Contains(string(told.Raw), "subscriptionId") {
		t.Error(string(told.Raw))
	}
	if err := c.Listen([]string{"file:///a", `b"c`}); err != nil { // nothing new
		t.Fatal(err)
	}
	wants(`{"toolsListChanged":true}`)
	<-second.gone
	if n := w.count("subscriptions/listen"); n != 3 {
		t.Errorf("%d streams", n)
	}
	c.Close()
	if err := c.Listen(nil); err == nil {
		t.Error("a connection that has ended listens")
	}
}

// TestListenAgain after the stream was lost: what changed meanwhile is supposed to
// have changed.
func TestListenAgain(t *testing.T) {
	w := newModernWeb(t)
	opened := w.listens()
	r := newRecorder()
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), r, wire.Modern)
	l := nextListened(t, opened)
	eventually(t, func() bool { return c.listening(wire.Tools) })
	close(l.cut)
	eventually(t, func() bool { return !c.listening(wire.Tools) })
	nextListened(t, opened)
	r.next(t, "notifications/tools/list_changed")
	if !c.listening(wire.Tools) {
		t.Error("it is told of nothing")
	}
}

// TestListenRefused is not asked for again until something else is wanted.
func TestListenRefused(t *testing.T) {
	w := newModernWeb(t)
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	eventually(t, func() bool { return w.count("subscriptions/listen") == 1 })
	opened := w.listens()
	if c.listening(wire.Tools) {
		t.Error("it is told of what was refused")
	}
	if err := c.Listen([]string{"a"}); err != nil {
		t.Fatal(err)
	}
	nextListened(t, opened)
	eventually(t, func() bool { return c.listening(wire.Tools) })
}

// TestListenKeepsWhatItHas where the server takes no other subscriptions.
func TestListenKeepsWhatItHas(t *testing.T) {
	w := newModernWeb(t)
	opened := w.listens()
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	l := nextListened(t, opened)
	eventually(t, func() bool { return c.listening(wire.Tools) })
	w.fails("subscriptions/listen", 400, wire.CodeInvalidParams, "")
	if err := c.Listen([]string{"too many"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return w.count("subscriptions/listen") == 2 })
	again := w.listens()
	if err := c.Listen([]string{"a"}); err != nil {
		t.Fatal(err)
	}
	nextListened(t, again)
	<-l.gone
}

// TestListenOverStdio tells its subscriptions apart by their ids.
func TestListenOverStdio(t *testing.T) {
	r := newRecorder()
	c := dialEra(t, newServer(t, child("modern")), eras(t, wire.Modern), r, wire.Modern)
	eventually(t, func() bool { return c.listening(wire.Tools) })
	call := func(tool string) {
		t.Helper()
		if m, err := c.Start(modernRequest(t, "tools/call", `"name":"`+tool+`"`), nil).Wait(t.Context()); err != nil || m.Kind != wire.Result {
			t.Fatal(m, err)
		}
	}
	call("change")
	if told := r.next(t, "notifications/tools/list_changed"); strings.Contains(string(told.Raw), "subscriptionId") {
		t.Error(string(told.Raw))
	}
	if err := c.Listen([]string{"file:///a"}); err != nil {
		t.Fatal(err)
	}
	r.next(t, "notifications/tools/list_changed") // it may have gone unheard
	call("update")
	if told := r.next(t, "notifications/resources/updated"); told.P.URI != "file:///a" {
		t.Error(string(told.Raw))
	}
	call("end") // the server ends the subscription
	eventually(t, func() bool { return !c.listening(wire.Tools) })
	eventually(t, func() bool { return c.listening(wire.Tools) })
}
