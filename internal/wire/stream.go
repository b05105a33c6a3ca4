package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
)

// Stream carries messages to a client in the order they are given. All
// messages are whole JSON texts without framing. Its methods are safe for
// concurrent use and never wait for the client: what the client does not take
// is queued up to a bound, beyond which the stream closes.
type Stream interface {
	// Send gives the client a notification or a request. It reports false
	// where this stream cannot carry it (a POST whose client accepts no
	// event stream, one already answered, a GET stream nobody listens to and
	// whose store is full): the caller may then take another stream.
	Send(msg []byte) bool
	// Answer gives the client the answer to the request that the stream was
	// opened for. On a stream of its own (HTTP POST) it is the last message.
	// A nil msg says that no answer is due (the request was cancelled): such
	// a stream ends without one.
	Answer(msg []byte)
	// Listening reports whether a message sent now goes out at once.
	Listening() bool
}

// ResultStream is a Stream that need not be given an answer as one piece.
type ResultStream interface {
	Stream
	// AnswerResult is Answer of [ResultAnswer] with the same arguments, which
	// must not be changed any more, and need not be copied.
	AnswerResult(id, result []byte)
}

// DecliningStream is a Stream that can say that a request is not taken here
// now, so that who sent it may try elsewhere (HTTP 503).
type DecliningStream interface {
	Stream
	// Decline is Answer of an error that says so.
	Decline(msg []byte)
}

// Decline says on a stream that its request is not taken here now, as far as it can.
func Decline(s Stream, msg []byte) {
	if out, ok := s.(DecliningStream); ok {
		out.Decline(msg)
		return
	}
	s.Answer(msg)
}

// FailingStream is a Stream on which an answer's code can decide more than its
// bytes (HTTP of the modern era: the status).
type FailingStream interface {
	Stream
	// Fail is Answer of an error with this JSON-RPC code.
	Fail(code int, msg []byte)
}

// HeadedStream is a Stream of a request that came with headers (HTTP).
type HeadedStream interface {
	Stream
	// Header returns the first value of a header of the request, by its canonical
	// name. It is to be called before the session's Handle returns.
	Header(name string) string
	// Headers returns all values of a header, likewise. They must not be changed.
	Headers(name string) []string
}

// AskedStream is a Stream of a request of which it is known who asks.
type AskedStream interface {
	Stream
	// Asks returns on whose behalf this request comes; nil: nobody is known.
	Asks() *asker.Who
}

// HurriedStream is a Stream of a request that is to be answered sooner than others, as far as that is up to who answers it.
type HurriedStream interface {
	Stream
	// Until returns up to when the request may wait for somebody's word; zero: for as long as any.
	Until() time.Time
}

// WaitsOn returns for how long the request that has this stream may wait for somebody's word, most at most.
func WaitsOn(s Stream, most time.Duration) time.Duration {
	if hurried, ok := s.(HurriedStream); ok && !hurried.Until().IsZero() {
		return min(time.Until(hurried.Until()), most)
	}
	return most
}

// ElsewhereError is the error of what somebody else has in place of this process, which is to be asked there.
type ElsewhereError interface {
	error
	// AskAll reports whether nobody knows who has it, and all others are to be asked, once.
	AskAll() bool
	// Gone reports whether this process may have had it until just now, so that nobody else may have it yet.
	Gone() bool
}

// MovingStream is the stream of a request that somebody else can serve in place of this process.
type MovingStream interface {
	Stream
	// Move has the request served elsewhere: nothing was sent or answered here, nothing was done, and nothing
	// more comes on the stream. why says where. It reports false if that cannot be: then the request is to be
	// answered.
	Move(why error) bool
}

// MoveOn has the request that has this stream served elsewhere, as [MovingStream] does, and reports false if that
// cannot be.
func MoveOn(s Stream, why error) bool {
	moving, ok := s.(MovingStream)
	return ok && moving.Move(why)
}

// Pauser is a [Stream] whose response can end before its answer, so that the client
// comes back for the rest (SSE polling, 2025-11-25, SEP-1699), or the tag of a
// request (see [Receiver]) that passes this on to its stream.
type Pauser interface {
	// Pause tells that the upstream has ended the response in that way, and has
	// asked to be asked again after retry. It does not block.
	Pause(retry time.Duration)
}

// Session is what a framing hands the messages of one client to. proxy
// implements it.
type Session interface {
	// Handle takes one message in the order of arrival; s is where the
	// answer goes, and messages that belong to the request. It does not
	// block. What is decided at once is decided when it returns; for a
	// request that has to wait it returns the rest as a Pending, whose Wait
	// the caller must run, on a goroutine of its own where more messages may
	// come. A nil Pending: all done (an answer, if one was due, is given).
	Handle(m *Message, s Stream) Pending
	// Version is the negotiated protocol revision, empty until initialize has
	// succeeded.
	Version() string
	// Listen tells that the session's own stream has got a listener (HTTP: a
	// GET was opened), so that what waited for one can go out.
	Listen()
	// Close ends the session: calls in flight are cancelled upstream and its
	// upstream connection is closed. It waits for neither.
	Close()
}

// WitnessSession is a Session that is told of what its client sent and nobody
// could read.
type WitnessSession interface {
	Session
	// Unreadable is told why, before the client is. It may block.
	Unreadable(err error)
}

// Unread tells a session of a message that could not be read.
func Unread(s Session, err error) {
	if w, ok := s.(WitnessSession); ok {
		w.Unreadable(err)
	}
}

// Pending is the rest of a request that has to wait.
type Pending interface {
	// Wait blocks until the request's answer was given to its stream.
	Wait()
	// Detach reports whether the rest goes on by itself: then done is called
	// once the answer was given, on any goroutine, and must not block. Else
	// nothing has happened and Wait is to be called.
	Detach(done func()) bool
}

// Cancellable is a Pending whose client can call the request off without a
// message (HTTP of the modern era: it closes the response stream).
type Cancellable interface {
	Pending
	// Cancel cancels the request. It does not block, and may come at any time,
	// while Wait blocks and after it, too.
	Cancel()
}

// Receiver takes what an upstream sends besides answers.
type Receiver interface {
	// Receive takes a request or a notification of the upstream, in order.
	// tag is that of the request to which the message belongs (its POST's
	// stream, or its progress token), nil where it belongs to none that is
	// known. It must not block.
	Receive(m *Message, tag any)
}

// CallError says why a request that was to go upstream has no answer.
type CallError struct {
	// Sent tells that bytes of the request may have reached the upstream.
	Sent bool
	// Status is the HTTP status of an answer that was no JSON-RPC message,
	// else 0.
	Status int
	// RetryAfter is how long to wait before another attempt makes sense,
	// where that is known.
	RetryAfter time.Duration
	// Err is what happened.
	Err error
}

// Error says what happened, with the HTTP status where there is one.
func (e *CallError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("upstream answered HTTP %d: %v", e.Status, e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// Absent reports whether an error is that of an upstream that was not there: nothing was sent, and another attempt makes sense
// after retry.
func Absent(err error) (retry time.Duration, ok bool) {
	lost, ok := errors.AsType[*CallError](err)
	if !ok || lost.Sent || lost.RetryAfter <= 0 {
		return 0, false
	}
	return lost.RetryAfter, true
}

// Call is one request under way upstream.
type Call interface {
	// Wait blocks until the answer is there (a Result or a Failure), or there
	// can be none: then the error is a [*CallError]. It is called once. When
	// ctx ends the call is given up: a late answer is dropped.
	Wait(ctx context.Context) (*Message, error)
	// Then has done called with what Wait would return, in place of it, on
	// the goroutine that reads from the upstream: done must not block. giveUp
	// ends the call as the end of Wait's ctx does. ok is false where the
	// answer needs a goroutine that waits for it: then Wait is to be called.
	Then(done func(*Message, error)) (giveUp func(), ok bool)
	// Cancel tells the upstream that the request is cancelled. params are
	// those of a client's notifications/cancelled, whose requestId is replaced
	// by the upstream's, or nil. The answer may come all the same. It does not
	// block.
	Cancel(params []byte)
	// Overdue reports that the answer has not come in time, so that the upstream side can
	// find out whether the upstream still answers anything. It does not block.
	Overdue()
}
