//go:build long

package matrix

import (
	"strings"
	"sync"
	"testing"
)

// clients play a scenario against a target and return what they saw.
var clients = map[string]func(t *testing.T, scenario string, u target) []line{
	"typescript-sdk-1": func(t *testing.T, scenario string, u target) []line {
		return playNode(t, "sdk1.mjs", scenario, u)
	},
	"typescript-sdk-2": func(t *testing.T, scenario string, u target) []line {
		return playNode(t, "sdk2.mjs", scenario, u)
	},
	"go-sdk": func(t *testing.T, scenario string, u target) []line {
		return playGo(t, scenario, u, 0)
	},
}

// Every client sees the same session through the proxy as on a direct connection, with every server, over
// every pairing of framings.
func TestClientMatrix(t *testing.T) {
	t.Parallel()
	for client, play := range clients {
		for _, u := range upstreams {
			t.Run(client+"/"+u.name, func(t *testing.T) {
				t.Parallel()
				direct := directSession(t, client, u)
				for downstream, before := range downstreams {
					t.Run(downstream, func(t *testing.T) {
						server := u.start(t)
						proxied := before(t, openPolicy(t, u.bound), server)
						lines := play(t, scenarioFile(t, u.scenario, server), proxied)
						sameSession(t, direct, comparable(t, lines, server.folder, u.bound))
					})
				}
			})
		}
	}
}

// Two direct sessions are alike: only then does a difference through the proxy mean something.
func TestDirectSessionsAreAlike(t *testing.T) {
	t.Parallel()
	for client, play := range clients {
		for _, u := range upstreams {
			t.Run(client+"/"+u.name, func(t *testing.T) {
				t.Parallel()
				sameSession(t, directSession(t, client, u), playDirect(t, u, play))
			})
		}
	}
}

// shared are values that several tests need. Who needs one first makes it.
type shared[V any] struct {
	mu   sync.Mutex // guards made
	made map[string]*made[V]
}

type made[V any] struct {
	once  sync.Once
	value V
}

func (s *shared[V]) get(key string, produce func() V) V {
	s.mu.Lock()
	if s.made == nil {
		s.made = map[string]*made[V]{}
	}
	if s.made[key] == nil {
		s.made[key] = &made[V]{}
	}
	m := s.made[key]
	s.mu.Unlock()
	m.once.Do(func() { m.value = produce() })
	return m.value
}

var directSessions shared[[]string]

// directSession is what a client sees of a server on a direct connection.
func directSession(t *testing.T, client string, u upstream) []string {
	t.Helper()
	seen := directSessions.get(client+"/"+u.name, func() []string { return playDirect(t, u, clients[client]) })
	if len(seen) == 0 {
		t.Fatal("there is no direct session to compare with")
	}
	return seen
}

func playDirect(t *testing.T, u upstream, play func(*testing.T, string, target) []line) []string {
	t.Helper()
	start := u.start
	if u.direct != nil {
		start = u.direct
	}
	server := start(t)
	lines := play(t, scenarioFile(t, u.scenario, server), server)
	return comparable(t, lines, server.folder, u.bound)
}

// A person takes 45 seconds to answer an elicitation: nothing on the way may give up before.
func TestElicitationAnsweredAfter45Seconds(t *testing.T) {
	t.Parallel() // so that others run while it waits
	const seconds = 45
	slow := map[string]func(t *testing.T, scenario string, u target) []line{
		"typescript-sdk-1": func(t *testing.T, scenario string, u target) []line {
			return playNode(t, "sdk1.mjs", scenario, u, "--answer-after", "45")
		},
		"typescript-sdk-2": func(t *testing.T, scenario string, u target) []line {
			return playNode(t, "sdk2.mjs", scenario, u, "--answer-after", "45")
		},
		"go-sdk": func(t *testing.T, scenario string, u target) []line {
			return playGo(t, scenario, u, seconds)
		},
	}
	for client, play := range slow {
		for _, u := range upstreams[:2] {
			for downstream, before := range downstreams {
				t.Run(client+"/"+u.name+"/"+downstream, func(t *testing.T) {
					t.Parallel()
					server := u.start(t)
					lines := play(t, scenarioFile(t, "elicitation", server), before(t, openPolicy(t, nil), server))
					texts := comparable(t, lines, "", nil)
					if !strings.Contains(texts[1], "User provided the requested information") {
						t.Errorf("after 45 s the client saw %s", texts[1])
					}
					if !strings.Contains(texts[2], "still here") {
						t.Errorf("the next call gave %s", texts[2])
					}
				})
			}
		}
	}
}
