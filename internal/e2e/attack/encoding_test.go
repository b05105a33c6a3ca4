package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// readOutcomes says by its state what was read of a result.
const readOutcomes = `version: 1
name: encoded
initial: start
everywhere: {tools: [ok]}
states:
  start:
    tools:
      say:
        outcomes:
          empty: 'result.text == ""'
          red: 'has(result.structuredContent) && result.structuredContent.failed > 0'
          quoted: 'result.text.startsWith("{") && json(result.text).id == "p7"'
          stopped: 'result.isError && result.text == "no"'
        on_red: red
        on_quoted: quoted
        on_stopped: stopped
        on_empty: empty
        on_success: other
        on_error: failed
        on_unknown: lost
  red: {tools: {again: start}}
  quoted: {tools: {again: start}}
  stopped: {tools: {again: start}}
  empty: {tools: {again: start}}
  other: {tools: {again: start}}
  failed: {tools: {again: start}}
  lost: {tools: {again: start}}
`

// encoder answers a server's answers encoded, once it is told how.
type encoder struct {
	http.ResponseWriter
	begun bool
	name  string
	into  *gzip.Writer
}

func (e *encoder) WriteHeader(status int) {
	if !e.begun && e.name != "" {
		e.Header().Set("Content-Encoding", e.name)
		e.Header().Del("Content-Length")
	}
	e.begun = true
	e.ResponseWriter.WriteHeader(status)
}

func (e *encoder) Write(p []byte) (int, error) {
	if !e.begun {
		e.WriteHeader(http.StatusOK)
	}
	if e.into == nil {
		return e.ResponseWriter.Write(p)
	}
	return e.into.Write(p)
}

// FlushError sends what was written, as http.ResponseController has it.
func (e *encoder) FlushError() error {
	if !e.begun {
		e.WriteHeader(http.StatusOK)
	}
	if e.into != nil {
		if err := e.into.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(e.ResponseWriter).Flush()
}

// encodes is a server whose answers to POSTs, and streams, are encoded; each as the encoding says.
func encodes(server http.Handler, encoding string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &encoder{ResponseWriter: w, name: encoding}
		if strings.HasSuffix(encoding, "gzip") {
			e.into = gzip.NewWriter(w)
		}
		server.ServeHTTP(e, r)
		if e.into != nil && e.begun {
			_ = e.into.Close() // who has gone reads no end
		}
	})
}

// What comes of a call does not hang on how its answer was encoded on the way: it leads to the same state, and the client
// gets the same answer.
func TestOutcomesOfEncodedAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`\"`, 100_000)
	results := []struct{ answer, state string }{
		{`"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"failed":2}}`, "red"},
		{`"result":{"content":[{"type":"text","text":"{\"id\":"},{"type":"text","text":"\"p7\"}"}]}`, "quoted"},
		{`"result":{"content":[{"type":"text","text":"no"}],"isError":true}`, "stopped"},
		{`"result":{"content":[{"type":"text","text":"yes"}],"isError":true}`, "failed"},
		{`"result":{"content":[{"type":"text","text":"` + long + `"}],"structuredContent":{"failed":0}}`, "other"},
		{`"result":{"content":[]}`, "empty"},
		{`"error":{"code":-32000,"message":"it fell"}`, "failed"},
	}
	for _, modern := range []bool{false, true} {
		for _, streamed := range []bool{false, true} {
			var plain []string
			for _, encoding := range []string{"", "gzip", "x-gzip"} {
				t.Run(fmt.Sprintf("modern %v, streamed %v, %q", modern, streamed, encoding), func(t *testing.T) {
					r := encodedRig(t, modern, streamed, encoding)
					for i, x := range results {
						answer := r.Call("tools/call", saying(x.answer, "", "")).String()
						_, answer, _ = strings.Cut(answer, x.answer[:8]) // behind the id
						if encoding == "" {
							plain = append(plain, answer)
						} else if answer != plain[i] {
							t.Errorf("%.100s: answered %.300s, plain %.300s", x.answer, answer, plain[i])
						}
						r.in(x.state)
						r.Tool("again", "")
					}
					if n := r.upstream.Count("tools/call", "say"); n != len(results) {
						t.Errorf("%d were sent", n)
					}
				})
			}
		}
	}
}

// encodedRig is a client of the era before a sayer of it, whose answers to calls come so.
func encodedRig(t *testing.T, modern, streamed bool, encoding string) *rig {
	t.Helper()
	server := sayer(modern)
	if plain := server.Handle; streamed {
		server.Handle = func(e *mcptest.Exchange) {
			if e.Method == "tools/call" {
				e.Send(mcptest.Notification("notifications/message", `{"level":"debug","data":"first"}`))
			}
			plain(e)
		}
	}
	r := &rig{t: t}
	r.upstream, _ = mcptest.HTTP(t, server)
	front := httptest.NewServer(encodes(r.upstream.Handler(), encoding))
	t.Cleanup(front.Close)
	r.url, r.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, readOutcomes), "--upstream", front.URL+"/mcp", "--run-key", "modern=process", "--annotate", "off")
	t.Cleanup(front.CloseClientConnections)
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	if modern {
		r.Modern(mcptest.Modern{})
	} else {
		r.Initialize()
	}
	return r
}

// An answer that cannot be decoded, or is far longer than it came, is one that did not come: the call has happened, perhaps.
func TestAnswersThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"`)
	for range 128 {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	_, _ = fmt.Fprint(w, `"}]}}`)
	_ = w.Close()
	var short bytes.Buffer
	w = gzip.NewWriter(&short)
	_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	_ = w.Close()
	for name, x := range map[string]struct{ encoding, body string }{
		"a bomb":          {"gzip", bomb.String()},
		"cut off":         {"gzip", short.String()[:short.Len()-9]},
		"not encoded":     {"gzip", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`},
		"twice":           {"gzip, gzip", short.String()},
		"nobody asked":    {"br", short.String()},
		"another's bytes": {"gzip", short.String()[:12] + strings.Repeat("\xff", 40)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rig{t: t}
			r.upstream, _ = mcptest.HTTP(t, sayer(false))
			plain := r.upstream.Handler()
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					return
				}
				if bytes.Contains(body, []byte(`"name":"say"`)) {
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Content-Encoding", x.encoding)
					_, _ = io.WriteString(w, x.body)
					return
				}
				req.Body = io.NopCloser(bytes.NewReader(body))
				plain.ServeHTTP(w, req)
			}))
			t.Cleanup(front.Close)
			r.url, r.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, readOutcomes), "--upstream", front.URL+"/mcp")
			t.Cleanup(front.CloseClientConnections)
			r.Session, r.web = mcptest.DialWeb(t, r.url)
			r.Initialize()
			if answer := r.Tool("say", `{"answer":""}`).String(); !strings.Contains(answer, "outcome_unknown") {
				t.Errorf("answered %.300s", answer)
			}
			r.in("lost")
			r.Tool("again", "")
			r.in("start")
		})
	}
}
