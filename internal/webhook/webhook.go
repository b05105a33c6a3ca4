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
	maxQueue    = 256
	maxAttempts = 8
	maxTime     = 10 * time.Second // of an attempt
	minKey      = 24               // bytes, as Standard Webhooks has it
)

// Sender posts events one after the other. It is safe for concurrent use. One goroutine posts, and ends with
// [Sender.Close].
type Sender struct {
	cfg    Config
	client http.Client
	queue  chan event
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{}
}

type event struct {
	id   string
	body []byte
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
	s := &Sender{cfg: cfg, queue: make(chan event, maxQueue), done: make(chan struct{}),
		client: http.Client{Timeout: maxTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	go s.run()
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

// Send has an event posted under an id. It does not block: one too many is dropped, and the log says so.
func (s *Sender) Send(id string, body []byte) {
	select {
	case s.queue <- event{id, body}:
	default:
		s.cfg.Log.Warn("a webhook was dropped: too many wait", "id", id)
	}
}

// Close ends the posting, and waits for that. What waits is dropped.
func (s *Sender) Close() {
	s.stop()
	<-s.done
}

func (s *Sender) run() {
	defer close(s.done)
	defer s.client.CloseIdleConnections()
	for {
		select {
		case e := <-s.queue:
			s.post(e)
		case <-s.ctx.Done():
			return
		}
	}
}

// post posts an event until it is taken, or has been tried often enough.
func (s *Sender) post(e event) {
	wait := s.cfg.Base
	for attempt := 1; ; attempt++ {
		err := s.attempt(e)
		switch {
		case err == nil || s.ctx.Err() != nil:
			return
		case attempt == maxAttempts:
			s.cfg.Log.Warn("a webhook was given up: nobody takes it", "id", e.id, "attempts", attempt, "error", err)
			return
		}
		s.cfg.Log.Debug("a webhook was not taken, and is tried again", "id", e.id, "error", err)
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

func (s *Sender) attempt(e event) error {
	key, err := readKey(s.cfg.Key())
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(e.body))
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "fsm-proxy")
	r.Header.Set("Webhook-Id", e.id)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", Signature(key, e.id, at, e.body))
	answer, err := s.client.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err // without the URL, which may be a secret
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
