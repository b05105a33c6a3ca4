package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/resume"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Store says where runs are kept.
type Store struct {
	URL     string        // as [stores.Check] has it; "": nowhere
	Timeout time.Duration // for how long a call waits until something is written
	Lease   time.Duration // for how long a database is this process's without another word
	// PeerListen is where other processes of the database pass requests on to this one; "": it has the database alone.
	// Advertise is where they find that, "" for where it listens.
	PeerListen, Advertise string
	RecordKey             string // a file with the key by which records are hashed; "": without one
	Run                   string // what the run of the process is called there; "": as the policy file

	KeepCompleted, KeepIdle time.Duration // for how long a run is kept that has ended, or that nobody uses; 0: for ever
	KeepEntries             int           // how many entries of a run before its last checkpoint; 0: all
	MaxRuns                 int           // how many runs are kept; 0: any number
	MaxSize                 Size          // what they may take; 0: any size
}

// check says what is wrong.
func (f *Store) check() error {
	if err := stores.Check(f.URL); err != nil {
		return exit.Usagef("--store: %w", err)
	}
	if !f.lasts() && f.RecordKey != "" {
		return exit.Usagef("--record-key needs --store: nothing is recorded without one")
	}
	if f.MaxSize > 0 && f.lasts() && !stores.IsSQLite(f.URL) {
		return exit.Usagef("--max-store-size bounds a file of SQLite: how much PostgreSQL takes hangs on when it vacuums; bound runs by --max-stored-runs, and watch fsm_proxy_store_size_bytes")
	}
	if err := f.checkPeers(); err != nil {
		return err
	}
	if f.Lease > 0 && (f.Lease < minLease || f.Lease > maxLease) {
		return exit.Usagef("--lease %v: it is from %v to %v", f.Lease, minLease, maxLease)
	}
	return nil
}

// The shortest and the longest lease of a database: it is renewed at each quarter, and waited for when a process is killed.
const minLease, maxLease = 200 * time.Millisecond, 10 * time.Minute

// lasts reports whether there is a store.
func (f *Store) lasts() bool { return f.URL != "" && f.URL != stores.Memory }

// run is what the run of the process is called.
func (f *Store) run(p *policy.Policy) string {
	if f.Run != "" {
		return f.Run
	}
	return strings.TrimSuffix(filepath.Base(p.File()), filepath.Ext(p.File()))
}

// storeFlush is for how long the proxy's end waits until all is written.
const storeFlush = 10 * time.Second

// openStore opens the store, if there is one, and keeps the policy in it.
func (s *service) openStore(ctx context.Context) error {
	c := &s.cfg.Store
	if !c.lasts() {
		return nil
	}
	key, err := stores.ReadKey(c.RecordKey)
	if err != nil {
		return err
	}
	peer, err := s.openReplica()
	if err != nil {
		return err
	}
	all, err := stores.Open(ctx, stores.Config{
		URL: c.URL, Run: c.run(s.policy), Lease: c.Lease, Holder: peer.Holder, Peer: peer, Finds: fmt.Sprint(s.keys), RecordKey: journal.NewChain(key).KeyID(), Lost: s.leaseLost,
		Log: func(message string, err error) {
			var why []any
			if err != nil {
				why = []any{"error", toDo(err)}
			}
			s.log.Warn("store: "+message, why...)
		},
	})
	if err != nil {
		return toDo(err)
	}
	if m := s.tell.metrics; m != nil {
		m.Store(telemetry.StoreSources{
			Waiting: func() int { return s.store.Waiting() }, Size: func() int64 { return s.store.Size() }, Writable: func() bool { return s.store.Down() == nil },
			LeftOut: func() uint64 { return s.store.LeftOut() }, Replicas: s.replicas(all),
		})
	}
	s.joins(all)
	s.journal = durable.Shown(all)
	s.store = durable.Open(durable.Config{
		Journal: all, Key: key, Timeout: c.Timeout, Keep: c.KeepEntries, Bounds: durable.Bounds{Runs: c.MaxRuns, Size: int64(c.MaxSize)},
		Record:  run.Recording{Arguments: s.cfg.Record.Arguments, Redact: s.cfg.Record.redaction()},
		Compile: policyfile.Unpack, Wrote: s.tell.wrote(), Log: s.log,
	})
	s.onClose(func() {
		ctx, stop := context.WithTimeout(context.Background(), storeFlush)
		defer stop()
		if err := s.store.Close(ctx); err != nil {
			s.log.Error("closing the store", "error", err)
		}
	})
	return s.keepPolicy(s.policy, s.from.File)
}

// toDo says with the error of a store that another process has what to do about that.
func toDo(err error) error {
	if held, ok := errors.AsType[*journal.Held](err); ok {
		return fmt.Errorf("%w: %s", err, held.Do)
	}
	return err
}

// keepPolicy keeps a policy in the store, before any run goes by it.
func (s *service) keepPolicy(p *policy.Policy, file watch.File) error {
	if s.store == nil {
		return nil
	}
	source, err := policyfile.Pack(file)
	if err != nil {
		return err
	}
	if again, err := policyfile.Unpack(source); err != nil || again.Digest() != p.Digest() {
		return fmt.Errorf("the policy %s cannot be kept in the store: it would be read as another one: %w", p.File(), err)
	}
	return s.store.Keep(p, source)
}

// openSession opens the session of a client, which is kept where there is a store.
func (s *service) openSession(own wire.Stream, from streamhttp.PeerInfo) (wire.Session, error) {
	if s.replica.peers != nil && s.relay.Draining() { // the run that it would begin is another process's to begin
		return nil, runs.LookAgain(true)
	}
	session, err := s.relay.OpenFor(s.peer(from), own)
	if why, ok := errors.AsType[*runs.Missing](err); ok && why.Code == policy.StoreUnavailable && why.At == nil {
		return nil, &streamhttp.NotNowError{Text: why.Text}
	}
	if err != nil || s.store == nil {
		return session, err
	}
	return resume.New(session, from.ID, s.ownerOf(from), s.keeping()), nil
}

// unanswered is the response to a request that was under way when its session was gone on with.
func (s *service) unanswered(id []byte) []byte {
	r := refusal.Refusal{Error: policy.OutcomeUnknown.String(), Message: "This was under way when fsm-proxy was restarted, or another process took the session over, " +
		"and its answer is lost. It may have happened: look at what has become of it before you send it again."}
	return r.Answer(refusal.Request{ID: id, Client: bridge.ClientOf(wire.Legacy), Form: s.cfg.Refusals, Schema: true, Lost: true})
}

// resumeSession goes on with a session that was kept; nil: there is none, or it is not of who asks. The error is why it
// cannot go on just now.
func (s *service) resumeSession(own wire.Stream, from streamhttp.PeerInfo) (wire.Session, error) {
	if s.store.Shared() {
		peer := s.peer(from)
		if why := s.relay.Runs.Away(&peer); why != nil {
			return nil, why
		}
	}
	text, err := s.store.Session(from.ID)
	if text == nil || err != nil {
		return nil, s.notResumed(from, err)
	}
	kept, err := resume.Read(text, s.ownerOf(from))
	if err != nil {
		_ = s.notResumed(from, err)
		return nil, nil
	}
	peer := s.peer(from)
	peer.Resumed = true
	session, err := s.relay.OpenFor(peer, own)
	if why, ok := errors.AsType[*runs.Missing](err); ok && why.Code != policy.StoreUnavailable {
		_ = s.notResumed(from, err)
		return nil, nil
	}
	if err != nil {
		return nil, s.notResumed(from, err)
	}
	again := resume.New(session, from.ID, kept.Owner, s.keeping())
	if err := again.Again(kept); err != nil {
		session.Close()
		if s.store.Shared() && s.relay.Draining() { // which began just now
			s.store.Left(from.ID)
			return nil, runs.LookAgain(false)
		}
		return nil, s.notResumed(from, err)
	}
	if err := again.Back(); err != nil {
		s.log.Warn("that a session goes on is not kept: after another restart it may end early", peer.About([]any{"error", err})...)
	}
	s.log.Info("session goes on", peer.About(nil)...)
	return again, nil
}

// notResumed logs why a session does not go on.
func (s *service) notResumed(from streamhttp.PeerInfo, err error) error {
	s.store.Left(from.ID)
	if why, ok := errors.AsType[*runs.Missing](err); err != nil && !(ok && why.At != nil) {
		peer := s.peer(from)
		s.log.Warn("a session does not go on", peer.About([]any{"error", err})...)
	}
	return err
}

// keeping is what sessions are kept with.
func (s *service) keeping() resume.Config {
	return resume.Config{
		Store: s.store, Shared: s.store.Shared(), Stays: s.relay.Draining, Log: s.log,
		Others: func(err error) bool { return errors.Is(err, journal.ErrConflict) }, Elsewhere: runs.LookAgain(false),
	}
}

// ownerOf says who alone goes on with a session, as nobody reads it: by the principal, the URL, and what a gateway says.
func (s *service) ownerOf(from streamhttp.PeerInfo) string {
	key := ""
	if of := s.sessionKey(); of != nil {
		key = of(from)
	}
	h := sha256.New()
	for _, part := range []string{from.Principal.Issuer, from.Principal.Subject, from.Run, key} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
