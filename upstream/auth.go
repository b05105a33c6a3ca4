package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// authorizer makes the Authorization header of HTTP requests.
type authorizer interface {
	header(context.Context) (string, error)
	// rejected is told of an answer 401.
	rejected(*http.Response)
	// renewed reports whether it is worth trying a rejected request, of which
	// the upstream has done nothing, once more.
	renewed(err error) bool
	close()
}

func newAuthorizer(cfg *Config) (authorizer, error) {
	switch {
	case cfg.BearerFile != "":
		b := &bearerFile{path: cfg.BearerFile}
		_, err := b.header(context.Background())
		return b, err
	case cfg.OAuth != nil:
		return newOAuth(cfg), nil
	}
	return nil, nil
}

// bearerEvery is how often the bearer file is looked at, at most.
const bearerEvery = time.Second

// bearerFile gives the token that a file holds. A file that cannot be read any
// more keeps its last token: it may be about to be replaced.
type bearerFile struct {
	path string

	mu      sync.Mutex // guards what follows
	value   string
	looked  time.Time
	changed time.Time
	size    int64
}

func (b *bearerFile) header(context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.value != "" && time.Since(b.looked) < bearerEvery {
		return b.value, nil
	}
	b.looked = time.Now()
	if err := b.readLocked(); err != nil && b.value == "" {
		return "", err
	}
	return b.value, nil
}

func (b *bearerFile) readLocked() error {
	info, err := os.Stat(b.path)
	if err != nil {
		return fmt.Errorf("reading the upstream's bearer file: %w", err)
	}
	if b.value != "" && info.ModTime().Equal(b.changed) && info.Size() == b.size {
		return nil
	}
	raw, err := os.ReadFile(b.path)
	if err != nil {
		return fmt.Errorf("reading the upstream's bearer file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsAny(token, " \t\r\n\x00") {
		return fmt.Errorf("reading the upstream's bearer file %s: it must hold one token and nothing else", b.path)
	}
	b.value, b.changed, b.size = "Bearer "+token, info.ModTime(), info.Size()
	return nil
}

// rejected has the file read again by the next request.
func (b *bearerFile) rejected(*http.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked = time.Time{}
}

func (b *bearerFile) renewed(err error) bool { return isUnauthorized(err) }

func (b *bearerFile) close() {}

func isUnauthorized(err error) bool {
	e, ok := errors.AsType[*wire.CallError](err)
	return ok && e.Status == http.StatusUnauthorized
}
