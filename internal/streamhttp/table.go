package streamhttp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// table holds the sessions of a server and decides how many there may be.
type table struct {
	_        apart
	mu       sync.RWMutex        // guards what follows
	sessions map[string]*session // by id
	quota    quota               // of sessions and those about to be
	_        apart
}

func (t *table) init(cfg *ServerConfig) {
	t.quota = newQuota(cfg.Sessions, cfg.Share, cfg.PrincipalShare)
	t.sessions = make(map[string]*session)
}

// newID returns a session id of 128 random bits, in visible ASCII, and what
// stands for it in logs and event ids.
func newID() (id, tag string) {
	id = rand.Text()
	sum := sha256.Sum256([]byte(id))
	return id, hex.EncodeToString(sum[:4])
}

// reserve makes room for a session and reports whether there is any.
func (t *table) reserve(by party) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quota.take(by)
}

// release gives up what reserve made room for.
func (t *table) release(by party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quota.give(by)
}

// add puts a session into the room reserved for it.
func (t *table) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[s.id] = s
}

func (t *table) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.id] == s {
		delete(t.sessions, s.id)
		t.quota.give(s.party)
	}
}

func (t *table) find(id string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sessions[id]
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.sessions)
}

// all appends all sessions to list.
func (t *table) all(list []*session) []*session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.sessions {
		list = append(list, s)
	}
	return list
}

// takeRefused returns how many sessions were refused since the last call.
func (t *table) takeRefused() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quota.takeRefused()
}
