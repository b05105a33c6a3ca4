package streamhttp

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Follower is where an answer of another process's [Server] is written, which it follows: where an event stream breaks off, it can
// still be given its response. It is not safe for concurrent use.
type Follower struct {
	http.ResponseWriter
	start    []byte      // what was written of a line, as much of it as tells a message
	message  wire.IDScan // of the event that is written
	inside   bool        // an event has begun, and not ended
	answered bool        // a response was written
	resumes  bool        // the client was told when to come back to a stream that breaks off
}

// Unwrap is for [http.ResponseController].
func (f *Follower) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// Write implements [http.ResponseWriter].
func (f *Follower) Write(p []byte) (int, error) {
	if f.events() {
		f.follow(p)
	}
	return f.ResponseWriter.Write(p)
}

// events reports whether the answer is an event stream.
func (f *Follower) events() bool { return f.Header().Get("Content-Type") == valueEvents[0] }

// What the lines of a message begin with, and of when to come back.
const messageField, retryField = "data: ", "retry:"

// follow takes what comes next of events as [stream] writes them: lines end with LF, and a message is one line.
func (f *Follower) follow(p []byte) {
	for len(p) > 0 {
		line, rest, ends := bytes.Cut(p, []byte("\n"))
		p, f.inside = rest, true
		n := min(len(line), len(messageField)-len(f.start))
		f.start, line = append(f.start, line[:n]...), line[n:]
		if string(f.start) == messageField {
			_, _ = f.message.Write(line)
		}
		if !ends {
			return
		}
		f.resumes = f.resumes || string(f.start) == retryField
		if len(f.start) == 0 {
			f.answered, f.message, f.inside = f.answered || f.message.Responds(), wire.IDScan{}, false
		}
		f.start = f.start[:0]
	}
}

// Resumes reports whether the client comes back for what has broken off, by the id of an event: one of 2025-11-25 does.
func (f *Follower) Resumes() bool { return f.resumes }

// Finish writes a response as the last event of a stream that has broken off, unless it has had one. In the midst of an event
// it panics with [http.ErrAbortHandler], so that the client hears of that.
func (f *Follower) Finish(response []byte) {
	if f.inside {
		panic(http.ErrAbortHandler)
	}
	if f.events() && !f.answered {
		_, _ = fmt.Fprintf(f.ResponseWriter, "event: message\n%s%s\n\n", messageField, wire.OneLine(response))
	}
}
