//go:build unix

package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// scripted is a link whose answers a test gives.
type scripted struct {
	conn  *Conn
	asked chan *wire.Message
	told  chan string
	mute  bool
}

func (l *scripted) open(context.Context) error { return nil }
func (l *scripted) start(k *call) {
	m, err := wire.Read(k.raw, wire.FromUpstream)
	if err != nil {
		panic(err)
	}
	l.asked <- m
}
func (l *scripted) wait(ctx context.Context, k *call) outcome { return k.await(ctx) }
func (l *scripted) notify(raw []byte) error                   { l.told <- string(raw); return nil }
func (l *scripted) negotiated(wire.Era, string)               {}
func (l *scripted) close()                                    {}
func (l *scripted) listening() bool                           { return !l.mute }
func (l *scripted) streams() bool                             { return false }

// listRig is a connection over a scripted link.
type listRig struct {
	*Conn
	link *scripted
	recv *recorder
}

func newListRig(t *testing.T, capabilities string, cfg Config) *listRig {
	t.Helper()
	cfg.defaults()
	s := &Server{cfg: cfg, conns: make(map[*Conn]struct{})}
	rig := &listRig{recv: newRecorder()}
	rig.Conn = newConn(s, rig.recv)
	if err := s.admit(t.Context(), rig.Conn); err != nil {
		t.Fatal(err)
	}
	close(rig.dialled)
	rig.link = &scripted{conn: rig.Conn, asked: make(chan *wire.Message, 10), told: make(chan string, 10)}
	rig.Conn.link = rig.link
	said, err := readIntroduction(read(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":`+capabilities+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	rig.caps = said.capabilities()
	t.Cleanup(s.Close)
	return rig
}

// page answers the next request with a page.
func (r *listRig) page(t *testing.T, cursor, result string) {
	t.Helper()
	m := <-r.link.asked
	if m.P.Cursor != cursor {
		t.Errorf("asked for %q, want %q", m.P.Cursor, cursor)
	}
	r.receive([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.Bytes(m.ID), result)), nil)
}

// names lists on a goroutine and returns the names or the error.
func (r *listRig) names(kind wire.ListKind) <-chan string {
	out := make(chan string, 1)
	go func() {
		l, err := r.List(context.Background(), kind)
		if err != nil {
			out <- "error: " + err.Error()
			return
		}
		var names []string
		for _, item := range l.Items {
			names = append(names, item.Name)
		}
		out <- strings.Join(names, " ")
	}()
	return out
}

func (r *listRig) expect(t *testing.T, got <-chan string, want string) {
	t.Helper()
	select {
	case text := <-got:
		if text != want && !(strings.HasPrefix(want, "error: ") && strings.Contains(text, want[7:])) {
			t.Errorf("%q, want %q", text, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no list; want %q", want)
	}
}

const changing = `{"tools":{"listChanged":true},"resources":{"listChanged":true},"prompts":{"listChanged":true}}`

func TestListPagesAndCache(t *testing.T) {
	r := newListRig(t, changing, Config{})
	if r.Cached(wire.Tools) != nil {
		t.Error("cached before it was read")
	}
	got := r.names(wire.Tools)
	r.page(t, "", `{"tools":[{"name":"a"}],"nextCursor":"2\u0022"}`)
	r.page(t, `2"`, `{"tools":[{"name":"b"}],"nextCursor":""}`)
	r.page(t, "", `{"tools":[{"name":"c"}]}`)
	r.expect(t, got, "a b c")
	r.expect(t, r.names(wire.Tools), "a b c") // without asking
	if r.Cached(wire.Tools) == nil {
		t.Error("not cached")
	}
}

func TestListWithoutCapability(t *testing.T) {
	r := newListRig(t, `{"tools":null}`, Config{})
	for kind := range wire.Templates + 1 {
		l, err := r.List(t.Context(), kind)
		if err != nil || len(l.Items) != 0 || r.Cached(kind) != l {
			t.Error(kind, l, err)
		}
		if got := string(l.Result(nil)); got != `{"`+kind.String()+`":[]}` {
			t.Error(got)
		}
	}
	if len(r.link.asked) != 0 {
		t.Error("the upstream was asked")
	}
}

func TestListRepeatedCursor(t *testing.T) {
	r := newListRig(t, changing, Config{})
	got := r.names(wire.Prompts)
	r.page(t, "", `{"prompts":[],"nextCursor":"x"}`)
	r.page(t, "x", `{"prompts":[],"nextCursor":"\u0078"}`)
	r.expect(t, got, "error: same cursor twice")
}

func TestListBounds(t *testing.T) {
	r := newListRig(t, changing, Config{MaxPages: 3, MaxListBytes: 1000})
	got := r.names(wire.Tools)
	for i := range 3 {
		cursor := ""
		if i > 0 {
			cursor = fmt.Sprint(i)
		}
		r.page(t, cursor, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, i+1))
	}
	r.expect(t, got, "error: more than 3 pages")
	got = r.names(wire.Tools)
	r.page(t, "", `{"tools":[{"name":"`+strings.Repeat("x", 1000)+`"}]}`)
	r.expect(t, got, "error: more than 1000 bytes")
}

func TestListErrors(t *testing.T) {
	r := newListRig(t, changing, Config{})
	for _, kind := range []wire.ListKind{wire.Tools, wire.Templates} {
		got := r.names(kind)
		m := <-r.link.asked
		r.receive(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, "no", nil), nil)
		if kind == wire.Templates {
			r.expect(t, got, "") // a server without templates
			continue
		}
		r.expect(t, got, "error: error -32601")
	}
	got := r.names(wire.Tools)
	r.page(t, "", `{"prompts":[]}`)
	r.expect(t, got, `error: "tools" is missing`)
	got = r.names(wire.Tools) // an error is not kept
	r.page(t, "", `{"tools":[]}`)
	r.expect(t, got, "")
}

// Callers at the same time share one fetch; one that gives up leaves it to the
// others.
func TestListSingleFlight(t *testing.T) {
	r := newListRig(t, changing, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := r.List(ctx, wire.Tools); gaveUp <- err }()
	m := <-r.link.asked
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if l, err := r.List(t.Context(), wire.Tools); err != nil || !l.Has("a") {
				t.Error(l, err)
			}
		})
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.receive(wire.ResultAnswer(m.Bytes(m.ID), []byte(`{"tools":[{"name":"a"}]}`)), nil)
	wg.Wait()
	if len(r.link.asked) != 0 {
		t.Error("asked twice")
	}
}

// A list that is never answered fails, also for those who wait for it because the
// list has changed since, and is asked for again.
func TestListUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newListRig(t, changing, Config{PageTimeout: 10 * time.Second})
		before := r.names(wire.Tools)
		<-r.link.asked
		r.receive([]byte(toolsChanged), nil)
		after := r.names(wire.Tools)
		r.expect(t, before, "error: no answer to tools/list in 10s")
		if told := <-r.link.told; !strings.Contains(told, "notifications/cancelled") {
			t.Error("told", told)
		}
		r.page(t, "", `{"tools":[{"name":"a"}]}`)
		r.expect(t, after, "a")
	})
}

const toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// The snapshot is dropped before the receiver is told.
func TestListChanged(t *testing.T) {
	r := newListRig(t, changing, Config{})
	got := r.names(wire.Tools)
	r.page(t, "", `{"tools":[{"name":"old"}]}`)
	r.expect(t, got, "old")
	r.recv.before = func(*wire.Message) {
		if r.Cached(wire.Tools) != nil {
			t.Error("told before the list was dropped")
		}
	}
	r.receive([]byte(toolsChanged), nil)
	r.recv.next(t, "notifications/tools/list_changed")
	got = r.names(wire.Tools)
	r.page(t, "", `{"tools":[{"name":"new"}]}`)
	r.expect(t, got, "new")
}

// A fetch that a change overtakes is not kept, and no later caller gets it.
func TestListStaleFetch(t *testing.T) {
	r := newListRig(t, changing, Config{})
	before := r.names(wire.Tools)
	m := <-r.link.asked
	r.receive([]byte(toolsChanged), nil)
	after := r.names(wire.Tools)
	r.receive(wire.ResultAnswer(m.Bytes(m.ID), []byte(`{"tools":[{"name":"old"}]}`)), nil)
	r.expect(t, before, "old")
	r.page(t, "", `{"tools":[{"name":"new"}]}`)
	r.expect(t, after, "new")
	if l := r.Cached(wire.Tools); l == nil || !l.Has("new") {
		t.Error("cached:", l)
	}
}

// A change between the answer and its being kept counts as well.
func TestListChangedAfterAnswer(t *testing.T) {
	r := newListRig(t, changing, Config{})
	for range 200 {
		got := r.names(wire.Tools)
		r.page(t, "", `{"tools":[{"name":"old"}]}`)
		r.receive([]byte(toolsChanged), nil)
		r.expect(t, got, "old")
		if r.Cached(wire.Tools) != nil {
			t.Fatal("a list from before the change is kept")
		}
	}
}

func TestListResourcesChangedDropsTemplates(t *testing.T) {
	r := newListRig(t, changing, Config{})
	got := r.names(wire.Templates)
	r.page(t, "", `{"resourceTemplates":[{"uriTemplate":"a{b}"}]}`)
	r.expect(t, got, "a{b}")
	r.receive([]byte(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`), nil)
	if r.Cached(wire.Templates) != nil {
		t.Error("kept")
	}
}

// Without the promise of list_changed, or without a way to tell of it, a list is
// read again after a while.
func TestListTTL(t *testing.T) {
	for capabilities, mute := range map[string]bool{`{"tools":{}}`: false, changing: true} {
		r := newListRig(t, capabilities, Config{ListTTL: time.Hour})
		r.link.mute = mute
		got := r.names(wire.Tools)
		r.page(t, "", `{"tools":[{"name":"a"}]}`)
		r.expect(t, got, "a")
		if r.Cached(wire.Tools) == nil {
			t.Error("not cached")
		}
		aged := *r.lists[wire.Tools].kept.Load()
		aged.read = time.Now().Add(-2 * time.Hour)
		r.lists[wire.Tools].kept.Store(&aged)
		if r.Cached(wire.Tools) != nil {
			t.Error("too old")
		}
		got = r.names(wire.Tools)
		r.page(t, "", `{"tools":[{"name":"b"}]}`)
		r.expect(t, got, "b")
	}
}

// TestListTTLOfPages is how long a list is kept.
func TestListTTLOfPages(t *testing.T) {
	page := func(ttl string) *wire.Message {
		if ttl != "" {
			ttl = `,"ttlMs":` + ttl
		}
		return read(t, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]`+ttl+`}}`)
	}
	for _, test := range []struct {
		ttls []string
		want time.Duration
	}{
		{[]string{""}, 0}, {[]string{"0"}, 0}, {[]string{"-5"}, 0}, {[]string{`"9"`}, 0},
		{[]string{"5000"}, 5 * time.Second}, {[]string{"5"}, time.Second}, {[]string{"1e300"}, maxTTL},
		{[]string{"5000", "3000"}, 3 * time.Second}, {[]string{"5000", "0"}, 0}, {[]string{"", "5000"}, 0},
	} {
		var pages []*wire.Message
		for _, ttl := range test.ttls {
			pages = append(pages, page(ttl))
		}
		if got := ttlOf(pages); got != test.want {
			t.Errorf("%v is kept for %s, want %s", test.ttls, got, test.want)
		}
	}
}

// When the session's own stream was down, a change may have gone unheard.
func TestListDroppedOnReopening(t *testing.T) {
	w := newWeb(t)
	c := dial(t, newServer(t, Config{URL: w.URL}), newRecorder())
	l := c.link.(*httpLink)
	eventually(t, l.listening)
	if _, err := c.List(t.Context(), wire.Tools); err != nil || c.Cached(wire.Tools) == nil {
		t.Fatal(err)
	}
	w.CloseClientConnections()
	eventually(t, func() bool { return c.Cached(wire.Tools) == nil })
}

func TestListEndsWithConnection(t *testing.T) {
	r := newListRig(t, changing, Config{})
	got := r.names(wire.Tools)
	<-r.link.asked
	r.Close()
	r.expect(t, got, "error: closed")
	r.expect(t, r.names(wire.Tools), "error: closed")
}

// The real thing: a child whose list changes.
func TestListOfProcess(t *testing.T) {
	c := dial(t, newServer(t, child("server")), newRecorder())
	first, err := c.List(t.Context(), wire.Tools)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.List(t.Context(), wire.Tools); again != first {
		t.Error("asked again")
	}
	mustCall(t, c, "changed")
	second, err := c.List(t.Context(), wire.Tools)
	if err != nil || second.Digest == first.Digest {
		t.Error(err, "the old list")
	}
}
