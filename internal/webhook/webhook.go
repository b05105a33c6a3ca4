// Package webhook posts events to one URL, signed as Standard Webhooks has it (https://www.standardwebhooks.com): what
// cannot be posted is tried again, and what waits is bounded. It tells, and takes nothing from who answers.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config is where events go.
type Config struct {
	URL  string
	Key  func() string // whsec_ and base64; it is asked for each event
	Log  hclog.Logger
	Base time.Duration // before the second attempt, doubled for each one more; 0: 1s
}

// Bounds of what a Sender does.
const (
	maxEvents   = 256              // under way
	maxPosts    = 16               // attempts at once
	maxAttempts = 8                // of an event
	maxTime     = 10 * time.Second // of an attempt
	minKey      = 24               // bytes, as Standard Webhooks has it
)

// Sender posts events, each on its own: one that is not taken holds no other up. It is safe for concurrent use. Each
// event has a goroutine until it is taken, given up or void; they end with [Sender.Close].
type Sender struct {
	cfg    Config
	client http.Client
	events chan struct{} // one for each event under way
	posts  chan struct{} // one for each attempt under way
	ctx    context.Context
	stop   context.CancelFunc
	mu     sync.Mutex // held while an event begins
	done   sync.WaitGroup
}

// Event is what is posted.
type Event struct {
	ID   string
	Body []byte
	Void func() bool // whether nobody needs to be told any more; it is asked before each attempt
}

// New returns a Sender that posts.
func New(cfg Config) (*Sender, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("it is no URL of http or https")
	}
	if _, err := readKey(cfg.Key()); err != nil {
		return nil, err
	}
	if cfg.Base == 0 {
		cfg.Base = time.Second
	}
	s := &Sender{cfg: cfg, events: make(chan struct{}, maxEvents), posts: make(chan struct{}, maxPosts),
		client: http.Client{Timeout: maxTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// readKey reads a signing key.
func readKey(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minKey {
		return nil, fmt.Errorf("the key is none: it has to be whsec_ and %d bytes or more in base64, such as of: echo whsec_$(openssl rand -base64 32)", minKey)
	}
	return key, nil
}

// Send has an event posted. It does not block: one too many is dropped, and the log says so.
func (s *Sender) Send(e Event) {
	s.mu.Lock() // so that nothing begins while Close waits for the end
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	select {
	case s.events <- struct{}{}:
		s.done.Go(func() {
			defer func() { <-s.events }()
			s.post(e)
		})
	default:
		s.cfg.Log.Warn("a webhook was dropped: too many wait", "id", e.ID)
	}
}

// Close ends the posting, and waits for that. What was not taken yet is dropped.
func (s *Sender) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.done.Wait()
	s.client.CloseIdleConnections()
}

// post posts an event until it is taken or void, or has been tried often enough.
func (s *Sender) post(e Event) {
	wait := s.cfg.Base
	for attempt := 1; ; attempt++ {
		err := s.attempt(e)
		switch {
		case err == nil || s.ctx.Err() != nil:
			return
		case attempt == maxAttempts:
			s.cfg.Log.Warn("a webhook was given up: nobody takes it", "id", e.ID, "attempts", attempt, "error", err)
			return
		}
		s.cfg.Log.Debug("a webhook was not taken, and is tried again", "id", e.ID, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		wait *= 2
	}
}

// attempt posts an event once, when there is room for it, unless it is void.
func (s *Sender) attempt(e Event) error {
	select {
	case s.posts <- struct{}{}:
		defer func() { <-s.posts }()
	case <-s.ctx.Done():
		return nil
	}
	if e.Void() {
		return nil
	}
	key, err := readKey(s.cfg.Key())
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(e.Body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "fsm-proxy")
	r.Header.Set("Webhook-Id", e.ID)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", Signature(key, e.ID, at, e.Body))
	answer, err := s.client.Do(r)
	if err != nil {
		return errors.Unwrap(err) // without the URL, which may be a secret
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("it was answered with %s", answer.Status)
	}
	return nil
}

// Signature signs what is posted.
func Signature(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
