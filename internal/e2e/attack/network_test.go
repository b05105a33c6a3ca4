package attack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// rebound fails the test unless every method is answered 403 under the header's values.
func rebound(t *testing.T, header string, values ...string) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		for _, value := range values {
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodOptions} {
				stranger := r.stranger(r.web.ID())
				stranger.Header[header] = []string{value}
				if answer := stranger.Do(request(r, method, call("1", `{"name":"once"}`))); answer.Status != http.StatusForbidden {
					t.Errorf("%s with %s %q is answered %d %s", method, header, value, answer.Status, answer.Body)
				}
			}
		}
		r.in("start")
		r.untouched()
	})
}

func TestOriginRebinding(t *testing.T) {
	rebound(t, "Origin", "https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
		"http://evil.example#localhost", "http://localhost@evil.example", "file://localhost", "chrome-extension://localhost", "", "http://")
}

func TestHostRebinding(t *testing.T) {
	rebound(t, "Host", "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "localhost.",
		"0.0.0.0", "127.1", "2130706433", "[::]", "[::1", "[::1]evil.example", "::1:80:evil")
}

// A second header of the kind does not hide behind the first.
func TestTwoOrigins(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		stranger := r.stranger(r.web.ID())
		stranger.Header["Origin"] = []string{"http://localhost", "https://evil.example"}
		if answer := stranger.Post(t.Context(), call("1", `{"name":"once"}`)); answer.Status != http.StatusForbidden {
			t.Errorf("answered %d %s", answer.Status, answer.Body)
		}
		r.in("start")
		r.untouched()
	})
}

// A page of another site can send a form without asking; a form is no JSON.
func TestFormPost(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonx", "text/json"} {
			req := request(r, http.MethodPost, call("1", `{"name":"once"}`))
			req.Header.Set("Content-Type", kind)
			if answer := r.stranger(r.web.ID()).Do(req); answer.Status != http.StatusUnsupportedMediaType {
				t.Errorf("%q is answered %d %s", kind, answer.Status, answer.Body)
			}
		}
		r.in("start")
		r.untouched()
	})
}

// smuggled is what two readers of HTTP could take for one request or for two. Each names the hidden request.
var smuggled = map[string]string{
	"two lengths":            "Content-Length: 4\r\nContent-Length: %d\r\n\r\n%s",
	"a list of lengths":      "Content-Length: 4, %d\r\n\r\n%s",
	"chunked, identity":      "Transfer-Encoding: chunked, identity\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
	"xchunked":               "Transfer-Encoding: xchunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
	"space before the colon": "Content-Length : %d\r\n\r\n%s",
	"signed length":          "Content-Length: +%d\r\n\r\n%s",
	"bare CR":                "X: y\rContent-Length: 4\r\nContent-Length: %d\r\n\r\n%s",
	"NUL":                    "X: y\x00z\r\nContent-Length: %d\r\n\r\n%s",
	"two Hosts":              "Host: evil.example\r\nContent-Length: %d\r\n\r\n%s",
}

func TestRequestSmuggling(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		address := r.address()
		body := call("1", `{"name":"once"}`)
		head := "POST /mcp HTTP/1.1\r\nHost: " + address + "\r\nMcp-Session-Id: " + r.web.ID() +
			"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
		for name, rest := range smuggled {
			if status := r.raw(head + fmt.Sprintf(rest, len(body), body)); status/100 == 2 {
				t.Errorf("%s is answered %d", name, status)
			}
		}
		lines := map[string]string{
			"no Host":          "POST /mcp HTTP/1.1\r\nMcp-Session-Id: " + r.web.ID() + "\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			"another host":     "POST http://evil.example/mcp HTTP/1.1\r\nHost: " + address + "\r\nMcp-Session-Id: " + r.web.ID() + "\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			"HTTP/2.0":         strings.Replace(head, "HTTP/1.1", "HTTP/2.0", 1) + "Content-Length: %d\r\n\r\n%s",
			"HTTP/0.9":         "POST /mcp\r\n" + "Content-Length: %d\r\n\r\n%s",
			"another path":     strings.Replace(head, "/mcp", "/mcp/../mcp", 1) + "Content-Length: %d\r\n\r\n%s",
			"lower-case POST":  strings.Replace(head, "POST", "post", 1) + "Content-Length: %d\r\n\r\n%s",
			"chunked HTTP/1.0": strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
		}
		for name, whole := range lines {
			if status := r.raw(fmt.Sprintf(whole, len(body), body)); status/100 == 2 {
				t.Errorf("%s is answered %d", name, status)
			}
		}
		r.in("start")
		r.untouched()
	})
}

// What has two lengths, of which one counts by the rules (RFC 9112, sections 5.2 and 6.3), is one call and no more,
// whatever another reader takes for the next.
func TestOneOfTwoLengths(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		for name, rest := range map[string]string{
			"length and chunks": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			"chunks and length": "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			"folded line":       "X: y\r\n Content-Length: 4\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		} {
			r := front.open(t)
			head := "POST /mcp HTTP/1.1\r\nHost: " + r.address() + "\r\nMcp-Session-Id: " + r.web.ID() +
				"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
			body, hidden := call("1", `{"name":"ok"}`), call("2", `{"name":"once"}`)
			next := head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(hidden), hidden)
			if status := r.raw(head + fmt.Sprintf(rest, len(body), body) + next); status != http.StatusOK {
				t.Errorf("%s is answered %d", name, status)
			}
			r.in("start")
		}
	})
}

// raw sends bytes over a connection of its own, and returns the status of the first answer, 0 for none.
func (r *rig) raw(text string) int {
	r.t.Helper()
	connection, err := r.dial()
	if err != nil {
		r.t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(mcptest.Patience))
	_, _ = io.WriteString(connection, text) // a server that hangs up says so by its answer
	if half, ok := connection.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// What stands behind a body on the same connection is a request of its own: it is decided by itself.
func TestPipelinedRequests(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		address := r.address()
		post := func(session, body string) string {
			return "POST /mcp HTTP/1.1\r\nHost: " + address + "\r\nMcp-Session-Id: " + session +
				"\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body
		}
		text := post(r.web.ID(), call("901", `{"name":"ok"}`)) + post("forged", call("902", `{"name":"once"}`)) + post(r.web.ID(), call("903", `{"name":"hidden"}`))
		if status := r.raw(text); status != http.StatusOK {
			t.Errorf("the first is answered %d", status)
		}
		r.lives()
		r.in("start")
		r.reached("tools/call ok")
	})
}

// elsewhere is a server that nothing may reach.
func elsewhere(t *testing.T) (url string, reached *atomic.Int64) {
	reached = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	return server.URL, reached
}

// A redirect to elsewhere is not followed: neither the message nor the proxy's credentials go there.
func TestRedirectElsewhere(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			away, reached := elsewhere(t)
			server := httptest.NewServer(http.RedirectHandler(away+"/mcp", status))
			t.Cleanup(server.Close)
			r := &rig{t: t}
			r.Session, r.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan),
				"--connect-timeout", "1s", "--upstream-header", "Authorization: Bearer stays-here", "--upstream", server.URL+"/mcp")
			if answer := r.Call("initialize", oldHello); !denied(answer.String()) {
				t.Errorf("initialize is answered %s", answer)
			}
			if n := reached.Load(); n != 0 {
				t.Errorf("%d requests went elsewhere", n)
			}
		})
	}
}

// A server that was good redirects in the midst of a session.
func TestRedirectInMidSession(t *testing.T) {
	t.Parallel()
	away, reached := elsewhere(t)
	u, _ := mcptest.HTTP(t, world())
	var turned atomic.Bool
	good := u.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if turned.Load() {
			http.Redirect(out, in, away+"/mcp", http.StatusTemporaryRedirect)
			return
		}
		good.ServeHTTP(out, in)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	r := &rig{t: t, upstream: u}
	r.Session, r.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--upstream", server.URL+"/mcp")
	r.Initialize()
	r.lives()
	turned.Store(true)
	if answer := r.Tool("once", ""); !denied(answer.String()) {
		t.Errorf("answered %s", answer)
	}
	turned.Store(false)
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
	r.reached()
}

// The old transport lets the server name the place for messages: not one on another host.
func TestSSEEndpointElsewhere(t *testing.T) {
	t.Parallel()
	away, reached := elsewhere(t)
	for name, endpoint := range map[string]string{"absolute": away + "/messages", "without scheme": strings.TrimPrefix(away, "http:") + "/messages"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
				out.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(out, "event: endpoint\ndata: %s\n\n", endpoint)
				_ = http.NewResponseController(out).Flush()
				<-in.Context().Done()
			}))
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			s, _ := mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--connect-timeout", "1s",
				"--upstream-header", "Authorization: Bearer stays-here", "--upstream-sse", "--upstream", server.URL+"/sse")
			if answer := s.Call("initialize", oldHello); !denied(answer.String()) {
				t.Errorf("initialize is answered %s", answer)
			}
			if n := reached.Load(); n != 0 {
				t.Errorf("%d requests went elsewhere", n)
			}
		})
	}
}

// On a loopback address a web page reads neither metrics nor probes by a name of its own that leads here.
func TestHealthRebinding(t *testing.T) {
	t.Parallel()
	health, everywhere := mcptest.FreeAddress(t), mcptest.FreeAddress(t)
	web.with("--health", health).open(t)
	_, port, _ := strings.Cut(everywhere, ":")
	web.with("--health", ":"+port).open(t)
	get := func(health, path, host, accept string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Accept", accept)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	for _, path := range []string{"/metrics", "/readyz"} {
		for host, want := range map[string]int{"evil.example": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden, "localhost": http.StatusOK, health: http.StatusOK} {
			if status, body := get(health, path, host, "*/*"); status != want {
				t.Errorf("%s under the Host %s is answered %d %.200s", path, host, status, body)
			}
		}
		if status, body := get(everywhere, path, "10.0.0.7:9090", "*/*"); status != http.StatusOK { // as the kubelet asks
			t.Errorf("%s on all addresses is answered %d %.200s", path, status, body)
		}
	}
	if status, body := get(health, "/readyz", health, "application/json"); status != http.StatusOK || !strings.Contains(body, `"name": "upstream"`) {
		t.Errorf("/readyz as JSON is %d %s", status, body)
	}
}

// Clients that send slowly, or never read, keep nobody else waiting, and are hung up on.
func TestSlowClients(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--header-timeout", "1s", "--write-timeout", "1s").open(t)
		address := r.address()
		head := "POST /mcp HTTP/1.1\r\nHost: " + address + "\r\n"
		body := head + "Mcp-Session-Id: " + r.web.ID() + "\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{"
		var hungUp sync.WaitGroup
		for _, start := range []string{"", "POST", head, body} {
			for range 8 {
				hungUp.Go(func() { r.awaitHangUp(start) })
			}
		}
		for range 20 {
			r.lives()
		}
		hungUp.Wait()
		r.untouched()
	})
}

// A client that asks on and on and reads no answer, not even a short one, is hung up on within --write-timeout.
func TestAnswersThatNobodyReads(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--write-timeout", "1s").open(t)
		connection, err := r.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		asked := strings.Repeat("GET /nowhere HTTP/1.1\r\nHost: "+r.address()+"\r\n\r\n", 100)
		_ = connection.SetWriteDeadline(time.Now().Add(mcptest.Patience))
		for err == nil {
			_, err = io.WriteString(connection, asked)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("still connected after %v", mcptest.Patience)
		}
		r.untouched()
	})
}

// awaitHangUp sends the beginning of a request, and waits until the server has enough.
func (r *rig) awaitHangUp(start string) {
	connection, err := r.dial()
	if err != nil {
		r.t.Error(err)
		return
	}
	defer connection.Close()
	_, _ = io.WriteString(connection, start)
	_ = connection.SetReadDeadline(time.Now().Add(mcptest.Patience))
	if _, err := io.Copy(io.Discard, connection); os.IsTimeout(err) {
		r.t.Errorf("after %q the server waits on", start)
	}
}

// A client that opens streams and reads none of them is dropped; the run and the others go on.
func TestSlowReader(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--write-timeout", "1s").open(t)
		address := r.address()
		raw := call("900", `{"name":"big"}`)
		connection, err := r.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		fmt.Fprintf(connection, "POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			address, r.web.ID(), len(raw), raw)
		r.upstream.Await(t, 1, "tools/call", "big")
		for range 20 {
			r.lives()
		}
		r.in("start")
		r.reached("tools/call big")
	})
}

// Neither tokens, nor session ids, nor headers, nor the environment, nor arguments are in the log, at any level.
func TestSecretsInLogs(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"trace", "debug", "info", "warn", "error"} {
		for _, format := range []string{"text", "json"} {
			t.Run(level+" "+format, func(t *testing.T) { t.Parallel(); secrets(t, level, format) })
		}
	}
}

func secrets(t *testing.T, level, format string) {
	u, url := mcptest.HTTP(t, world())
	flags := []string{"--log-level", level, "--log-format", format, "--policy", mcptest.WritePolicy(t, plan),
		"--bearer-file", secretFile(t, "client-token-1234567890"), "--upstream-bearer-file", secretFile(t, "upstream-token-1234567890"),
		"--upstream-header", "X-Api-Key: header-1234567890", "--upstream", url + "?key=query-1234567890"}
	r := &rig{t: t, upstream: u}
	r.url, r.process = mcptest.Listen(t, flags...)
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	if answer := r.web.Post(t.Context(), mcptest.Request(1, "initialize", oldHello)); answer.Status != http.StatusUnauthorized {
		t.Errorf("no token is answered %d", answer.Status)
	}
	r.web.Header["Authorization"] = []string{"Bearer wrong-token-1234567890"}
	if answer := r.web.Post(t.Context(), mcptest.Request(1, "initialize", oldHello)); answer.Status != http.StatusUnauthorized {
		t.Errorf("a wrong token is answered %d", answer.Status)
	}
	r.web.Header["Authorization"] = []string{"Bearer client-token-1234567890"}
	r.Initialize()
	for _, tool := range []string{"ok", "hidden", "once", "once", "die"} {
		r.Tool(tool, `{"password":"argument-1234567890"}`)
	}
	r.say(call("99", `{"name":"ok","name":"argument-1234567890"}`))
	id := r.web.ID()
	r.Close()
	r.reached("tools/call ok", "tools/call once")
	r.nowhereIn(r.process.Log().String(), id)
}

// nowhereIn fails the test if one of the secrets stands in the text.
func (r *rig) nowhereIn(text string, more ...string) {
	r.t.Helper()
	for _, secret := range append(more, "1234567890", "raw-session-") {
		if strings.Contains(text, secret) {
			r.t.Errorf("%q is in %.2000s", secret, text)
		}
	}
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An upstream that cannot be reached is spoken of without the secrets of its address, to the client as in the log.
func TestSecretsOfAnUpstreamThatIsGone(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"refused": "http://" + mcptest.FreeAddress(t) + "/mcp/path-1234567890?key=query-1234567890",
		"no name": "http://nowhere.invalid/mcp/path-1234567890?key=query-1234567890",
	} {
		for _, flags := range [][]string{nil, {"--upstream-sse"}} {
			t.Run(name+strings.Join(flags, ""), func(t *testing.T) {
				t.Parallel()
				r := &rig{t: t}
				args := []string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--connect-timeout", "500ms", "--log-level", "trace",
					"--upstream-header", "X-Api-Key: header-1234567890", "--upstream", address}
				r.Session, r.process = mcptest.Dial(t, append(args, flags...)...)
				answer := r.Call("initialize", oldHello)
				r.Close()
				r.nowhereIn(answer.String())
				r.nowhereIn(r.process.Log().String())
			})
		}
	}
}

// An address with a password in it is refused, and not repeated.
func TestSecretsInTheAddress(t *testing.T) {
	t.Parallel()
	p := mcptest.Start(t, nil, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--upstream", "http://user:password-1234567890@127.0.0.1/mcp")
	if code := p.ExitCode(); code == 0 {
		t.Error("it runs")
	}
	r := &rig{t: t}
	r.nowhereIn(p.Log().String())
}

// A child's secrets are its own: those on its command line and in its environment are in no log.
func TestSecretsOfTheCommand(t *testing.T) {
	t.Parallel()
	r := webPipe.with("--log-level", "trace", "--env", "TOKEN=environment-1234567890").open(t)
	r.lives()
	r.Tool("die", "")
	r.lives()
	id := r.web.ID()
	r.Close()
	r.nowhereIn(r.process.Log().String(), id)
	r.reached("tools/call die")
}
