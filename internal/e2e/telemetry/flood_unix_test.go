//go:build unix

package telemetry

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// audited is a proxy over HTTP that knows one token, keeps an audit, and answers probes.
type audited struct {
	t       *testing.T
	path    string // of the audit
	url     string
	health  string
	process *mcptest.Process
	known   *mcptest.Session // a client with the token
}

func startAudited(t *testing.T) *audited {
	t.Helper()
	a := &audited{t: t, path: filepath.Join(t.TempDir(), "audit", "audit.jsonl"), health: mcptest.FreeAddress(t)}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(a.path), 0o700); err != nil {
		t.Fatal(err)
	}
	_, upstream := mcptest.HTTP(t, world())
	a.url, a.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, plan), "--upstream", upstream, "--bearer-file", token,
		"--audit", a.path, "--health", a.health, "--log-level", "error")
	var web *mcptest.Web
	a.known, web = mcptest.DialWeb(t, a.url)
	web.Header.Set("Authorization", "Bearer right")
	a.known.Initialize()
	return a
}

// flood sends so many requests without a token over one connection, one behind the other, and returns when each has been
// answered 401.
func (a *audited) flood(requests int) error {
	address := strings.TrimSuffix(strings.TrimPrefix(a.url, "http://"), "/mcp")
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * mcptest.Patience))
	go func() {
		out := bufio.NewWriterSize(c, 64<<10)
		for range requests {
			fmt.Fprintf(out, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", address)
		}
		_ = out.Flush()
	}()
	in := bufio.NewReader(c)
	for n := range requests {
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("after %d answers: %w", n, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		if answer.StatusCode != http.StatusUnauthorized {
			return fmt.Errorf("answered %s", answer.Status)
		}
	}
	return nil
}

// calls has the known client make so many calls, each of which must be answered in time.
func (a *audited) calls(n int) {
	a.t.Helper()
	for range n {
		begun := time.Now()
		if answer := a.known.Tool("look", ""); string(answer.Result) == "" {
			a.t.Errorf("the known client is answered %s", answer)
		}
		if took := time.Since(begun); took > mcptest.Patience/3 {
			a.t.Errorf("the known client waited %v", took)
		}
	}
}

// ready is what /readyz answers.
func (a *audited) ready() (status int, said string) {
	a.t.Helper()
	answer, err := http.Get("http://" + a.health + "/readyz")
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

// ended ends the proxy, and returns how many lines on denials its audit has, how many requests they count, and how many
// calls are told of.
func (a *audited) ended() (denials, denied, calls int) {
	a.t.Helper()
	_ = a.process.Process.Signal(os.Interrupt)
	a.process.ExitCode()
	for i, text := range lines(a.t, a.path) {
		var line struct {
			Seq                 int
			Event, Name, Reason string
			Count               int
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Seq != i+1 {
			a.t.Fatalf("line %d: %v: %s", i+1, err, text)
		}
		switch {
		case line.Event == "denial" && line.Reason == "bearer_missing":
			denials++
			denied += line.Count
		case line.Event == "outcome" && line.Name == "look":
			calls++
		}
	}
	return denials, denied, calls
}

// A client that is not let in, however often it asks, neither fills the audit nor holds up anybody: its requests are
// counted, each of them, and a known client's calls are served and told of meanwhile.
func TestFloodOfDenials(t *testing.T) {
	t.Parallel()
	a := startAudited(t)
	const requests, calls = 20_000, 50
	flooded := make(chan error, 1)
	go func() { flooded <- a.flood(requests) }()
	a.calls(calls)
	if err := <-flooded; err != nil {
		t.Fatal(err)
	}
	denials, denied, told := a.ended()
	if denied != requests || told != calls {
		t.Errorf("the audit counts %d denied requests and %d calls, want %d and %d", denied, told, requests, calls)
	}
	if info, err := os.Stat(a.path); err != nil || denials > 20 || info.Size() > 64<<10 {
		t.Errorf("%d lines on denials, %d bytes, %v", denials, info.Size(), err)
	}
}

// An audit that cannot be written shows in /readyz. Denied requests take none of the room that calls have meanwhile, and
// once it can be written all is in it.
func TestFloodOfDenialsBeforeABlockedAudit(t *testing.T) {
	t.Parallel()
	a := startAudited(t)
	if status, said := a.ready(); status != http.StatusOK || !strings.Contains(said, "[+] audit\n") {
		t.Errorf("at first it is %d:\n%s", status, said)
	}
	folder := filepath.Dir(a.path)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	const requests, calls = 20_000, 20
	if err := a.flood(requests); err != nil {
		t.Fatal(err)
	}
	a.calls(calls)
	status, said := a.ready()
	if status != http.StatusServiceUnavailable || !strings.Contains(said, "[-] audit: it cannot be written, and calls wait: no such file or directory\n") {
		t.Errorf("while it is blocked it is %d:\n%s", status, said)
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	mcptest.Await(t, "the audit is written again", func() bool { status, _ := a.ready(); return status == http.StatusOK })
	if denials, denied, told := a.ended(); denied != requests || told != calls || denials > 20 {
		t.Errorf("the audit counts %d denied requests in %d lines, and %d calls, want %d and %d", denied, denials, told, requests, calls)
	}
}
