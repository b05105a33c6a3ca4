package streamhttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// An event stream that breaks off is given its response if it has had none, whatever of it came at once. In the midst of an event
// it is broken off for its client, too.
func TestFollower(t *testing.T) {
	const (
		told   = "event: message\nid: 7\ndata: {\"method\":\"x\",\"params\":{\"result\":1}}\n\n"
		asked  = ": ok\n\ndata: {\"id\":1,\"method\":\"x\"}\n\n"
		finish = "event: message\ndata: {\"id\":7, \"error\":{}}\n\n"
	)
	for name, c := range map[string]struct{ said, finish string }{
		"nothing":        {"", finish},
		"a comment":      {": keep-alive\n\n", finish},
		"an id":          {"id: 7\nretry: 1000\ndata: \n\n", finish},
		"a notification": {told, finish},
		"a request":      {asked, finish},
		"a response":     {told + "event: message\ndata: {\"result\":{\"method\":\"x\"},\"id\":7}\n\n", ""},
		"an error":       {told + "data: {\"id\":7,\"error\":{}}\n\n: keep-alive\n\n", ""},
		"half a line":    {told + "eve", ""},
		"half an event":  {told + "event: message\n", ""},
		"half a message": {told + "data: {", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []io.Reader{strings.NewReader(c.said), iotest.OneByteReader(strings.NewReader(c.said))} {
				out := httptest.NewRecorder()
				out.Header()["Content-Type"] = valueEvents
				f := &Follower{ResponseWriter: out}
				if _, err := io.Copy(struct{ io.Writer }{f}, from); err != nil {
					t.Fatal(err)
				}
				if want := strings.Contains(c.said, "retry: 1000\n"); f.Resumes() != want {
					t.Errorf("%s can be resumed: %v", c.said, f.Resumes())
				}
				torn := func() (torn bool) {
					defer func() { torn = recover() == http.ErrAbortHandler }()
					f.Finish([]byte("{\"id\":7,\n\"error\":{}}"))
					return false
				}()
				if want := strings.HasPrefix(name, "half"); torn != want {
					t.Errorf("it is broken off: %v", torn)
				}
				if got := out.Body.String(); got != c.said+c.finish {
					t.Errorf("got %q, want %q", got, c.said+c.finish)
				}
			}
		})
	}
}
