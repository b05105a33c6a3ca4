package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config says how a [Client] reaches its server.
type Config struct {
	// URL is the server's MCP endpoint. Required.
	URL *url.URL
	// Header goes with every request.
	Header http.Header
	// Authorize returns the value of the Authorization header for the next
	// request, empty for none. nil: none.
	Authorize func(context.Context) (string, error)
	// Rejected is told of each answer 401. nil: nobody is.
	Rejected func(*http.Response)
	// Transport carries the requests: see [http1.New]. Clients of the same
	// server share one. Required.
	Transport http.RoundTripper
	// MaxMessage bounds a message from the server, in bytes. Required.
	MaxMessage int
	// MaxQueue bounds what waits to be posted by [Client.Notify], in bytes.
	// 0: 16 MiB.
	MaxQueue int
	// Log is told what no caller can be told. Required.
	Log hclog.Logger
	// Receive takes the messages of the session's own stream (GET), in order.
	// Required.
	Receive func(raw []byte)
	// Opened is called each time the session's own stream was opened anew and
	// not resumed: what the server said before is lost. nil: nobody is told.
	Opened func()
	// Streams is called when the server answers a request with an event stream, which
	// it may end before the answer. nil: nobody is told.
	Streams func()
	// Gone is called once, when the server has said that it knows the session
	// no more, or when the stream of HTTP+SSE has ended. It must not call the
	// client's Close. Required.
	Gone func(error)
}

// Sink takes what arrives on the stream of a POST.
type Sink interface {
	// Take takes a message or a batch. It reports whether the request is
	// over: what comes later is still taken, but nobody waits for it.
	Take(raw []byte) bool
	// Refused takes the JSON body of an HTTP error status. It reports whether
	// that is the answer.
	Refused(raw []byte) bool
	// Paused is told that the server has ended the request's stream before its
	// answer, having said after what time to come back for that. It is done, where
	// the server gave an event id.
	Paused(retry time.Duration)
}
