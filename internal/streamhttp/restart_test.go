package streamhttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// restart is a server that goes on with a client's session, as one that was started anew.
func (c *client) restart(on behaviour) *client {
	c.t.Helper()
	begun := make(chan *script, 1)
	r := newRig(c.t, ServerConfig{Resume: func(own wire.Stream, info PeerInfo) (wire.Session, error) {
		s := &script{own: own, info: info, on: on, listen: make(chan struct{}, 100), closed: make(chan struct{})}
		v := c.Version()
		s.version.Store(&v)
		begun <- s
		return s, nil
	}}, on)
	r.do(post1(ping, c.id)).want(c.t, 200, "result")
	return &client{rig: r, script: <-begun, id: c.id}
}

// An event id from before a restart names no event of now, whatever streams and events there are by then.
func TestEventIDsFromBeforeARestart(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	seen := func(c *client) (ids []string) { // of the session's own stream, and of a request's
		for i := range 3 {
			c.own.Send(note(i))
		}
		own, s := c.stream(), c.open(call(1, "slow")).events()
		for i := range 3 {
			ids = append(ids, own.message(fmt.Sprintf(`"data":%d`, i)).id)
		}
		return append(ids, s.next().id, s.message(`"data":1`).id)
	}
	before := newRig(t, ServerConfig{}, chatty(release)).begin("2025-11-25")
	old := seen(before)
	c := before.restart(chatty(release))
	refused := func(when string) {
		t.Helper()
		for _, id := range old {
			p := c.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+id)).want(t, 400, "restarted")
			if !strings.Contains(p.body, "by a GET without it") || !strings.Contains(p.body, "may have happened") {
				t.Errorf("%s: %s", when, p.body)
			}
		}
	}
	refused("nothing has happened yet")
	now := seen(c)
	refused("there are as many streams and events as before")
	for i, id := range now {
		if c.stream("Last-Event-ID: " + id).Close(); id == old[i] {
			t.Errorf("%s is an id of before, too", id)
		}
	}
	if c = c.restart(chatty(release)); len(seen(c)) != len(old) {
		t.Fatal("not as many")
	}
	refused("after another restart")
	old = now
	refused("of which these are from before")
}

// Event ids tell a session's tag, which the log has as well, and nothing else of its id; they are short.
func TestEventIDsTellNoSessionID(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c, ids := r.begin("2025-11-25"), map[string]bool{}
	secret := strings.TrimPrefix(c.id, "Mcp-Session-Id: ")
	for range 4 {
		c = c.restart(nil)
		s := c.stream()
		id := s.next().id
		s.Close()
		if ids[id] = true; len(id) > 40 || !strings.HasPrefix(id, c.info.Session+"-") {
			t.Errorf("the id is %q, of the session %s", id, c.info.Session)
		}
		for i := range len(secret) - 7 {
			if strings.Contains(id, secret[i:i+8]) {
				t.Errorf("%q tells of %q", id, secret)
			}
		}
	}
	if len(ids) != 4 {
		t.Errorf("lives of a session have the same ids: %v", ids)
	}
}

// Why a session cannot go on just now is nothing for its client, who is told to try again; nor is it that there is no such session.
func TestASessionThatCannotGoOnJustNow(t *testing.T) {
	var told []Reason
	r := newRig(t, ServerConfig{
		Sessions: 1, Refused: func(why Reason, _ int, _ *http.Request) { told = append(told, why) },
		Resume: func(wire.Stream, PeerInfo) (wire.Session, error) {
			return nil, errors.New("failed to connect to `user=fsm database=runs`: 10.0.0.7:5432")
		},
	}, nil)
	want := "the session cannot go on just now; try again"
	for range 2 { // what one takes is given back
		r.do(post1(ping, someID)).want(t, 503, want+"\n").wantHeader(t, "Retry-After", "1")
		r.do(request("GET", "/mcp", "", someID)).want(t, 503, want+"\n")
	}
	r.begin("2025-06-18")
	r.do(post1(ping, someID)).want(t, 503, want+": there are too many sessions\n")
	if fmt.Sprint(told) != "[session_unavailable session_unavailable session_unavailable session_unavailable sessions_full]" {
		t.Errorf("the reasons are %v", told)
	}
}

// A session that cannot begin just now is refused as what is to be tried again.
func TestASessionThatCannotBeginJustNow(t *testing.T) {
	var told []Reason
	r := startRigWith(t, NewServer(ServerConfig{
		Sessions: 1, Refused: func(why Reason, _ int, _ *http.Request) { told = append(told, why) },
		Open: func(wire.Stream, PeerInfo) (wire.Session, error) {
			return nil, fmt.Errorf("finding a run: %w", &NotNowError{Text: "Nothing was done; try again later."})
		},
	}))
	for range 2 { // what one takes is given back
		r.do(post1(initialize())).want(t, 503, `"error":{"code":-32603,"message":"Nothing was done; try again later."}`).
			wantHeader(t, "Retry-After", "1").wantHeader(t, headerSession, "")
	}
	if fmt.Sprint(told) != "[session_unavailable session_unavailable]" {
		t.Errorf("the reasons are %v", told)
	}
}
