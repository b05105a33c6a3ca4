package tasks

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Kept is what is kept of a task that has the turn of a run, for as long as it has: what it takes to ask about it when the
// proxy has been started anew.
type Kept struct {
	ID           string         `json:"task"`
	Owner        wire.Principal `json:"owner"`
	Began        time.Time      `json:"began"`
	Created      string         `json:"created,omitzero"` // as the server says
	Poll         int64          `json:"poll_ms"`
	Stateless    bool           `json:"stateless,omitzero"` // the server
	Capabilities jsontext.Value `json:"capabilities,omitzero"`
	Info         jsontext.Value `json:"client,omitzero"`
	Left         *run.Left      `json:"call"` // of the call that began it
}

// maxIntroduction is how many bytes are kept of how a client is introduced; one that says more is nobody who is known.
const maxIntroduction = 16 << 10

// Keep returns what is to be kept of the task, with what is left of its call. From then on it does not end when the proxy
// does.
func (t *Task) Keep(left *run.Left) ([]byte, error) {
	k := Kept{ID: t.ID, Owner: t.Owner, Began: t.began.UTC(), Created: t.created, Poll: t.every.Milliseconds(), Stateless: bridge.Stateless.Follows(t.Conn.Server), Left: left}
	if len(t.by.Capabilities)+len(t.by.Info) <= maxIntroduction {
		k.Capabilities, k.Info = t.by.Capabilities, t.by.Info
	}
	text, err := json.Marshal(&k)
	if err == nil {
		t.kept.Store(true)
	}
	return text, err
}

// Read reads what [Task.Keep] has returned.
func Read(text []byte) (*Kept, error) {
	k := &Kept{}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, err
	}
	if k.ID == "" || k.Left == nil {
		return nil, errors.New("it names no task, or nothing of its call")
	}
	return k, nil
}

// Until is when a task that may take so long is given up; a beginning that lies in the future is now.
func (k *Kept) Until(takes time.Duration, now time.Time) time.Time {
	if k.Began.After(now) {
		return now.Add(takes)
	}
	return k.Began.Add(takes)
}

// Introduction is how the client is introduced that the task was begun for.
func (k *Kept) Introduction() bridge.Introduction {
	return bridge.Introduction{Capabilities: k.Capabilities, Info: k.Info}
}

// Client is how one speaks who can follow the task.
func (k *Kept) Client() bridge.Client {
	if k.Stateless {
		return bridge.Stateless
	}
	return bridge.Client{}
}

// Task is the task again; call is what is left of its call, which is called tool.
func (k *Kept) Task(call Call, tool string, patience time.Duration) *Task {
	t := &Task{ID: k.ID, Owner: k.Owner, Tool: tool, Call: call, began: k.Began, created: k.Created, by: k.Introduction(), patience: patience,
		every: min(max(time.Duration(k.Poll)*time.Millisecond, minPoll), maxPoll), again: true, known: make(chan struct{}), done: make(chan struct{}), left: make(chan struct{})}
	t.kept.Store(true)
	return t
}

// Again reports whether the task was begun before the proxy was started anew.
func (t *Task) Again() bool { return t.again }

// ErrGone is for a client that asks about a task that its server does not have, or has another one of its id in place of.
var ErrGone = errors.New("the server does not have the task any more")

// isAnother reports whether a state is that of another task, which has the id of one of before the proxy was started anew:
// its server may have been started anew as well, and number its tasks from 1.
func (t *Task) isAnother(state []byte) bool {
	now := created(state)
	return t.again && t.created != "" && now != "" && now != t.created
}

// Check asks the server, over the connection that a client's request about the task is to go by, whether it has the task
// still, where the answer to the request is not going to say so, or comes too late. [ErrGone]: it does not.
func (t *Task) Check(ctx context.Context, method string, conn *bridge.Upstream, tell func(run.Shifts)) error {
	if method == "tasks/get" || t.created == "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, t.patience)
	defer stop()
	state, err := t.state(ctx, conn)
	if err == nil && state == nil {
		err = t.gone(ctx, tell)
	}
	return err
}

// gone has the proxy find out by itself whether the task is there that a client's request has not found.
func (t *Task) gone(ctx context.Context, tell func(run.Shifts)) error {
	if !t.isOver() {
		if end, _ := t.ask(ctx); end.Outcome != 0 {
			t.End(end, tell)
		}
	}
	return ErrGone
}

// errRevision is a server that speaks otherwise than the one on which a task was begun.
var errRevision = errors.New("the server speaks another revision of the protocol than the task was begun in")

// GoOn asks the server about a task of before the proxy was started anew, over a connection that dial makes; when the
// server has said that it is there, known is called, and then the task is watched as ever. The first question waits for
// nothing. as is how one speaks who can follow it. A server that is not there is waited for until ctx ends: no call goes
// meanwhile that the task holds up.
func (t *Task) GoOn(ctx context.Context, as bridge.Client, dial func() (*bridge.Upstream, error), known func()) {
	for missed := 0; missed < maxMissed; {
		conn, err := dial()
		if err == nil && !as.Follows(conn.Server) {
			err = errRevision
		}
		var state []byte
		if err == nil {
			t.Conn = conn
			state, err = t.state(ctx, t.Conn)
		}
		switch {
		case err != nil:
			if _, absent := wire.Absent(err); !absent {
				missed++
			}
			if !t.pause(ctx, nil) {
				return
			}
			continue
		case state == nil:
			t.End(run.End{Outcome: policy.Unknown}, nil)
			return
		}
		known()
		close(t.known)
		if end, _ := t.outcome(ctx, state); end.Outcome != 0 {
			t.End(end, nil)
			return
		}
		t.Watch(ctx)
		return
	}
	t.End(run.End{Outcome: policy.Unknown}, nil)
}

// Known waits until it is known whether the server knows the task still, and reports false if one of the others ends
// first.
func (t *Task) Known(cancelled, ending <-chan struct{}) bool {
	select {
	case <-t.known:
	case <-t.done:
	case <-cancelled:
		return false
	case <-ending:
		return false
	}
	return true
}
