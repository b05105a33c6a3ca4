//go:build long

package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// container is the memory that the container of the shipped deployments has.
const container = 256 << 20

// openPlain is web.open with a proxy in such a container. It fails the test, at its end, if the proxy ever took more than
// that has.
func openPlain(t *testing.T, flags ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	upstream, url := mcptest.HTTP(t, world())
	r.upstream = upstream
	r.url, r.process = mcptest.ListenBehind(t, mcptest.Container(t, container), append([]string{"--policy", mcptest.WritePolicy(t, strings.Replace(plan, "ok:\n", "ok:\n      later:\n", 1)), "--upstream", url}, flags...)...)
	t.Cleanup(func() {
		peak := mcptest.PeakMemory(t, r.process.Process.Pid)
		t.Logf("the proxy had %d MiB at most", peak>>20)
		if peak > container {
			t.Errorf("the proxy had %d MiB, its container has %d", peak>>20, container>>20)
		}
	})
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	return r
}

// promptly fails the test, at its end, unless nine of ten such calls have taken less than a second: what else goes on on
// the machine may hold up one.
func (r *rig) promptly(call func()) {
	r.t.Helper()
	if r.waits == nil {
		r.t.Cleanup(func() {
			slices.Sort(r.waits)
			if n := len(r.waits); r.waits[n-1-n/10] > time.Second {
				r.t.Errorf("a client that is known was served after %v", r.waits)
			}
		})
	}
	began := time.Now()
	call()
	r.waits = append(r.waits, time.Since(began))
}

// servedMeanwhile has a known client make calls, ten at least, until so many answers have come.
func (r *rig) servedMeanwhile(answers <-chan *http.Response, want int) {
	r.t.Helper()
	timeout := time.After(3 * mcptest.Patience) // each round is more than 1 MiB, there and back
	for n, calls := 0, 0; n < want || calls < 10; calls++ {
		r.promptly(r.lives)
		r.large() // which takes the test itself its time
		select {
		case <-answers:
			n += 1 + come(answers)
		case <-timeout:
			r.t.Fatalf("%d half bodies are answered, want %d at least", n, want)
		default:
		}
	}
}

// come takes the answers that have come by now.
func come(answers <-chan *http.Response) (n int) {
	for {
		select {
		case <-answers:
			n++
		default:
			return n
		}
	}
}

// A hundred bodies of 4 MiB, of which half comes and the rest never does, neither kill the proxy nor keep it from serving a
// client with a session.
func TestMemoryUnderHalfSentBodies(t *testing.T) {
	r := openPlain(t)
	r.Initialize()
	r.servedMeanwhile(r.sendHalves(100, ""), 80)
	r.join().large()
}

// So it is where clients are told apart: one principal has half of the memory for bodies, whoever is nobody none.
func TestMemoryUnderHalfSentBodiesOfAnother(t *testing.T) {
	r := openPlain(t, tokensFor(t, "ann", "bob")...)
	r.as("token-of-ann").Initialize()
	r.servedMeanwhile(r.sendHalves(100, ""), 100)
	r.servedMeanwhile(r.sendHalves(100, "Authorization: Bearer token-of-bob\r\n"), 80)
}

// leaveBefore has a new session make a call that is answered through the gate, and leave as soon as there is something of it. It
// returns the request that asks for the rest.
func (r *rig) leaveBefore(gate string) *http.Request {
	r.t.Helper()
	other := r.join()
	ctx, leave := context.WithCancel(r.t.Context())
	defer leave()
	req := request(other, http.MethodPost, call("7", `{"name":"later","arguments":{"gate":"`+gate+`"}}`)).WithContext(ctx)
	req.Header.Set("Mcp-Session-Id", other.web.ID())
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	last := ""
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			last = id
		}
		if strings.Contains(lines.Text(), `"later"`) {
			break
		}
	}
	rest := request(other, http.MethodGet, "")
	rest.Header.Set("Mcp-Session-Id", other.web.ID())
	rest.Header.Set("Last-Event-ID", last)
	return rest
}

// Three hundred answers of 900 KiB, whose clients have gone away, are not all kept. The last of them is, and whoever is there is
// served.
func TestMemoryUnderAnswersThatNobodyTakes(t *testing.T) {
	r := openPlain(t)
	r.Initialize()
	const clients = 300
	var rest *http.Request
	for n := range clients {
		gate := fmt.Sprint("later ", n)
		rest = r.leaveBefore(gate)
		r.upstream.Open(gate)
		r.promptly(r.lives)
	}
	answer, err := http.DefaultClient.Do(rest)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || len(text) < 900<<10 {
		t.Errorf("the last client is answered %s with %d bytes: %v", answer.Status, len(text), err)
	}
}
