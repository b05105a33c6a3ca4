package surface

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Notifier holds a session's changed lists, as a set of bits, until they are
// sent. Package notify has one.
type Notifier interface {
	Mark(bits uint8) // never blocks
	Take() uint8
	Flush()
}

// Hello is what introductions have settled for a session. It does not change.
type Hello struct {
	Version string // of the protocol
	Client  string // clientInfo.name
	Release string // clientInfo.version, escaped and cut
	bridge.Offered
	Surface             Surface
	Annotate            Annotate
	May                 policy.UpstreamMay // what the client can be asked
	bridge.Introduction                    // as a client with a session has introduced itself; zero: it has not
	From                *wire.Message      // of a run's session: what the upstream said of itself
	Server              []byte             // likewise: how the upstream introduces itself; nil: it does not

	Operations observe.Operations // where the session's are measured; nil: nowhere
	Begun      time.Duration      // as deadline.Now
}

// Static reports whether the client is shown the static surface.
func (h *Hello) Static() bool { return h != nil && h.Surface == Static }

// ServerInfo is how the upstream introduces itself, nil if it does not.
func (h *Hello) ServerInfo() []byte {
	if h == nil {
		return nil
	}
	return h.Server
}

// Session is one whose clients are shown lists.
type Session interface {
	// Where is where its run stands.
	Where() run.Snapshot
	// Live is its connection to the upstream, nil if there is none.
	Live() *bridge.Upstream
	// OwnTools are the proxy's own for whoever asks, beside those of the upstream; nil: none.
	OwnTools(at run.Snapshot, static bool, asks wire.Principal) *catalogue.Own
	// Own is its stream for what belongs to no request.
	Own() wire.Stream
	// About is what a line of the log says, with whose session it is where there are several.
	About(pairs ...any) []any
}

// Shown is what the client of a session, or those of a run's, are shown of lists. It is safe for
// concurrent use.
type Shown struct {
	*Source
	Hello   atomic.Pointer[Hello] // nil: nothing is settled yet
	Of      Session
	Changed Notifier
	Client  bridge.Client // how the clients speak
	newest  atomic.Pointer[guard.Who]

	mu    sync.Mutex // guards what follows
	lists [3]shown   // by wire.ListKind
}

// shown is what a session's client knows of a list, and what is done to keep it up to date.
type shown struct {
	view      catalogue.View // that it was shown last; zero: none, or not by the proxy
	told      int32          // how often it was told of a change since it asked
	asked     bool           // for the list, once or more often
	comparing bool           // with what the upstream offers now
	again     bool           // once that is done
	advised   bool           // to try the static surface, in the log
}

// Listed are the kinds of lists that a policy filters.
var Listed = [...]wire.ListKind{wire.Tools, wire.Resources, wire.Prompts}

// ListChanged tells of which list a notification says that it has changed.
func ListChanged(method string) (k wire.ListKind, ok bool) {
	for _, k := range Listed {
		if method == k.Changed() {
			return k, true
		}
	}
	return 0, false
}

// Shows notes what the client is shown that asks for a list; the zero View where that is not
// known.
func (s *Shown) Shows(k wire.ListKind, v catalogue.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.lists[k]
	l.view, l.asked, l.told = v, true, 0
}

// Asked notes on whose behalf the newest request of a client's session comes, and returns that; nil: nobody is known.
// A client that is shown other lists since is told.
func (s *Shown) Asked(who *guard.Who) *guard.Who {
	was := s.newest.Load()
	if was == who {
		return who
	}
	s.newest.Store(who)
	if h := s.Hello.Load(); h != nil {
		if from, to := s.Of.Where().As(was), s.Of.Where().As(who); from != to && !was.Equal(who) {
			s.Changed.Mark(s.differ(s.look(from, h.Static(), wire.Principal{}), s.look(to, h.Static(), wire.Principal{})))
		}
	}
	return who
}

// Audience is whom lists that change are compared for: the client of a session, as its newest request says, and anyone
// of a run's.
func (s *Shown) Audience() *guard.Who {
	if s.Client.Stateless() {
		return policy.Anyone
	}
	return s.Asker()
}

// Asker is on whose behalf the client of a session asks, as its newest request says. It is nil of a run's session, each
// of whose requests says that for itself, and where nobody is known.
func (s *Shown) Asker() *guard.Who { return s.newest.Load() }

// Last returns what the client was shown last.
func (s *Shown) Last(k wire.ListKind) catalogue.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists[k].view
}

// Show returns the result of a list request of whoever asks, and remembers what it was shown.
func (s *Shown) Show(k wire.ListKind, v catalogue.View, asks wire.Principal, who *guard.Who) []byte {
	s.Shows(k, v)
	return s.rendered(v, s.look(s.Of.Where().As(who), s.Hello.Load().Static(), asks))
}

// look is how lists look in a snapshot of the session's run.
func (s *Shown) look(at run.Snapshot, static bool, asks wire.Principal) catalogue.Look {
	return catalogue.Look{Snapshot: at, Pins: s.Pins.Load(), Own: s.Of.OwnTools(at, static, asks), Static: static}
}

// looks is how lists look in a snapshot to a client, whoever asks.
func (s *Shown) looks(at run.Snapshot) catalogue.Look {
	return s.look(at.As(s.Audience()), s.Hello.Load().Static(), wire.Principal{})
}

// rendered is the result of a list request, as the session's clients want it.
func (s *Shown) rendered(v catalogue.View, l catalogue.Look) []byte { return s.List(v, l, s.finish()) }

// finish makes a list of the proxy's one that the session's clients want; nil: it is.
func (s *Shown) finish() func([]byte) []byte {
	if !s.Client.Stateless() {
		return nil
	}
	return s.Lasting
}

// listTTL is how long a client may keep a list on the static surface: it changes when the policy or the
// upstream's own lists do, which are read again after as long; on the dynamic one with every step.
const listTTL = 30 * time.Second

// Lasting is a result of the proxy's own that may be kept, as the session's clients
// read it.
func (s *Shown) Lasting(result []byte) []byte {
	h, fresh := s.Hello.Load(), "0"
	if h.Static() {
		fresh = strconv.Itoa(int(listTTL / time.Millisecond))
	}
	return s.Client.Result(result, h.ServerInfo(), fresh)
}

// AtHand returns the view of a kind if that needs no request.
func (s *Shown) AtHand(k wire.ListKind) (v catalogue.View, ok bool) {
	if conn := s.Of.Live(); conn != nil {
		return s.cached(conn, k)
	}
	return v, false
}

func (s *Shown) cached(conn *bridge.Upstream, k wire.ListKind) (v catalogue.View, ok bool) {
	if v.List = conn.Cached(k); v.List == nil {
		return v, false
	}
	if k == wire.Resources && v.LacksTemplates(s.Of.Where().InForce()) {
		v.Templates = conn.Cached(wire.Templates)
		return v, v.Templates != nil
	}
	return v, true
}

// Fetch returns the view of a kind, from the upstream if need be.
func (s *Shown) Fetch(conn *bridge.Upstream, k wire.ListKind) (catalogue.View, error) {
	ctx, stop := s.Reading()
	defer stop()
	return s.fetchUntil(ctx, conn, k)
}

func (s *Shown) fetchUntil(ctx context.Context, conn *bridge.Upstream, k wire.ListKind) (v catalogue.View, err error) {
	if v.List, err = conn.List(ctx, k); err != nil {
		return v, err
	}
	if n := v.List.Unnamed; n > 0 {
		s.Log.Warn("items without a single name are hidden", "list", k.String(), "count", n)
	}
	if k == wire.Resources && v.LacksTemplates(s.Of.Where().InForce()) {
		v.Templates, err = conn.List(ctx, wire.Templates)
	}
	if err == nil {
		s.Found(v)
	}
	return v, err
}

// AllAtHand reports whether all that a refusal names needs no request.
func (s *Shown) AllAtHand(conn *bridge.Upstream) bool {
	h := s.Hello.Load()
	for _, k := range Listed {
		if !h.Lists[k] {
			continue
		}
		if _, ok := s.cached(conn, k); !ok {
			return false
		}
	}
	return true
}

// FetchAll gets what a refusal or an annotation names.
func (s *Shown) FetchAll(ctx context.Context, conn *bridge.Upstream) {
	h := s.Hello.Load()
	for _, k := range Listed {
		if h.Lists[k] {
			if _, err := s.fetchUntil(ctx, conn, k); err != nil {
				s.Log.Warn("listing what could be named", "list", k.String(), "error", err)
			}
		}
	}
}

// LastKnown returns the view of a kind without waiting: the one at hand, or else
// the one that the client was shown last. The list is nil where there is neither.
func (s *Shown) LastKnown(k wire.ListKind) catalogue.View {
	if v, ok := s.AtHand(k); ok {
		return v
	}
	return s.Last(k)
}

// Names returns what is listed and allowed in a snapshot, in the upstream's order;
// by the policy alone where no list is known.
func (s *Shown) Names(at run.Snapshot, k policy.Kind) []string {
	return s.look(at, false, wire.Principal{}).Names(k, s.LastKnown(ListOf(k)))
}

// ListOf is the list of a kind of names.
func ListOf(k policy.Kind) wire.ListKind {
	switch k {
	case policy.Resource:
		return wire.Resources
	case policy.Prompt:
		return wire.Prompts
	}
	return wire.Tools
}

// HasOutputSchema reports whether a tool has one in what the upstream lists now,
// or in what the client was shown last: that is what it goes by.
func (s *Shown) HasOutputSchema(tool string) bool {
	const key = "outputSchema"
	if handle.Own(tool) || s.Last(wire.Tools).List.Member(tool, key) != nil {
		return true
	}
	conn := s.Of.Live()
	return conn != nil && conn.Cached(wire.Tools).Member(tool, key) != nil
}

// What follows is for lists that change.

// bit is a list's bit in a Notifier's set.
func bit(k wire.ListKind) uint8 { return 1 << k }

// Moved marks the lists of which other bytes are shown since shifts.
func (s *Shown) Moved(moved run.Shifts) { s.Changed.Mark(s.differing(moved)) }

// AllChanged marks all lists that the client knows of: nobody knows what it was shown.
func (s *Shown) AllChanged() {
	h := s.Hello.Load()
	if h == nil || h.Static() {
		return
	}
	for _, k := range Listed {
		if h.Lists[k] {
			s.Changed.Mark(bit(k))
		}
	}
}

// Repinned marks the lists of which other bytes are shown than by other pins.
func (s *Shown) Repinned(was *catalogue.Pins) {
	now := s.looks(s.Of.Where())
	before := now
	before.Pins = was
	s.Changed.Mark(s.differ(before, now))
}

// Tell tells the client on a stream which lists changed, with shifts or before. What does not go out
// stays marked.
func (s *Shown) Tell(out wire.Stream, moved run.Shifts) {
	s.Changed.Mark(s.send(out, s.Changed.Take()|s.differing(moved)))
}

// TellOwn is Tell on the session's own stream, before what is sent to it next.
func (s *Shown) TellOwn(moved run.Shifts) {
	if s.Of.Own().Listening() {
		s.Tell(s.Of.Own(), moved)
		return
	}
	s.Moved(moved)
}

// differing returns the lists of which other bytes are shown since shifts.
func (s *Shown) differing(moved run.Shifts) (bits uint8) {
	for _, m := range moved {
		if m.From != m.To {
			bits |= s.differ(s.looks(m.From), s.looks(m.To))
		}
	}
	return bits
}

// differ are the lists that look otherwise than before, going by what is at hand, or else
// by what the client was shown last.
func (s *Shown) differ(from, to catalogue.Look) (bits uint8) {
	h := s.Hello.Load()
	if h == nil {
		return 0
	}
	for _, k := range Listed {
		own := k == wire.Tools && (from.Own != nil || to.Own != nil)
		if (h.Lists[k] || own) && s.Differ(k, s.LastKnown, from, to, s.finish()) {
			bits |= bit(k)
		}
	}
	return bits
}

// SendOwn sends changed lists on the session's own stream. It reports false
// where none went out.
func (s *Shown) SendOwn(bits uint8) bool {
	if !s.Of.Own().Listening() {
		return false
	}
	rest := s.send(s.Of.Own(), bits)
	if rest != bits {
		s.Changed.Mark(rest)
	}
	return rest != bits
}

// send tells the client of changed lists, and returns those that did not
// go out: none is told of twice.
func (s *Shown) send(out wire.Stream, bits uint8) (rest uint8) {
	for _, k := range Listed {
		switch {
		case bits&bit(k) == 0:
		case out.Send(changedMessages[k]):
			s.told(k)
		default:
			rest |= bit(k)
		}
	}
	return rest
}

var changedMessages = [...][]byte{
	wire.Tools:     wire.NotificationMessage(wire.Tools.Changed(), nil),
	wire.Resources: wire.NotificationMessage(wire.Resources.Changed(), nil),
	wire.Prompts:   wire.NotificationMessage(wire.Prompts.Changed(), nil),
}

// patience is how many times a client is told of a change, without listing in
// between, until the log gives advice. Of a list that it never asked for it need not.
const patience = 3

func (s *Shown) told(k wire.ListKind) {
	s.mu.Lock()
	l := &s.lists[k]
	l.told++
	warn := l.asked && l.told >= patience && !s.lists[wire.Tools].advised
	s.lists[wire.Tools].advised = s.lists[wire.Tools].advised || warn
	s.mu.Unlock()
	if warn {
		s.Log.Warn("the client does not list again when it is told that a list changed; try --surface static",
			s.Of.About("client", wire.Clip(s.Hello.Load().Client), "list", k.String())...)
	}
}

// Compare compares what the client was shown with what the upstream offers now, on a goroutine.
func (s *Shown) Compare(conn *bridge.Upstream, k wire.ListKind) {
	s.mu.Lock()
	l := &s.lists[k]
	l.again = l.comparing
	l.comparing = true
	begin := !l.again
	s.mu.Unlock()
	if begin {
		s.Go(func() { s.refresh(conn, k) })
	}
}

// CompareAll compares all that the client was shown: the connection is another.
func (s *Shown) CompareAll(conn *bridge.Upstream) {
	for _, k := range Listed {
		if s.Last(k).List != nil {
			s.Compare(conn, k)
		}
	}
}

func (s *Shown) refresh(conn *bridge.Upstream, k wire.ListKind) {
	for more := true; more; {
		s.compare(conn, k)
		s.mu.Lock()
		l := &s.lists[k]
		more = l.again
		l.again, l.comparing = false, more
		s.mu.Unlock()
	}
}

// compare marks a list whose shown bytes differ from those shown last. To a
// client that has not listed yet the change goes on as it came.
func (s *Shown) compare(conn *bridge.Upstream, k wire.ListKind) {
	last := s.Last(k)
	v, err := s.Fetch(conn, k)
	if err != nil {
		s.Log.Debug("listing again after a change upstream", "list", k.String(), "error", err)
	}
	at := s.Of.Where()
	if at.Shadow { // what the upstream said of it has gone on as it came
		return
	}
	l := s.looks(at)
	if err != nil || last.List == nil || !bytes.Equal(s.rendered(last, l), s.rendered(v, l)) {
		s.Changed.Mark(bit(k))
	}
}
