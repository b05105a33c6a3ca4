package attack

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// tokensFor are the flags that let these names in, each by the token "token-of-NAME".
func tokensFor(t *testing.T, names ...string) []string {
	t.Helper()
	text := "version: 1\ntokens:\n"
	for _, name := range names {
		text += fmt.Sprintf("  %s: sha256:%x\n", name, sha256.Sum256([]byte("token-of-"+name)))
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--tokens", path}
}

// bodySize is the size of the bodies of which one half is sent.
const bodySize = 4 << 20

// sendHalves begins requests that send the first half of their bodies and never the rest; each ends with the test.
// Head are their headers besides. The answers that some get all the same come by the channel.
func (r *rig) sendHalves(requests int, head string) <-chan *http.Response {
	r.t.Helper()
	answers := make(chan *http.Response, requests)
	head = fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", r.address(), bodySize, head)
	half := strings.Repeat(" ", bodySize/2)
	for range requests {
		connection, err := r.dial()
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { connection.Close() }) // ends both
		go func() { _, _ = io.WriteString(connection, head+half) }()
		go func() {
			if answer, err := http.ReadResponse(bufio.NewReader(connection), nil); err == nil {
				answers <- answer
			}
		}()
	}
	return answers
}

// awaitAnswers waits for so many answers of a status, and fails the test if there is another.
func awaitAnswers(t *testing.T, answers <-chan *http.Response, want, status int) {
	t.Helper()
	timeout := time.After(mcptest.Patience)
	for n := range want {
		select {
		case answer := <-answers:
			if answer.StatusCode != status || status == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "" {
				t.Fatalf("a half body is answered %s %v, want %d", answer.Status, answer.Header, status)
			}
		case <-timeout:
			t.Fatalf("%d half bodies are answered, want %d at least", n, want)
		}
	}
}

// large is a call with an argument of 1 MiB.
func (r *rig) large() {
	r.t.Helper()
	if answer := r.Tool("ok", `{"text":"`+strings.Repeat("x", 1<<20)+`"}`); result(answer) != mcptest.Text("ok") {
		r.t.Errorf("a large call is answered %.300s", answer)
	}
}

// The bodies of clients without a session have half of what there is for bodies: what they send beyond is refused, and who
// has a session is served.
func TestHalfSentBodies(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--max-body-memory", "16MiB").open(t)
		awaitAnswers(t, r.sendHalves(10, ""), 8, http.StatusServiceUnavailable)
		r.large()
		r.join().large() // its initialize is small, and waits for nobody
	})
}

// One principal has half of what there is for bodies, and so has a session.
func TestHalfSentBodiesOfAnother(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--max-body-memory", "16MiB").with(tokensFor(t, "ann", "bob")...).start(t)
		r.web.Header.Set("Authorization", "Bearer token-of-ann")
		r.Initialize()
		bob := r.client("token-of-bob")
		bob.Initialize()
		session := "Mcp-Session-Id: " + bob.web.ID() + "\r\n"
		r.sendHalves(10, "Authorization: Bearer token-of-bob\r\n"+session) // refused when the rest was read, whose id it might have
		r.process.Log().Await(t, "the bodies of others take the memory")
		awaitAnswers(t, r.sendHalves(10, ""), 10, http.StatusUnauthorized)
		r.large()
	})
}

// What sessions keep of initialize has a total: who sends much of it is refused one day, and ordinary clients are not. A
// session that ends makes room.
func TestInitializeOfManySessions(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--session-unused", "10m").open(t) // else they make room by themselves where it takes a minute
		long := strings.Replace(oldHello, `"clientInfo":{`, `"clientInfo":{"title":"`+strings.Repeat("x", 250<<10)+`",`, 1)
		var last *rig
		for n := 0; ; n++ {
			other := &rig{t: t, url: r.url}
			other.Session, other.web = mcptest.DialWeb(t, r.url)
			answer := other.Call("initialize", long)
			if strings.Contains(answer.String(), "sessions keep too much") {
				break
			}
			if n == 100 {
				t.Fatalf("after %d of 250 KiB each one more is answered %.100s", n, answer)
			}
			last = other
		}
		r.join().lives()
		last.web.Version = "2025-03-26"
		last.web.Delete()
		mcptest.Await(t, "there is room again", func() bool {
			_, web := mcptest.DialWeb(t, r.url)
			return web.Post(t.Context(), mcptest.Request(1, "initialize", long)).Header.Get("Mcp-Session-Id") != ""
		})
	})
}

// A body that is encoded, or in another charset, is refused before it is read, with what to send instead.
func TestBodiesInAnotherCode(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		post := func(name, value string) mcptest.Response {
			other := r.stranger(r.web.ID())
			other.Header[name] = []string{value}
			return other.Do(request(r, http.MethodPost, call("1", `{"name":"ok","arguments":{"alive":true}}`)))
		}
		for _, header := range [][2]string{{"Content-Encoding", "gzip"}, {"Content-Encoding", "identity, br"}, {"Content-Encoding", "x"},
			{"Content-Type", "application/json; charset=utf-16"}, {"Content-Type", `application/json; charset="iso-8859-1"`}} {
			answer := post(header[0], header[1])
			if answer.Status != http.StatusUnsupportedMediaType || !strings.Contains(string(answer.Body), "send ") {
				t.Errorf("%s: %s is answered %d %s", header[0], header[1], answer.Status, answer.Body)
			}
		}
		for _, header := range [][2]string{{"Content-Encoding", "identity"}, {"Content-Type", "application/json; charset=UTF-8"}, {"Content-Type", `application/json;charset="utf-8"`}} {
			if answer := post(header[0], header[1]); answer.Status != http.StatusOK {
				t.Errorf("%s: %s is answered %d %s", header[0], header[1], answer.Status, answer.Body)
			}
		}
		r.untouched()
	})
}
