//go:build long

package attack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// servedUntil has a known client make calls until what goes on meanwhile is over, and some more after that.
func (r *rig) servedUntil(over <-chan struct{}) {
	r.t.Helper()
	for after := 0; after < 10; {
		r.promptly(r.lives)
		select {
		case <-over:
			after++
		default:
		}
	}
}

// connections opens connections, says something on each, and keeps them until the test's end.
func (r *rig) connections(n int, say string) (over <-chan struct{}) {
	done := make(chan struct{})
	var held sync.WaitGroup
	all := make(chan net.Conn, n)
	held.Go(func() {
		defer close(done)
		for range n {
			c, err := net.Dial("tcp", r.address())
			if err != nil {
				r.t.Errorf("connecting: %v", err)
				return
			}
			all <- c
			_ = c.SetWriteDeadline(time.Now().Add(mcptest.Patience))
			_, _ = io.WriteString(c, say) // it may have been closed by now
		}
	})
	r.t.Cleanup(func() {
		held.Wait()
		close(all)
		for c := range all {
			c.Close()
		}
	})
	return done
}

// bigHead is the beginning of a request, with headers of about 32 KiB.
const bigHead = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer wrong\r\n"

// Two thousand connections, each with headers of 32 KiB that are refused, whole or never coming to their end, and idle
// from then on, neither kill the proxy nor keep it from serving who is known.
func TestMemoryUnderIdleConnections(t *testing.T) {
	few := strings.Repeat("X-"+strings.Repeat("a", 60)+": "+strings.Repeat("b", 64)+"\r\n", 230)
	many := strings.Repeat("a:\r\n", 480) + strings.Repeat("b", 29_000) + ": c\r\n"
	for name, say := range map[string]string{
		"large fields":           bigHead + few + "Content-Length: 0\r\n\r\n",
		"small fields":           bigHead + many + "Content-Length: 0\r\n\r\n",
		"too many fields":        bigHead + strings.Repeat("a:\r\n", 7_500) + "Content-Length: 0\r\n\r\n",
		"fields without end":     bigHead + few,
		"bodies without end":     bigHead + few + "Content-Length: 4000000\r\n\r\n" + strings.Repeat(" ", 32<<10),
		"four heads, each other": bigHead + few + "Content-Length: 0\r\n\r\n" + bigHead + many + "Content-Length: 0\r\n\r\n" + bigHead + few + "Y: \r\nContent-Length: 0\r\n\r\n" + bigHead + many + "Y: \r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := openPlain(t, tokensFor(t, "ann", "bob")...)
			r.as("token-of-ann").Initialize()
			r.servedUntil(r.connections(2_000, say))
		})
	}
}

// A pipelined flood of requests that are refused is answered in order, each 401, and who is known is served meanwhile.
func TestMemoryUnderPipelinedRefusals(t *testing.T) {
	r := openPlain(t, tokensFor(t, "ann", "bob")...)
	r.as("token-of-ann").Initialize()
	const conns, batches, batch = 8, 50, 200
	var floods sync.WaitGroup
	for range conns {
		floods.Go(func() {
			c, err := net.Dial("tcp", r.address())
			if err != nil {
				t.Errorf("connecting: %v", err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * mcptest.Patience))
			go func() {
				for range batches {
					if _, err := io.WriteString(c, strings.Repeat(bigHead+"Content-Length: 2\r\n\r\n{}", batch)); err != nil {
						return
					}
				}
			}()
			answers := bufio.NewReader(c)
			for n := range batches * batch {
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Errorf("answer %d: %v", n, err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				if answer.StatusCode != http.StatusUnauthorized {
					t.Errorf("answer %d: %s", n, answer.Status)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { floods.Wait(); close(over) }()
	r.servedUntil(over)
}

// Where few files may be open, a flood of connections is closed for who is known, for probes and for the policy's
// reload.
func TestFloodWithFewFiles(t *testing.T) {
	r := &rig{t: t, policy: mcptest.WritePolicy(t, plan)}
	upstream, url := mcptest.HTTP(t, world())
	r.upstream = upstream
	probes := mcptest.FreeAddress(t)
	r.url, r.process = mcptest.ListenBehind(t, []string{"sh", "-c", `ulimit -n 300 && exec "$@"`, "sh"},
		append([]string{"--policy", r.policy, "--upstream", url, "--health", probes, "--reload-poll", "1s"}, tokensFor(t, "ann", "bob")...)...)
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	r.as("token-of-ann").Initialize()
	reloads := 0
	for name, say := range map[string]string{"silent": "", "refused": bigHead + "Content-Length: 0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			over := r.connections(2_000, say)
			r.servedUntil(over)
			r.promptly(r.newcomer)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
			for range 10 {
				for _, path := range []string{"/livez", "/readyz"} {
					answer, err := client.Get("http://" + probes + path)
					if err != nil {
						t.Fatalf("%s: %v", path, err)
					}
					answer.Body.Close()
					if answer.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", path, answer.Status)
					}
				}
			}
			if err := os.WriteFile(r.policy, []byte(strings.Replace(plan, "      hold: after", "      hold_"+name+": after\n      hold: after", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			reloads++
			mcptest.Await(t, "the policy is reloaded", func() bool {
				return strings.Count(r.process.Log().String(), "the policy was reloaded") == reloads
			})
		})
	}
}

// newcomer is a call on a connection of its own.
func (r *rig) newcomer() {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address())
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(mcptest.Patience))
	body := call("7", `{"name":"ok","arguments":{"alive":true}}`)
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-of-ann\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", r.web.ID(), len(body), body)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.t.Errorf("who comes meanwhile is not served: %v", err)
		return
	}
	if answer.StatusCode != http.StatusOK {
		r.t.Errorf("who comes meanwhile is answered %s", answer.Status)
	}
}
