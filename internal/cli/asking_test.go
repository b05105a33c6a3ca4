//go:build unix

package cli

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const keptPolicy = `version: 1
name: asked
initial: open
registers: {done: counter}
states:
  open:
    tools: {work: {on_any: shut, set: {done: {add: 1}}, at_most: {run: 3}}}
    signals: {close: shut}
  shut: {tools: {work: open}}
`

// keeping is a proxy with a store, two sessions of which have done something each, and the other things.
func keeping(t *testing.T) (store, socket string, s [2]*mcptest.Session, w [2]*mcptest.Web) {
	t.Helper()
	_, upstream := mcptest.HTTP(t, quiet)
	folder := t.TempDir()
	store, socket = "sqlite:"+filepath.Join(folder, "runs.db"), "unix:"+filepath.Join(folder, "a.sock")
	url, _ := mcptest.Listen(t, "--policy", write(t, "p.yaml", keptPolicy), "--upstream", upstream, "--store", store, "--admin", socket)
	for i := range s {
		s[i], w[i] = mcptest.DialWeb(t, url)
		s[i].InitializeAs(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a-secret-name","version":"1"}}`)
		for range i + 1 {
			if a := s[i].Tool("work", "{}"); a.Error != nil {
				t.Fatal(a)
			}
		}
	}
	return store, socket, s, w
}

// What tells the time at which a command was run.
var told = regexp.MustCompile(`\d+[smhd] ago *|"at":"[^"]*"`)

// Each command that reads a store prints the same when it asks the proxy that has it.
func TestCommandsAskRunningProxy(t *testing.T) {
	t.Parallel()
	store, socket, sessions, _ := keeping(t)
	var ids []string
	for line := range strings.Lines(command(t, nil, "runs", "ls", "--json", "--store", store).stdout) {
		var x struct{ ID string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(line, err)
		}
		ids = append(ids, x.ID)
	}
	if len(ids) != 2 {
		t.Fatal(ids)
	}
	for _, args := range [][]string{
		{"runs", "ls"}, {"runs", "ls", "--json"}, {"runs", "tail", ids[0]}, {"runs", "tail", ids[1][:6], "--json"},
		{"runs", "export", ids[0]}, {"runs", "export", ids[1], ids[0]}, {"verify"}, {"verify", ids[0], "--json"}, {"anchor"}, {"runs", "show", "0"}, {"report", ids[1]}, {"runs", "diff", ids[0], ids[1]}, {"runs", "diff", ids[1], ids[0], "--json"}, {"runs", "tail", "a/b"}, {"verify", "1"},
	} {
		read := command(t, nil, append(args, "--store", store)...)
		asked := command(t, nil, append(args, "--admin", socket)...)
		asked.stdout, read.stdout = told.ReplaceAllString(asked.stdout, ""), told.ReplaceAllString(read.stdout, "")
		if read != asked || read.stdout+read.stderr == "" && args[0] == "runs" {
			t.Errorf("%v: of the store %+v\nof the proxy %+v", args, read, asked)
		}
	}
	for from, says := range map[string]string{"--store=" + store: "\ncounted    1 of 3 a run: open tool work 0\n", "--admin=" + socket: "turn       free\n"} {
		if shown := command(t, nil, "runs", "show", ids[0], from).stdout; !strings.Contains(shown, "run        "+ids[0]+"\n") || !strings.Contains(shown, says) {
			t.Errorf("%s: %s", from, shown)
		}
	}
	all := command(t, nil, "runs", "export", "--store", store).stdout
	var without strings.Builder
	for line := range strings.Lines(all) {
		if !strings.HasPrefix(line, `{"object":{"kind":"session"`) {
			without.WriteString(line)
		}
	}
	if asked := command(t, nil, "runs", "export", "--admin", socket).stdout; asked != without.String() || asked == all {
		t.Errorf("all runs are exported as %s\nby the proxy as %s", all, asked)
	}
	follow := exec.CommandContext(t.Context(), mcptest.Proxy(t), "runs", "tail", ids[0], "--follow", "--json", "--admin", socket)
	out, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	before := 0
	for lines.Scan() {
		if before++; before == 3 {
			for _, s := range sessions {
				s.Tool("work", "{}")
			}
		}
		if before > 3 && strings.Contains(lines.Text(), `"type":"ended"`) && strings.Contains(lines.Text(), `"name":"work"`) {
			break
		}
	}
	if before <= 3 {
		t.Errorf("nothing followed: %v", lines.Err())
	}
	_ = follow.Process.Kill()
	_ = follow.Wait()
}

// What stands in the environment for run stands there for these, too: the command line wins, and then the running proxy is asked.
func TestWhichStoreIsRead(t *testing.T) {
	t.Parallel()
	store, socket, _, _ := keeping(t)
	nowhere := "unix:" + filepath.Join(t.TempDir(), "none.sock")
	for _, x := range []struct {
		env, args []string
		code      int
		says      string
	}{
		{[]string{"FSM_PROXY_STORE=" + store}, nil, 0, ""},
		{[]string{"FSM_PROXY_ADMIN=" + socket}, nil, 0, ""},
		{[]string{"FSM_PROXY_ADMIN=" + socket, "FSM_PROXY_STORE=sqlite:/nowhere/at/all"}, nil, 0, ""},
		{[]string{"FSM_PROXY_ADMIN=" + nowhere}, []string{"--store", store}, 0, ""},
		{[]string{"FSM_PROXY_STORE=sqlite:/nowhere/at/all"}, []string{"--admin", socket}, 0, ""},
		{nil, []string{"--admin", socket, "--store", store}, 2, "give one of --store and --admin"},
		{nil, nil, 2, "no store is named"},
	} {
		r := command(t, x.env, append([]string{"verify"}, x.args...)...)
		if r.code != x.code || !strings.Contains(r.stderr, x.says) || x.code == 0 && !strings.HasPrefix(r.stdout, "2 runs: ") {
			t.Errorf("%v %v: %+v", x.env, x.args, r)
		}
	}
}

// What is kept of sessions is read by nobody who asks the proxy: not what their clients have said, nor by what they are found.
func TestJournalShowsNoSecrets(t *testing.T) {
	t.Parallel()
	store, socket, _, webs := keeping(t)
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: store, Run: "run"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	objects, err := s.Objects(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	paths, secrets := []string{"runs", "runs?limit=1000", "objects", "objects?after_kind=s"}, []string{"a-secret-name", webs[0].ID(), webs[1].ID(), `"kind": "session"`}
	sessions := 0
	for _, o := range objects {
		if o.Kind == "session" && strings.Contains(string(o.Bytes), "a-secret-name") {
			sessions++
			paths = append(paths, "object?kind=session&name="+o.Name, "objects/session/"+o.Name)
		}
	}
	if sessions != 2 {
		t.Fatalf("%d sessions are kept", sessions)
	}
	for r, err := range journal.Rows(t.Context(), s, journal.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		at := "runs/" + r.ID
		paths = append(paths, at, at+"/records", at+"/objects", "object?kind=owner&name="+r.ID)
	}
	served := 0
	for _, path := range paths {
		said, err := askAdmin(t, nil, "--admin", socket, "/v1/journal/"+path)
		for _, secret := range secrets {
			if strings.Contains(said, secret) {
				t.Errorf("%s tells %q: %s", path, secret, said)
			}
		}
		if err == nil {
			served++
		} else if !strings.Contains(said, http.StatusText(http.StatusNotFound)) {
			t.Errorf("%s: %s", path, said)
		}
	}
	if served != 12-2 {
		t.Errorf("only %d paths were served", served)
	}
}

// A proxy that keeps nothing says so.
func TestProxyThatKeepsNothing(t *testing.T) {
	t.Parallel()
	_, upstream := mcptest.HTTP(t, quiet)
	socket := "unix:" + filepath.Join(t.TempDir(), "a.sock")
	mcptest.Listen(t, "--policy", write(t, "p.yaml", plainPolicy), "--upstream", upstream, "--admin", socket)
	r := command(t, nil, "runs", "ls", "--admin", socket)
	if r.code != 1 {
		t.Errorf("%+v", r)
	}
	oneLine(t, r.stderr, "this proxy keeps no runs: give it --store")
	r = command(t, nil, "runs", "show", "x", "--admin", socket)
	if r.code != 1 {
		t.Errorf("%+v", r)
	}
	oneLine(t, r.stderr, "there is no such run", "(run_not_found)")
}
