// Package resume keeps what a client with a session has introduced itself with, and what it has asked to be told of, so
// that its session goes on when the proxy has been started anew: what it said then is said again on its behalf.
package resume

import (
	"encoding/json/v2"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Store is where sessions are kept.
type Store interface {
	// KeepSession keeps what is known of a session in place of what was, and returns how that is waited for; nil
	// forgets it.
	KeepSession(id string, text []byte) (wait func() error, err error)
	// RestoreSession is KeepSession for what undoes another: it is done, and not waited for, also where the store cannot be used.
	RestoreSession(id string, text []byte)
	// Left says that a session is not here any more, which is kept.
	Left(id string)
}

// Kept is what is kept of a session.
type Kept struct {
	Owner      string   `json:"owner"`                  // who alone goes on with it
	Initialize string   `json:"initialize"`             // the request
	Level      string   `json:"level,omitzero"`         // the last logging/setLevel
	Subscribed []string `json:"subscriptions,omitzero"` // the URIs
}

func (k *Kept) size() (n int) {
	for _, uri := range k.Subscribed {
		n += len(uri)
	}
	return n + len(k.Initialize) + len(k.Level)
}

// maxKept is how many bytes are kept of one session: of what is beyond it is not told again.
const maxKept = 512 << 10

// Session is a session that is kept. It is a [wire.WitnessSession].
type Session struct {
	wire.Session
	id    string
	cfg   Config
	never atomic.Bool // it has not begun: it could not be kept

	ending sync.Mutex // is held by who has it forgotten and waits for that

	mu        sync.Mutex // guards what follows; what is handed over is handed over with it held, so that the last of it is kept
	kept      Kept
	forgotten bool // what is kept is to be removed, and nothing is kept any more
	closed    bool
}

// Config is what sessions are kept with.
type Config struct {
	Store  Store
	Shared bool        // other processes go on with what is kept: a session that is not has not begun
	Stays  func() bool // when a session ends, it is kept: the proxy ends
	Log    hclog.Logger

	// Others reports whether something of a session was not kept since that is another process's by now, and Elsewhere is
	// where its requests are served then: see [wire.MovingStream]. nil: no other process has any.
	Others    func(err error) bool
	Elsewhere error
}

// New returns a session that is kept under its id, for its owner.
func New(s wire.Session, id, owner string, c Config) *Session {
	return &Session{Session: s, id: id, cfg: c, kept: Kept{Owner: owner}}
}

// ErrOther means that what is kept is not that of who asks.
var ErrOther = errors.New("the session is somebody else's")

// errGoesOn means that a session does not end now: it goes on in another process, or when this one is started anew.
var errGoesOn = errors.New("it goes on elsewhere, or later")

// notBegun is what a client is told whose session could not be kept.
const notBegun = "What is kept of this session cannot be written now. It was not begun; try again later."

// errInitialize means that the server does not take the client just now.
var errInitialize = errors.New("the server behind the proxy does not take its client's introduction")

// Read reads what is kept of a session. It is an [ErrOther] unless owner is whose it is.
func Read(text []byte, owner string) (k Kept, err error) {
	if err = json.Unmarshal(text, &k); err == nil && k.Owner != owner {
		err = ErrOther
	}
	return k, err
}

// Again says on the client's behalf what it has said. It waits for the answers.
func (s *Session) Again(k Kept) error {
	s.kept = k
	s.say(k.Initialize)
	if s.Version() == "" {
		return errInitialize
	}
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if k.Level != "" {
		s.say(k.Level)
	}
	for i, uri := range k.Subscribed {
		s.say(`{"jsonrpc":"2.0","id":"resumed-` + strconv.Itoa(i) + `","method":"resources/subscribe","params":{"uri":` + string(wire.AppendString(nil, uri)) + `}}`)
	}
	if told, ok := s.Session.(interface{ Resumed() }); ok { // of its lists
		told.Resumed()
	}
	return nil
}

// Back has it kept that the client is here again, and waits for that.
func (s *Session) Back() error {
	s.mu.Lock()
	wait, err := s.keepLocked()
	s.mu.Unlock()
	if err != nil || wait == nil {
		return err
	}
	return wait()
}

// keepLocked has it kept what is known of the session, and returns how that is waited for; nil: it has ended, or goes on
// elsewhere.
func (s *Session) keepLocked() (wait func() error, err error) {
	if s.forgotten || s.Moved() {
		return nil, nil
	}
	text, err := json.Marshal(&s.kept)
	if err != nil {
		return nil, err
	}
	return s.cfg.Store.KeepSession(s.id, text)
}

// forgetLocked has it forgotten what is known of the session, and returns how that is waited for.
func (s *Session) forgetLocked() (wait func() error, err error) {
	wait, err = s.cfg.Store.KeepSession(s.id, nil)
	s.forgotten = err == nil
	return wait, err
}

func (s *Session) say(text string) {
	m, err := wire.Read([]byte(text), wire.FromClient)
	if err != nil {
		s.cfg.Log.Error("what is kept of a session cannot be read", "error", err)
		return
	}
	if rest := s.Session.Handle(m, unheard{}); rest != nil {
		rest.Wait()
	}
}

// unheard is the stream of what nobody waits for.
type unheard struct{}

func (unheard) Send([]byte) bool { return false }
func (unheard) Answer([]byte)    {}
func (unheard) Listening() bool  { return false }

// Handle implements [wire.Session]. What is kept is durable before it is answered.
func (s *Session) Handle(m *wire.Message, out wire.Stream) wire.Pending {
	if m.Kind != wire.Request {
		return s.Session.Handle(m, out)
	}
	switch m.Method {
	case "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		k := &keeping{Stream: out, s: s, m: m, given: make(chan struct{})}
		k.over = sync.OnceFunc(func() { close(k.given) })
		k.rest = s.Session.Handle(m, k)
		return k
	}
	return s.Session.Handle(m, out)
}

// Over reports whether the session's run has ended under it: its client has to begin another.
func (s *Session) Over() bool {
	under, ok := s.Session.(interface{ Over() bool })
	return ok && under.Over()
}

// Moved reports whether the session's run goes on in another process, and the session with it: what is kept of it is
// that one's. It does not block.
func (s *Session) Moved() bool {
	under, ok := s.Session.(interface{ Moved() bool })
	return ok && under.Moved()
}

// Version implements [wire.Session]. One that has not begun has negotiated nothing.
func (s *Session) Version() string {
	if s.never.Load() {
		return ""
	}
	return s.Session.Version()
}

// Unreadable implements [wire.WitnessSession].
func (s *Session) Unreadable(err error) { wire.Unread(s.Session, err) }

// Close implements [wire.Session]. One that cannot be forgotten now is left to end as one that nobody comes back to.
func (s *Session) Close() {
	s.mu.Lock()
	switch s.closed = true; {
	case s.never.Load(): // nobody knows its id
		s.cfg.Store.RestoreSession(s.id, nil)
	case s.Moved():
		s.cfg.Store.Left(s.id)
	case !s.forgotten && !s.cfg.Stays():
		if _, err := s.forgetLocked(); err != nil {
			s.cfg.Store.Left(s.id)
		}
	}
	s.mu.Unlock()
	s.Session.Close()
}

// Forget has what is kept of the session be removed, and waits for that, before its client is told that it has ended: it is to
// be closed then. The error is why it goes on.
func (s *Session) Forget() error {
	s.ending.Lock()
	defer s.ending.Unlock()
	err := s.forget()
	if err != nil && err != errGoesOn {
		s.cfg.Log.Warn("a session is not ended, since it cannot be forgotten: its client is told to try again", "error", err)
	}
	return err
}

func (s *Session) forget() error {
	if s.Moved() || s.cfg.Stays() {
		return errGoesOn
	}
	s.mu.Lock()
	if s.forgotten && !s.closed { // another one has waited for it, and is about to close it
		s.mu.Unlock()
		return nil
	}
	wait, err := s.forgetLocked()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = wait()
	stays := s.cfg.Stays() // since meanwhile: its run goes on, and would be nobody's
	switch {
	case err == nil && stays:
		err = errGoesOn
	case err == nil:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && !stays {
		return err
	}
	s.forgotten = false
	text, unread := json.Marshal(&s.kept)
	if unread == nil && !s.Moved() && (s.cfg.Others == nil || !s.cfg.Others(err)) { // else nothing of it was removed
		s.cfg.Store.RestoreSession(s.id, text)
	}
	return err
}

// notes notes what a request that was answered has changed, has it kept, and returns how that is waited for; nil: it is as
// it was, or the session has ended.
func (s *Session) notes(m *wire.Message) (wait func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uri := m.P.URI
	switch m.Method {
	case "initialize":
		s.kept.Initialize = string(m.Raw)
	case "logging/setLevel":
		s.kept.Level = string(m.Raw)
	case "resources/subscribe":
		if slices.Contains(s.kept.Subscribed, uri) {
			return nil, nil
		}
		if s.kept.size()+len(uri) > maxKept {
			s.cfg.Log.Warn("a subscription is not kept: a session keeps no more; after a restart its client has to subscribe again")
			return nil, nil
		}
		s.kept.Subscribed = append(s.kept.Subscribed, strings.Clone(uri))
	default:
		s.kept.Subscribed = slices.DeleteFunc(s.kept.Subscribed, func(other string) bool { return other == uri })
	}
	return s.keepLocked()
}

// keeping is the stream, and the rest, of a request that is kept before it is answered.
type keeping struct {
	wire.Stream
	s     *Session
	m     *wire.Message
	rest  wire.Pending
	given chan struct{} // closed by over, when the answer is given, or the request is served elsewhere
	over  func()
}

// Asks implements [wire.AskedStream].
func (k *keeping) Asks() *asker.Who { return wire.AsksOn(k.Stream) }

// Answer implements [wire.Stream]. It does not wait for the store.
func (k *keeping) Answer(msg []byte) {
	if len(wire.Member(msg, "result")) == 0 {
		k.give(msg)
		return
	}
	wait, err := k.s.notes(k.m)
	if wait == nil && err == nil {
		k.kept(msg, nil)
		return
	}
	go func() {
		if err == nil {
			err = wait()
		}
		k.kept(msg, err)
	}()
}

// kept gives the answer once it is known what is kept. A session that begins, and is not, or has gone elsewhere meanwhile, has not
// begun where other processes would have to go on with it. Where one is another process's by now, that does not know of what
// was asked for: the request is served there, or its client is told to send it again.
func (k *keeping) kept(msg []byte, err error) {
	begins, moved := k.m.Method == "initialize", k.s.Moved()
	switch {
	case begins && k.s.cfg.Shared && (err != nil || moved):
		k.s.cfg.Log.Warn("a session was not begun, since it is not kept: its client is told to try again", "error", err)
		k.s.never.Store(true)
		k.Decline(wire.ErrorAnswer(k.m.Bytes(k.m.ID), wire.CodeInternal, notBegun, nil))
		return
	case !begins && (moved || k.s.cfg.Others != nil && k.s.cfg.Others(err)):
		if k.Move(k.s.cfg.Elsewhere) {
			return
		}
		msg = wire.ErrorAnswer(k.m.Bytes(k.m.ID), wire.CodeInternal, "the session goes on in another process, which does not know of this request: try again", nil)
	case err != nil:
		k.s.cfg.Log.Warn("a session is not kept: after a restart its client has to begin another", "error", err)
	}
	k.give(msg)
}

func (k *keeping) give(msg []byte) {
	k.Stream.Answer(msg)
	k.over()
}

// Decline implements [wire.DecliningStream].
func (k *keeping) Decline(msg []byte) {
	wire.Decline(k.Stream, msg)
	k.over()
}

// Move implements [wire.MovingStream].
func (k *keeping) Move(why error) bool {
	moved := wire.MoveOn(k.Stream, why)
	if moved {
		k.over()
	}
	return moved
}

// Wait implements [wire.Pending].
func (k *keeping) Wait() {
	if k.rest != nil {
		k.rest.Wait()
	}
	<-k.given
}

// Detach implements [wire.Pending].
func (k *keeping) Detach(func()) bool { return false }
