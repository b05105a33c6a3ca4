package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// greeting introduces a client to a server whose era is to be found out
// (2026-07-28, basic/versioning, "Backward Compatibility").
type greeting struct {
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
	// errDiedAsked is a child that did not outlive server/discover: some servers take
	// nothing but initialize as the first message.
	errDiedAsked = errors.New("the upstream process ended when it was asked for its revisions")
)

// greet introduces the client in one era, and in the other one where the server does
// not speak the first.
func (c *Conn) greet(ctx context.Context, with Opening) error {
	g := &greeting{Conn: c, with: with, first: c.srv.first(with)}
	err := g.in(ctx, g.first, g.patience())
	if no, wrong := errors.AsType[*otherEra](err); wrong && !g.died() && with.has(other(g.first)) {
		err = g.fallBack(ctx, no)
	}
	if err != nil && g.died() {
		return errDiedAsked
	}
	return bareEra(err)
}

// died reports whether the server has ended, and might not have but for what it was
// asked first.
func (g *greeting) died() bool {
	return g.Err() != nil && g.first == wire.Modern && g.with.has(wire.Legacy)
}

// fallBack introduces the client in the other era. Where that fails, too, the error is
// that of what the client has asked for.
func (g *greeting) fallBack(ctx context.Context, no *otherEra) error {
	err := g.in(ctx, other(g.first), 0)
	switch {
	case err == nil && g.late:
		g.srv.learn(g.first, speaks) // the next connection waits for longer
		return nil
	case err == nil && no.sure:
		g.srv.learn(g.first, speaksNot)
		return nil
	case err == nil:
		return nil
	}
	if _, wrong := errors.AsType[*otherEra](err); wrong && no.error == errSilent {
		return g.in(ctx, wire.Modern, 0) // it was slow to start
	}
	if g.first == wire.Legacy {
		return no
	}
	return err
}

// bareEra is an error without what it says of the era.
func bareEra(err error) error {
	if e, ok := errors.AsType[*otherEra](err); ok {
		return e.error
	}
	return err
}

// patience is how long an answer to server/discover is waited for, 0 for ever.
func (g *greeting) patience() time.Duration {
	switch {
	case g.with.Initialize == nil, g.srv.cfg.Protocol == ProtocolModern:
		return 0
	case g.srv.knows(wire.Modern) == speaks:
		return 10 * g.srv.cfg.ProbeTimeout
	}
	return g.srv.cfg.ProbeTimeout
}

// in introduces the client in an era.
func (g *greeting) in(ctx context.Context, era wire.Era, patience time.Duration) error {
	var err error
	if era == wire.Modern {
		err = g.discover(ctx, patience)
	} else {
		err = g.initialize(ctx)
	}
	if err != nil {
		return err
	}
	g.era.Store(uint32(era))
	g.srv.learn(era, speaks)
	if era == wire.Modern {
		g.ears.want(nil)
	}
	g.log().Debug("connected to the upstream", "era", era.String())
	if g.probe != nil && era == wire.Legacy {
		g.late = g.probe.isOver() && g.probe.result.m != nil && g.probe.result.m.Kind == wire.Result
		g.forget(g.probe.id) // nobody waits for it any more
	}
	return nil
}

// initialize sends the initialize request and keeps the answer.
func (g *greeting) initialize(ctx context.Context) error {
	m, err := g.ask(ctx, g.with.Initialize)
	if err != nil {
		return g.unlessStatus(err)
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
	said, err := readHello(m.Bytes(m.Result))
	if err != nil {
		return fmt.Errorf("reading the upstream's answer to initialize: %w", err)
	}
	g.hello, g.caps = m, said.caps
	g.link.greeted(wire.Legacy, said.version)
	return nil
}

// unlessStatus makes an error of initialize say that the server is of the other era
// where its HTTP status does: requests of the legacy one lack headers.
func (g *greeting) unlessStatus(err error) error {
	e, ok := errors.AsType[*wire.CallError](err)
	if !ok {
		return err
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return &otherEra{err, true}
	}
	return err
}

// discover asks for what the server speaks and offers, and keeps the answer.
func (g *greeting) discover(ctx context.Context, patience time.Duration) error {
	m, err := g.probed(ctx, patience)
	if err != nil {
		return undiscovered(ctx, err)
	}
	if m.Kind == wire.Failure {
		return notModern(m)
	}
	said, err := readHello(m.Bytes(m.Result))
	if err != nil || !said.speaks(wire.ModernRevision) {
		return &otherEra{errors.New("the upstream's answer to server/discover names no revision that fsm-proxy knows"), true}
	}
	g.hello, g.caps, g.meta = m, said.caps, g.with.Discover.Bytes(g.with.Discover.P.Meta)
	g.ears = newEars(g.Conn)
	g.link.greeted(wire.Modern, wire.ModernRevision)
	return nil
}

// probed returns the answer to server/discover. Where all messages come on one
// stream it may still come after errSilent, and is then returned the next time.
func (g *greeting) probed(ctx context.Context, patience time.Duration) (*wire.Message, error) {
	bounded := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	if g.link.streams() {
		m, err := g.ask(bounded, g.with.Discover)
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			return nil, errSilent
		}
		return m, err
	}
	if g.probe == nil {
		g.probe = newCall(g.Conn, g.last.Add(1), g.with.Discover, nil)
		if err := g.enter(g.probe); err != nil {
			return nil, &wire.CallError{Err: err}
		}
		g.link.start(g.probe)
	}
	select {
	case <-g.probe.end():
		return g.probe.result.split()
	case <-bounded.Done():
		if ctx.Err() != nil {
			return g.probe.giveUp(&wire.CallError{Sent: true, Err: ctx.Err()}).split()
		}
		return nil, errSilent
	}
}

// ask sends a request, once more where the credentials were too old.
func (c *Conn) ask(ctx context.Context, m *wire.Message) (*wire.Message, error) {
	answer, err := c.Start(m, nil).Wait(ctx)
	if err != nil && c.srv.auth != nil && c.srv.auth.renewed(err) {
		return c.Start(m, nil).Wait(ctx)
	}
	return answer, err
}

// undiscovered is what it means that server/discover has no answer. Legacy servers
// refuse it in any way, or leave it unanswered.
func undiscovered(ctx context.Context, err error) error {
	if err == errSilent {
		return &otherEra{err, true}
	}
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

// notModern is what it means that server/discover was refused. By some codes a
// server shows that it is of the modern era, and that it has refused all the same.
func notModern(m *wire.Message) error {
	refused := &InitializeError{Answer: m, Era: wire.Modern}
	switch m.ErrorCode {
	case wire.CodeHeaderMismatch, wire.CodeMissingCapability:
		return refused
	case wire.CodeUnsupportedVersion:
		if !supportsLegacy(m.Bytes(m.Error)) {
			return refused
		}
	}
	return &otherEra{refused, true}
}
