package service

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// Store says where runs are kept.
type Store struct {
	URL       string        // as [stores.Check] has it; "": nowhere
	Timeout   time.Duration // for how long a call waits until something is written
	RecordKey string        // a file with the key by which records are hashed; "": without one
	Run       string        // what the run of the process is called there; "": as the policy file
}

// check says what is wrong.
func (f *Store) check() error {
	if err := stores.Check(f.URL); err != nil {
		return exit.Usagef("--store: %w", err)
	}
	if !f.lasts() && f.RecordKey != "" {
		return exit.Usagef("--record-key needs --store: nothing is recorded without one")
	}
	return nil
}

// lasts reports whether there is a store.
func (f *Store) lasts() bool { return f.URL != "" && f.URL != stores.Memory }

// run is what the run of the process is called.
func (f *Store) run(p *policy.Policy) string {
	if f.Run != "" {
		return f.Run
	}
	return strings.TrimSuffix(filepath.Base(p.File()), filepath.Ext(p.File()))
}

// The least and the most that a key for records is long, in bytes.
const minRecordKey, maxRecordKey = 32, 4096

// key reads the key by which records are hashed.
func (f *Store) key() ([]byte, error) {
	if f.RecordKey == "" {
		return nil, nil
	}
	key, err := os.ReadFile(f.RecordKey)
	if err != nil {
		return nil, fmt.Errorf("reading the key for records (--record-key): %w", err)
	}
	if key = bytes.TrimSpace(key); len(key) < minRecordKey || len(key) > maxRecordKey {
		return nil, fmt.Errorf("the key for records in %s has %d bytes: it has %d to %d; make one by 'openssl rand -hex 32'", f.RecordKey, len(key), minRecordKey, maxRecordKey)
	}
	return key, nil
}

// storeFlush is for how long the proxy's end waits until all is written.
const storeFlush = 10 * time.Second

// openStore opens the store, if there is one, and keeps the policy in it.
func (s *service) openStore(ctx context.Context) error {
	c := &s.cfg.Store
	if !c.lasts() {
		return nil
	}
	key, err := c.key()
	if err != nil {
		return err
	}
	name, _ := os.Hostname()
	journal, err := stores.Open(ctx, stores.Config{
		URL: c.URL, Run: c.run(s.policy), Holder: fmt.Sprintf("process %d on %s", os.Getpid(), name),
		Log: func(message string, err error) { s.log.Warn("store: "+message, "error", err) },
	})
	if err != nil {
		return err
	}
	if m := s.tell.metrics; m != nil {
		m.Store(telemetry.StoreSources{
			Waiting: func() int { return s.store.Waiting() }, Size: func() int64 { return s.store.Size() }, Writable: func() bool { return s.store.Down() == nil },
		})
	}
	s.store = durable.Open(durable.Config{Journal: journal, Key: key, Timeout: c.Timeout, Compile: policyfile.Unpack, Wrote: s.tell.wrote(), Log: s.log})
	s.onClose(func() {
		ctx, stop := context.WithTimeout(context.Background(), storeFlush)
		defer stop()
		if err := s.store.Close(ctx); err != nil {
			s.log.Error("closing the store", "error", err)
		}
	})
	return s.keepPolicy(s.policy, s.from.File)
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
