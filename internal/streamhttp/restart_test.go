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
	r := newRig(c.t, ServerConfig{Unanswered: lostAnswer, Resume: func(own wire.Stream, info PeerInfo) (wire.Session, error) {
		s := &script{own: own, info: info, on: on, listen: make(chan struct{}, 100), closed: make(chan struct{})}
		v := c.Version()
		s.version.Store(&v)
		begun <- s
		return s, nil
	}}, on)
	r.do(post1(ping, c.id)).want(c.t, 200, "result")
	return &client{rig: r, script: <-begun, id: c.id}
}

// lostAnswer is what a request is answered that was under way at a restart.
func lostAnswer(id []byte) []byte { return wire.ErrorAnswer(id, wire.CodeInternal, "lost", nil) }

// A request that was under way at a restart is answered once its client comes back for the answer: under its id, by whichever event id
// it comes back, as often as it comes. Who has had the answer is told so, and so is who makes event ids up.
func TestRequestsUnderWayAtARestart(t *testing.T) {
	release := make(chan struct{})
	before := newRig(t, ServerConfig{}, chatty(release)).begin("2025-11-25")
	long := `"` + strings.Repeat("x", maxAsked) + `"`
	stream := func(id string) (ids []string) {
		s := before.open(strings.Replace(call(1, "slow"), `"id":1`, `"id":`+id, 1)).events()
		return append(ids, s.next().id, s.message(`"data":1`).id)
	}
	number, text, tooLong := stream("7"), stream(`"a.b\"c"`), stream(long)
	finished := before.open(call(9, "slow")).events()
	had := []string{finished.next().id}
	close(release)
	for _, want := range []string{`"data":1`, `"data":2`, `"id":9`} {
		had = append(had, finished.message(want).id)
	}
	c := before.restart(chatty(release))
	for id, old := range map[string][]string{"7": number, `"a.b\"c"`: text, "9": had[:3]} {
		for _, event := range append(old, old...) {
			p := c.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+event)).want(t, 200, `"lost"`)
			if strings.Count(p.body, "data: ") != 1 || !strings.Contains(p.body, `"id":`+id+`,`) || len(event) > 40+len(id)*4/3 {
				t.Errorf("%s: %s", event, p.body)
			}
		}
	}
	cut := number[0][:strings.LastIndex(number[0], ".")]
	for _, event := range append(tooLong, had[3], cut, cut+".", cut+".!", cut+".e30", cut+".bnVsbA", cut+".Nw.Nw", "x"+number[0], strings.Replace(number[0], "-", "_", 1)) {
		c.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+event)).want(t, 400, "A request that has no answer may have happened")
	}
	for _, event := range []string{number[0], cut[:strings.Index(cut, ".")] + ".0.1"} {
		once := "Last-Event-ID: " + event + "\r\n"
		twice := strings.Replace(request("GET", "/mcp", "", c.id, strings.TrimSpace(once)), once, once+once, 1)
		c.do(twice).want(t, 400, "is from before")
	}
	other := before.rig.begin("2025-11-25")
	other = other.restart(nil)
	other.do(request("GET", "/mcp", "", other.id, "Last-Event-ID: "+number[0])).want(t, 400, "")
}

// Who comes back for the answer is told that it is lost, also where the session's store is full of what is still to be sent.
func TestARequestUnderWayAtARestartWhileTheStoreIsFull(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	before := newRig(t, ServerConfig{}, chatty(release)).begin("2025-11-25")
	old := before.open(call(7, "slow")).events().next().id
	c := before.restart(nil)
	for n := 0; c.own.Send(note(n)); n++ {
	}
	for c.own.Send([]byte("{}")) { // no room is left for an answer
	}
	c.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+old)).want(t, 200, `"lost"`)
	own := c.stream()
	defer own.Close()
	own.message(`"data":0`)
}

// An event id from before a restart names no event of now, whatever streams and events there are by then: the session's stream goes
// on with what has not been sent.
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
	others := 100
	anew := func(when string) {
		t.Helper()
		for _, id := range old {
			if strings.Count(id, ".") == 3 { // of a request
				if p := c.do(request("GET", "/mcp", "", c.id, "Last-Event-ID: "+id)).want(t, 200, `"lost"`); strings.Count(p.body, "data: ") != 1 {
					t.Errorf("%s: %s", when, p.body)
				}
				continue
			}
			own := c.stream("Last-Event-ID: " + id)
			others++
			c.own.Send(note(others))
			own.message(fmt.Sprintf(`"data":%d`, others))
			own.Close()
		}
	}
	anew("nothing has happened yet")
	now := seen(c)
	anew("there are as many streams and events as before")
	for i, id := range now {
		if c.stream("Last-Event-ID: " + id).Close(); id == old[i] {
			t.Errorf("%s is an id of before, too", id)
		}
	}
	if c = c.restart(chatty(release)); len(seen(c)) != len(old) {
		t.Fatal("not as many")
	}
	anew("after another restart")
	old = now
	anew("of which these are from before")
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

// kept is a session that is kept elsewhere.
type kept struct {
	*script
	forget func() error
}

func (k kept) Forget() error { return k.forget() }

// A session whose end is not known to be for good goes on, and its client is told to try again.
func TestASessionThatCannotEndJustNow(t *testing.T) {
	var told []Reason
	why, ses := errors.New("failed to connect to `user=fsm database=runs`: 10.0.0.7:5432"), (*script)(nil)
	r := startRigWith(t, NewServer(ServerConfig{
		Refused: func(why Reason, _ int, _ *http.Request) { told = append(told, why) },
		Open: func(own wire.Stream, info PeerInfo) (wire.Session, error) {
			ses = &script{own: own, info: info, listen: make(chan struct{}, 100), closed: make(chan struct{})}
			return kept{ses, func() error {
				select {
				case <-ses.closed:
					t.Error("it is closed before it is forgotten")
				default:
				}
				return why
			}}, nil
		},
	}))
	id := headerSession + ": " + r.do(post1(initialize())).want(t, 200, "result").Header.Get(headerSession)
	for range 2 {
		r.do(request("DELETE", "/mcp", "", id)).want(t, 503, "the session cannot be ended just now, and goes on; try again\n").wantHeader(t, "Retry-After", "1")
		r.do(post1(ping, id)).want(t, 200, "result")
	}
	why = nil
	r.do(request("DELETE", "/mcp", "", id)).want(t, 204, "")
	<-ses.closed
	r.do(request("DELETE", "/mcp", "", id)).want(t, 404, "")
	if fmt.Sprint(told) != "[session_unavailable session_unavailable session_unknown]" {
		t.Errorf("the reasons are %v", told)
	}
}
