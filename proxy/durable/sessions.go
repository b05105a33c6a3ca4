package durable

import (
	"context"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// sessionObject is the kind of what is kept of sessions, by the hashes of their ids.
const sessionObject = "session"

// session is a session as it is kept.
type session struct {
	// Away is when a process has begun to wait for its client to come back: it had been another one's. Zero: none has
	// yet, or it is back.
	Away time.Time      `json:"away,omitzero"`
	By   int64          `json:"by,omitzero"` // the lease of the process that has kept it last
	Kept jsontext.Value `json:"session"`
}

func (s *session) object(name string) journal.Object {
	text, err := json.Marshal(s)
	if err != nil { // it is no JSON: nobody reads it again
		text = s.Kept
	}
	return journal.Object{Kind: sessionObject, Name: name, Bytes: text}
}

func readSession(text []byte) (s session) {
	if err := json.Unmarshal(text, &s); err != nil || s.Kept == nil { // it is of a time when nothing stood around it
		s = session{Kept: text}
	}
	return s
}

// sessions are those that this process knows of those that are kept, by the names of their objects. What is handed over
// of one is handed over with the lock held.
type sessions struct {
	mu    sync.Mutex                 // guards what follows
	here  map[string]struct{}        // whose clients are
	gone  map[string]*journal.Ticket // that are forgotten when this is done
	ends  map[string]struct{}        // that are being ended
	since map[string]struct{}        // that came or went since a page of them was read; nil: none is being read
}

func newSessions() sessions {
	return sessions{here: make(map[string]struct{}), gone: make(map[string]*journal.Ticket), ends: make(map[string]struct{})}
}

func sessionName(id string) string { return KeyOf(sessionObject, id).Hash.String() }

// setLocked notes whether a session is here.
func (s *sessions) setLocked(name string, here bool) {
	if here {
		s.here[name] = struct{}{}
	} else {
		delete(s.here, name)
	}
	if s.since != nil {
		s.since[name] = struct{}{}
	}
}

// goesLocked notes that a session is forgotten.
func (s *sessions) goesLocked(name string, t *journal.Ticket) {
	if len(s.gone) >= 64 {
		s.tidyLocked()
	}
	s.gone[name] = t
}

// tidyLocked takes out those that are forgotten by now.
func (s *sessions) tidyLocked() {
	for name, t := range s.gone {
		if t.IsDone() {
			delete(s.gone, name)
		}
	}
}

// reads begins that a page is read.
func (s *sessions) reads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyLocked()
	s.since = make(map[string]struct{})
}

// hasRead ends that pages are read.
func (s *sessions) hasRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = nil
}

// awayLocked reports whether a session on a page that was read is there still, and nobody has come back to it.
func (s *sessions) awayLocked(name string) bool {
	_, here := s.here[name]
	_, gone := s.gone[name]
	_, since := s.since[name]
	return !here && !gone && !since
}

// KeepSession keeps what is known of a session in place of what was, and returns how that is waited for; nil forgets it. One that
// cannot be forgotten now stays here, until it has [Store.Left].
func (s *Store) KeepSession(id string, text []byte) (wait func() error, err error) {
	return s.keepSession(id, text, journal.Now)
}

// RestoreSession is KeepSession for what undoes another, also while the store cannot be used: what was handed over of a session
// is written when it can be, and would stay.
func (s *Store) RestoreSession(id string, text []byte) { _, _ = s.keepSession(id, text, journal.Must) }

func (s *Store) keepSession(id string, text []byte, when journal.When) (wait func() error, err error) {
	o := journal.Object{Kind: sessionObject, Name: sessionName(id)}
	if text != nil {
		o = (&session{Kept: text, By: journal.Beginning(s.cfg.Journal).Lease}).object(o.Name)
	}
	s.sessions.mu.Lock()
	t, err := s.write.Submit(journal.Change{Objects: []journal.Object{o}}, when)
	switch {
	case text != nil:
		delete(s.sessions.gone, o.Name)
		s.sessions.setLocked(o.Name, true)
	case err == nil:
		s.sessions.setLocked(o.Name, false)
		s.sessions.goesLocked(o.Name, t)
	}
	s.sessions.mu.Unlock()
	return func() error { return s.await(context.Background(), t) }, err
}

var errSlow = errors.New("the store is too slow, or cannot be written")

// await waits until a change is durable, no longer than the store's timeout.
func (s *Store) await(ctx context.Context, t *journal.Ticket) error {
	timeout := time.NewTimer(s.cfg.Timeout)
	defer timeout.Stop()
	select {
	case <-t.Done():
		return t.Err()
	case <-timeout.C:
		return errSlow
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Session returns what is kept of a session, nil for nothing. From then on the session is here, and is not ended as one
// that nobody comes back to, unless [Store.Left] says that it does not go on.
func (s *Store) Session(id string) ([]byte, error) {
	name := sessionName(id)
	s.sessions.mu.Lock()
	_, ends := s.sessions.ends[name]
	if t := s.sessions.gone[name]; t != nil && !t.IsDone() { // it has ended, though what is kept of it does not say so yet
		ends = true
	}
	if !ends {
		s.sessions.setLocked(name, true)
	}
	s.sessions.mu.Unlock()
	if ends {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer stop()
	text, err := s.cfg.Journal.Object(ctx, sessionObject, name)
	if err != nil {
		s.Left(id)
		if errors.Is(err, journal.ErrNone) {
			err = nil
		}
		return nil, err
	}
	return readSession(text).Kept, nil
}

// Left says that a session is not here any more, and what is kept of it stays.
func (s *Store) Left(id string) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.setLocked(sessionName(id), false)
}

// sessionsPage is how many sessions are read at once: each may have half a megabyte.
const sessionsPage = 32

// Abandoned goes through the sessions that are kept and not here, and ends those whose clients were waited for as long as
// idle: end ends a session's run, and reports whether that could be done. Those of other processes are theirs to end. next is when it is to be called again; zero:
// nobody is waited for. Waiting begins when a process sees first that one is not here.
func (s *Store) Abandoned(ctx context.Context, now time.Time, idle time.Duration, end func(journal.Key) bool) (ended int, next time.Time, err error) {
	defer s.sessions.hasRead()
	others, err := s.others(ctx)
	if err != nil {
		return 0, time.Time{}, err
	}
	soon := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for after := ""; ; {
		s.sessions.reads()
		page, err := s.page(ctx, sessionObject, after, sessionsPage)
		if err != nil {
			return ended, next, err
		}
		var fresh []journal.Object
		for i := range page {
			kept := readSession(page[i].Bytes)
			after = page[i].Name
			switch due := kept.Away.Add(idle); {
			case others[kept.By] != "": // for it to see to
				soon(now.Add(idle))
			case kept.Away.IsZero(), kept.Away.After(now): // a clock was set back since
				kept.Away, kept.By = now.UTC(), journal.Beginning(s.cfg.Journal).Lease
				o := kept.object(after)
				o.Swap, o.Was = true, page[i].Bytes
				fresh = append(fresh, o)
			case due.After(now):
				soon(due)
			default:
				done, err := s.endSession(ctx, page[i], end)
				if err != nil {
					return ended, next, err
				}
				if done {
					ended++
				} else {
					soon(now.Add(idle))
				}
			}
		}
		switch waits, err := s.waitFor(ctx, fresh); {
		case err != nil:
			return ended, next, err
		case waits:
			soon(now.Add(idle))
		}
		if len(page) < sessionsPage {
			return ended, next, nil
		}
	}
}

// waitFor has it kept that the sessions of a page are waited for, but for those that are here, or that another process has kept
// since. any is false where all are here.
func (s *Store) waitFor(ctx context.Context, fresh []journal.Object) (any bool, err error) {
	s.sessions.mu.Lock()
	fresh = slices.DeleteFunc(fresh, func(o journal.Object) bool { return !s.sessions.awayLocked(o.Name) })
	if len(fresh) == 0 {
		s.sessions.mu.Unlock()
		return false, nil
	}
	t, err := s.write.Submit(journal.Change{Objects: fresh}, journal.Now)
	s.sessions.mu.Unlock()
	if err == nil {
		err = s.await(ctx, t)
	}
	return true, err
}

// endSession ends a session as it was on a page, that nobody has come back to, with its run; done is false where somebody just has,
// here or in another process, or its run cannot be ended now.
func (s *Store) endSession(ctx context.Context, o journal.Object, end func(journal.Key) bool) (done bool, err error) {
	key := journal.Key{Kind: sessionObject}
	if n, err := hex.Decode(key.Hash[:], []byte(o.Name)); n != len(key.Hash) || err != nil {
		return false, nil
	}
	s.sessions.mu.Lock()
	if !s.sessions.awayLocked(o.Name) {
		s.sessions.mu.Unlock()
		return false, nil
	}
	s.sessions.ends[o.Name] = struct{}{}
	s.sessions.mu.Unlock()
	is, err := s.cfg.Journal.Object(ctx, sessionObject, o.Name)
	done = err == nil && journal.SameBytes(is, o.Bytes) && end(key)
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	delete(s.sessions.ends, o.Name)
	if errors.Is(err, journal.ErrNone) {
		err = nil
	}
	if !done || err != nil {
		return false, err
	}
	o.Bytes, o.Swap, o.Was = nil, true, is
	t, err := s.write.Submit(journal.Change{Objects: []journal.Object{o}}, journal.Must)
	if err == nil {
		s.sessions.goesLocked(o.Name, t)
	}
	return true, err
}
