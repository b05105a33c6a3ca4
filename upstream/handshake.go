package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Opening is what [Server.Dial] may open a connection with.
type Opening struct {
	// Initialize opens a connection of the legacy era, Discover (server/discover with
	// all of its _meta) one of the modern era. Nil: not of that era. The _meta of
	// Discover goes with the requests that the connection makes by itself.
	Initialize, Discover *wire.Message
	// Prefer is the era that is tried first where both can be.
	Prefer wire.Era
}

// has reports whether a connection of an era can be opened.
func (o Opening) has(era wire.Era) bool {
	if era == wire.Modern {
		return o.Discover != nil
	}
	return o.Initialize != nil
}

// other returns the other one of the two eras.
func other(era wire.Era) wire.Era { return wire.Modern - era }

// known is what is known of whether a server speaks an era.
type known uint8

const (
	unknown known = iota
	speaks
	speaksNot
)

// firstEra returns the era that is tried first: the one that is to be spoken, else the
// preferred one, unless it is known that the server speaks the other one only.
func (s *Server) firstEra(with Opening) wire.Era {
	if era, fixed := s.cfg.Protocol.fixed(); fixed && with.has(era) {
		return era
	}
	if !with.has(other(with.Prefer)) {
		return with.Prefer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !with.has(with.Prefer) || s.eras[with.Prefer] == speaksNot && s.eras[other(with.Prefer)] == speaks {
		return other(with.Prefer)
	}
	return with.Prefer
}

// learn keeps what was seen of a server for the connections to come. Nothing hangs
// on its being true for ever: the other era is tried where it no longer is.
func (s *Server) learn(era wire.Era, k known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eras[era] = k
}

// handshake introduces a client to a server whose era is to be found out
// (2026-07-28, basic/versioning, "Backward Compatibility").
type handshake struct {
	*Conn
	with  Opening
	first wire.Era // what is tried first
	probe *call    // a server/discover that has no answer yet; nil: none
	late  bool     // it was answered after all, when the other era was settled on
}

// otherEra is that a server does not speak an era.
type otherEra struct {
	error
	sure bool // it will not do so next time, either
}

// Unwrap returns what the server said.
func (e *otherEra) Unwrap() error { return e.error }

var (
	// errSilent is a server that did not answer server/discover in time.
	errSilent = errors.New("no answer to server/discover in time")
	// errDiedOfDiscovery is a child that did not outlive server/discover: some servers take
	// nothing but initialize as the first message.
	errDiedOfDiscovery = errors.New("the upstream process ended when it was asked for its revisions")
)

// introduce introduces the client in one era, and in the other one where the server does
// not speak the first. Where that fails, too, the error is that of what the client has
// asked for.
func (c *Conn) introduce(ctx context.Context, with Opening) error {
	h := &handshake{Conn: c, with: with, first: c.srv.firstEra(with)}
	died := func() bool { // and might not have but for what it was asked first
		return h.Err() != nil && h.first == wire.Modern && with.has(wire.Legacy)
	}
	err := h.try(ctx, h.first, h.patience())
	if no, wrong := errors.AsType[*otherEra](err); wrong && !died() && with.has(other(h.first)) {
		err = h.try(ctx, other(h.first), 0)
		_, neither := errors.AsType[*otherEra](err)
		switch {
		case err == nil && h.late:
			c.srv.learn(h.first, speaks) // the next connection waits for longer
		case err == nil && no.sure:
			c.srv.learn(h.first, speaksNot)
		case err == nil:
		case neither && no.error == errSilent:
			err = h.try(ctx, wire.Modern, 0) // it was slow to start
		case h.first == wire.Legacy:
			err = no
		}
	}
	if err != nil && died() {
		return errDiedOfDiscovery
	}
	if no, wrong := errors.AsType[*otherEra](err); wrong {
		return no.error
	}
	return err
}

// patience is how long an answer to server/discover is waited for, 0 for ever.
func (h *handshake) patience() time.Duration {
	s := h.srv
	if h.with.Initialize == nil || s.cfg.Protocol == ProtocolModern {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.eras[wire.Modern] == speaks {
		return 10 * s.cfg.ProbeTimeout
	}
	return s.cfg.ProbeTimeout
}

// try introduces the client in an era.
func (h *handshake) try(ctx context.Context, era wire.Era, patience time.Duration) error {
	var err error
	if era == wire.Modern {
		err = h.discover(ctx, patience)
	} else {
		err = h.initialize(ctx)
	}
	if err != nil {
		return err
	}
	h.era.Store(uint32(era))
	h.srv.learn(era, speaks)
	if era == wire.Modern {
		h.listener.subscribe(nil)
	}
	h.log().Debug("connected to the upstream", "era", era.String())
	if h.probe != nil && era == wire.Legacy {
		h.late = h.probe.isOver() && h.probe.result.m != nil && h.probe.result.m.Kind == wire.Result
		h.take(h.probe.id) // nobody waits for it any more
	}
	return nil
}

// initialize sends the initialize request and keeps the answer. Some errors, and some HTTP statuses since requests
// of the legacy era lack headers, say that the server is of the other era.
func (h *handshake) initialize(ctx context.Context) error {
	m, err := h.ask(ctx, h.with.Initialize)
	if err != nil {
		if e, ok := errors.AsType[*wire.CallError](err); ok {
			switch e.Status {
			case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
				return &otherEra{err, true}
			}
		}
		return err
	}
	if m.Kind == wire.Failure {
		refused := &InitializeError{Answer: m, Era: wire.Legacy}
		switch m.ErrorCode {
		case wire.CodeMethodNotFound, wire.CodeInvalidParams, wire.CodeInvalidRequest,
			wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
			return &otherEra{refused, true}
		}
		return refused
	}
	said, err := readIntroduction(m)
	if err != nil {
		return fmt.Errorf("reading the upstream's answer to initialize: %w", err)
	}
	h.agreement = agreement{hello: m, caps: said.capabilities()}
	h.link.negotiated(wire.Legacy, said.Version)
	return nil
}

// discover asks for what the server speaks and offers, and keeps the answer. Legacy servers refuse that in any way,
// or leave it unanswered; by some codes a server shows that it is of the modern era, and has refused all the same.
func (h *handshake) discover(ctx context.Context, patience time.Duration) error {
	m, err := h.askDiscover(ctx, patience)
	if err == errSilent {
		return &otherEra{err, true}
	}
	if err != nil {
		e, ok := errors.AsType[*wire.CallError](err)
		if !ok || !e.Sent || ctx.Err() != nil {
			return err
		}
		switch e.Status {
		case 0, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
			return &otherEra{err, false}
		}
		return &otherEra{err, e.Status < http.StatusInternalServerError}
	}
	if m.Kind == wire.Failure {
		refused := &InitializeError{Answer: m, Era: wire.Modern}
		if m.ErrorCode == wire.CodeHeaderMismatch || m.ErrorCode == wire.CodeMissingCapability ||
			m.ErrorCode == wire.CodeUnsupportedVersion && !supportsLegacy(m.Bytes(m.Error)) {
			return refused
		}
		return &otherEra{refused, true}
	}
	said, err := readIntroduction(m)
	if err != nil || !slices.Contains(said.Versions, wire.ModernRevision) {
		return &otherEra{errors.New("the upstream's answer to server/discover names no revision that fsm-proxy knows"), true}
	}
	h.agreement = agreement{m, said.capabilities(), h.with.Discover.Bytes(h.with.Discover.P.Meta)}
	h.listener = newListener(h.Conn)
	h.link.negotiated(wire.Modern, wire.ModernRevision)
	return nil
}

// supportsLegacy reports whether an error that a revision is not spoken names one of
// the legacy era as one that is.
func supportsLegacy(failure []byte) bool {
	var said struct {
		Data struct {
			Supported []string `json:"supported"`
		} `json:"data"`
	}
	return json.Unmarshal(failure, &said) == nil && slices.ContainsFunc(said.Data.Supported, wire.IsLegacyRevision)
}

// askDiscover returns the answer to server/discover. Where all messages come on one
// stream it may still come after errSilent, and is then returned the next time.
func (h *handshake) askDiscover(ctx context.Context, patience time.Duration) (*wire.Message, error) {
	bounded := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	if h.link.streams() {
		m, err := h.ask(bounded, h.with.Discover)
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			return nil, errSilent
		}
		return m, err
	}
	if h.probe == nil {
		h.probe = newCall(h.Conn, h.with.Discover, nil)
		if err := h.enter(h.probe); err != nil {
			return nil, &wire.CallError{Err: err}
		}
		h.link.start(h.probe)
	}
	select {
	case <-h.probe.done():
		return h.probe.result.answer()
	case <-bounded.Done():
		if ctx.Err() != nil {
			return h.probe.giveUp(&wire.CallError{Sent: true, Err: ctx.Err()}).answer()
		}
		return nil, errSilent
	}
}

// ask sends a request, once more where the credentials were too old: a rejected request is one of which the
// upstream has done nothing.
func (c *Conn) ask(ctx context.Context, m *wire.Message) (*wire.Message, error) {
	answer, err := c.Start(m, nil).Wait(ctx)
	if e, ok := errors.AsType[*wire.CallError](err); ok && e.Status == http.StatusUnauthorized && c.srv.auth != nil {
		return c.Start(m, nil).Wait(ctx)
	}
	return answer, err
}

// introduction is what a server says of itself: a result of initialize, or of server/discover.
type introduction struct {
	Version      string                     `json:"protocolVersion"`
	Versions     []string                   `json:"supportedVersions"`
	Capabilities map[string]json.RawMessage `json:"capabilities"`
}

func readIntroduction(m *wire.Message) (said introduction, err error) {
	err = json.Unmarshal(m.Bytes(m.Result), &said)
	return said, err
}

// capabilities are those by which lists are read: whether a kind is offered, and whether
// the upstream promises to tell of its changes.
type capabilities [wire.Templates + 1]struct{ offered, changes bool }

// anyChanges reports whether the upstream promises to tell of a list's changes.
func (c *capabilities) anyChanges() bool {
	return c[wire.Tools].changes || c[wire.Resources].changes || c[wire.Prompts].changes
}

// capabilities takes anything but null for an offer, as clients do.
func (i *introduction) capabilities() (caps capabilities) {
	for kind := range wire.Templates {
		raw := i.Capabilities[kind.String()]
		caps[kind].offered = len(raw) > 0 && string(raw) != "null"
		caps[kind].changes = caps[kind].offered && string(wire.Member(raw, "listChanged")) == "true"
	}
	caps[wire.Templates] = caps[wire.Resources]
	return caps
}

// InitializeError is an upstream that answered initialize, or server/discover in its
// place, with an error.
type InitializeError struct {
	// Answer is the upstream's answer: a Failure.
	Answer *wire.Message
	// Era tells which of the two was refused.
	Era wire.Era
}

// Error has the code alone: the rest is the upstream's to say, in Answer.
func (e *InitializeError) Error() string {
	method := "initialize"
	if e.Era == wire.Modern {
		method = "server/discover"
	}
	return fmt.Sprintf("the upstream refused %s with error %d", method, e.Answer.ErrorCode)
}

// EraError is the error of a server that does not speak the era which [Config.Protocol] fixes, but
// the other one.
type EraError struct {
	Speaks   string // the revision, as the server says it
	Protocol Protocol
}

// Error says what the server speaks and what to do.
func (e *EraError) Error() string {
	if e.Protocol == ProtocolModern {
		return fmt.Sprintf("the server speaks revision %.32q, with sessions, and not %s: leave --upstream-protocol modern out", e.Speaks, wire.ModernRevision)
	}
	return fmt.Sprintf("the server speaks revision %.32q, and none with sessions: leave --upstream-protocol legacy out", e.Speaks)
}

// checkEra returns an [*EraError] where the connection is in another era than the one that
// [Config.Protocol] fixes: its server does not speak that.
func (c *Conn) checkEra() error {
	era, fixed := c.srv.cfg.Protocol.fixed()
	if !fixed || c.Era() == era {
		return nil
	}
	e := &EraError{Speaks: wire.ModernRevision, Protocol: c.srv.cfg.Protocol}
	if c.Era() == wire.Legacy {
		said, _ := readIntroduction(c.hello) // it was read before
		e.Speaks = said.Version
	}
	return e
}

// TimeoutError is the error of a connection that was given up since its opening was not
// answered.
type TimeoutError struct {
	// Asked is the request, initialize or server/discover; Waited is how long its
	// answer was waited for.
	Asked  string
	Waited time.Duration
	// Process is whether a child ran until then, and was ended.
	Process bool
	// Said is what that said last; "": nothing, or not for clients.
	Said string
}

// Error says how long it was, and what became of the child.
func (e *TimeoutError) Error() string {
	text := "no answer to " + e.Asked + " in " + e.Waited.String()
	if e.Asked == ProtocolModern.opening() {
		text += ", which a server with sessions may leave unanswered: if it is one, leave --upstream-protocol modern out"
	}
	if e.Process {
		text += "; its process still ran, and was ended (--connect-timeout)"
	}
	if e.Said != "" {
		text += "; it said: " + e.Said
	}
	return text
}

// timeoutError returns the error of an opening that was not answered.
func (c *Conn) timeoutError(waited time.Duration) error {
	e := &TimeoutError{Asked: c.srv.cfg.Protocol.opening(), Waited: waited.Round(time.Millisecond)}
	if waited > time.Second {
		e.Waited = waited.Round(time.Second)
	}
	if l, ok := c.link.(*stdioLink); ok && c.Err() == nil {
		e.Process, e.Said = true, l.quote()
	}
	return e
}
