package durable

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// sessionObject is the kind of what is kept of sessions, by the hashes of their ids.
const sessionObject = "session"

// KeepSession keeps what is known of a session in place of what was, and returns how that is waited for; nil forgets it.
func (s *Store) KeepSession(id string, text []byte) (wait func() error, err error) {
	t, err := s.write.Submit(journal.Change{Objects: []journal.Object{{Kind: sessionObject, Name: KeyOf(sessionObject, id).Hash.String(), Bytes: text}}}, journal.Now)
	return func() error {
		timeout := time.NewTimer(s.cfg.Timeout)
		defer timeout.Stop()
		select {
		case <-t.Done():
			return t.Err()
		case <-timeout.C:
			return errSlow
		}
	}, err
}

var errSlow = errors.New("the store is too slow, or cannot be written")

// Session returns what is kept of a session, nil for nothing.
func (s *Store) Session(id string) ([]byte, error) {
	ctx, stop := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer stop()
	text, err := s.cfg.Journal.Object(ctx, sessionObject, KeyOf(sessionObject, id).Hash.String())
	if errors.Is(err, journal.ErrNone) {
		return nil, nil
	}
	return text, err
}
