package bridge

import (
	"encoding/json/v2"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Notifications are those that a subscriptions/listen stream asks for, or gets.
type Notifications struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitzero"`
}

// Wanted reads what a subscriptions/listen asks for.
func Wanted(m *wire.Message) (n Notifications, ok bool) {
	err := json.Unmarshal(m.Bytes(m.P.Notifications), &n, json.MatchCaseInsensitiveNames(false))
	return n, err == nil && m.P.Notifications.Present()
}

// Of is what there is of what is asked for: the lists that the upstream offers, and the
// resources that may be read.
func (n Notifications) Of(offered Offered, readable func(uri string) bool) Notifications {
	lists := &offered.Lists
	got := Notifications{Tools: n.Tools && lists[wire.Tools], Prompts: n.Prompts && lists[wire.Prompts], Resources: n.Resources && lists[wire.Resources]}
	for _, uri := range n.URIs {
		if lists[wire.Resources] && !slices.Contains(got.URIs, uri) && readable(uri) {
			got.URIs = append(got.URIs, uri)
		}
	}
	return got
}

// has reports whether a notification is one of these.
func (n *Notifications) has(m *wire.Message) bool {
	switch m.Method {
	case wire.Tools.Changed():
		return n.Tools
	case wire.Prompts.Changed():
		return n.Prompts
	case wire.Resources.Changed():
		return n.Resources
	case "notifications/resources/updated":
		return slices.Contains(n.URIs, m.P.URI)
	}
	return false
}

// Listeners are subscriptions/listen streams. As a [wire.Stream] they give each message to
// those that asked for its kind. What nobody asked for is not kept: who listens later reads
// the lists first. The zero value has none. They are safe for concurrent use.
type Listeners struct {
	mu  sync.Mutex // guards what follows
	all []*Listener
}

// Listener is one such stream.
type Listener struct {
	out   wire.Stream
	id    []byte // of the request that opened it
	gets  Notifications
	begun chan struct{} // closed when its acknowledgement is out, which comes first
}

// Open adds a stream that gets some notifications, and acknowledges it. acknowledged is false
// where out is no stream of events.
func (ls *Listeners) Open(out wire.Stream, id []byte, gets Notifications) (l *Listener, acknowledged bool) {
	l = &Listener{out, id, gets, make(chan struct{})}
	ls.mu.Lock()
	ls.all = append(ls.all, l)
	ls.mu.Unlock()
	got, _ := json.Marshal(gets)
	params := append(append([]byte(`{"notifications":`), got...), '}')
	acknowledged = out.Send(tagged(wire.Made(wire.NotificationMessage("notifications/subscriptions/acknowledged", params)), id))
	close(l.begun)
	return l, acknowledged
}

// Close has a stream get nothing more.
func (ls *Listeners) Close(l *Listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = slices.DeleteFunc(ls.all, func(other *Listener) bool { return other == l })
}

// Len is how many streams there are, 0 of nil.
func (ls *Listeners) Len() int {
	if ls == nil {
		return 0
	}
	return len(ls.each())
}

func (ls *Listeners) each() []*Listener {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Clone(ls.all)
}

// URIs are the resources whose updates somebody wants.
func (ls *Listeners) URIs() []string {
	var all []string
	for _, l := range ls.each() {
		all = append(all, l.gets.URIs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Send implements wire.Stream.
func (ls *Listeners) Send(raw []byte) bool {
	m := wire.Made(raw)
	if m == nil || m.Kind != wire.Notification {
		return false // nobody is asked on these streams
	}
	for _, l := range ls.each() {
		if l.gets.has(m) {
			<-l.begun
			l.out.Send(tagged(m, l.id))
		}
	}
	return true
}

// Answer implements wire.Stream: nobody asks on these streams.
func (*Listeners) Answer([]byte) {}

// Listening implements wire.Stream.
func (*Listeners) Listening() bool { return true }

// tagged is a notification with the id of the request that opened its stream.
func tagged(m *wire.Message, id []byte) []byte {
	names, values := []string{wire.MetaSubscription}, [][]byte{id}
	if !m.Params.Present() {
		params := append(append([]byte(`{"_meta":`), wire.Object(names, values)...), '}')
		return wire.NotificationMessage(m.Method, params)
	}
	a := wire.Amend(m.Raw, m.Params)
	a.SetMeta(m.P.Meta, names, values)
	return a.Bytes()
}

// Unlistened is the result of a stream that the server ends, which says that nothing was
// lost (2026-07-28, schema, SubscriptionsListenResult).
func Unlistened(id []byte) []byte {
	return append(append([]byte(`{"resultType":"complete","_meta":{"`+wire.MetaSubscription+`":`), id...), "}}"...)
}
