//go:build unix

package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const waitingPolicy = `version: 1
name: waiting
initial: open
registers: {plan: text, times: counter}
states:
  open:
    tools: [work]
    signals:
      done: {terminal: true, from: operator}
      approved: {to: shut, from: operator, description: Shut it., set: {plan: '"a plan"', times: {add: 1}}}
  shut: {signals: {back: open}}
`

// onRuns runs the command, and returns what it prints, and says.
func onRuns(t *testing.T, args ...string) (out, said string, code int) {
	t.Helper()
	cmd := exec.Command(mcptest.Proxy(t), append([]string{"runs"}, args...)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// An operator looks at a run at a socket, and sends it signals, in text and JSON. The configuration file names the tokens.
func TestRunsCommand(t *testing.T) {
	t.Parallel()
	_, upstream := mcptest.HTTP(t, quiet)
	socket := filepath.Join(t.TempDir(), "a.sock")
	hashes := write(t, "operators.yaml", fmt.Sprintf("version: 1\ntokens: {ann: \"sha256:%x\"}\n", sha256.Sum256([]byte("secret"))))
	file := write(t, "fsm-proxy.yaml", fmt.Sprintf("version: 1\nadmin: {address: \"unix:%s\", tokens: %q}\n", socket, hashes))
	url, p := mcptest.Listen(t, "--config", file, "--policy", write(t, "p.yaml", waitingPolicy), "--upstream", upstream)
	s, _ := mcptest.DialWeb(t, url)
	s.Initialize()
	at := []string{"--admin", "unix:" + socket, "--admin-bearer-file", write(t, "token", "secret\n")}
	answer, err := askAdmin(t, nil, append(at, "/v1/runs")...)
	var page struct{ Items []admin.Run }
	if json.Unmarshal([]byte(answer), &page) != nil || len(page.Items) != 1 {
		t.Fatal(answer, err)
	}
	id := page.Items[0].ID
	run := func(code int, args ...string) (out, said string) {
		t.Helper()
		out, said, got := onRuns(t, append(args, at...)...)
		if got != code {
			t.Errorf("%v: %d\n%s%s", args, got, out, said)
		}
		return out, said
	}
	out, _ := run(0, "show", id)
	contains(t, out, "run        "+id+"\nkey        session\nstate      open\nseq        0\nturn       free\npolicy     ")
	contains(t, out, "signals    done → open, complete\n           approved → shut: Shut it.\n")
	out, _ = run(0, "signal", id, "approved", "--note", "it is \x1b[31m late", "--seq", "0")
	if want := "State is now 'shut', seq 1. Signals: back.\n"; out != want {
		t.Errorf("%q", out)
	}
	p.Log().Await(t, `subject=ann run=`+id+` signal=approved note="it is \x1b[31m late"`)
	out, _ = run(0, "show", id)
	contains(t, out, `registers  {"plan":"a plan","times":1}`)
	_, said := run(1, "signal", id, "back", "--seq", "0")
	oneLine(t, said, "the run has moved since", "seq 1", "(run_moved)")
	out, said = run(1, "signal", id, "approved", "--json")
	oneLine(t, said, "(invalid_transition)")
	var no admin.Refusal
	if json.Unmarshal([]byte(out), &no) != nil || no.Code != "invalid_transition" || no.State != "shut" || *no.Seq != 1 {
		t.Errorf("%s", out)
	}
	out, _ = run(0, "signal", id, "back", "--json")
	var done admin.Signalled
	if json.Unmarshal([]byte(out), &done) != nil || done.State != "open" || done.Seq != 2 || len(done.Next.Signals) != 2 {
		t.Errorf("%s", out)
	}
	out, _ = run(0, "show", id, "--json")
	contains(t, out, `"seq": 2`)
	contains(t, out, "\"registers\": {\n    \"plan\": \"a plan\",\n    \"times\": 1\n  }")
	out, _ = run(0, "signal", id, "done")
	contains(t, out, "The run was completed and begins again. State is now 'open', seq 3. Signals: done, approved.")
	_, said = run(1, "show", "no run?x")
	oneLine(t, said, "there is no such run", "(run_not_found)")
	_, said = run(1, "signal", id, "no signal?seq=9")
	oneLine(t, said, "no state has this signal", "(unknown_action)")
	_, said, _ = onRuns(t, "signal", id, "approved", at[0], at[1])
	oneLine(t, said, "a bearer token is needed", "--admin-tokens")
}

func TestRunsCommandSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"shw"}, exit.Usage, `"shw" is no command of fsm-proxy runs; it has "accept", "annotate", "diff", "end", "export", "fork", "gc", "import", "ls", "release", "reset", "show", "signal", "start" and "tail"`},
		{[]string{"show"}, exit.Usage, "show takes one argument, RUN, got 0"},
		{[]string{"signal", "x"}, exit.Usage, "signal takes 2 arguments, RUN and NAME, got 1"},
		{[]string{"show", "x"}, exit.Usage, "or give --admin, to ask a running proxy"},
		{[]string{"show", "x", "--admin", "nowhere"}, exit.Usage, "is no address"},
		{[]string{"signal", "x", "y", "--admin", "127.0.0.1:1", "--seq", "-1"}, exit.Usage, "seq"},
		{[]string{"signal", "x", "y", "--admin", "127.0.0.1:1", "--note", "\xff"}, exit.Usage, "--note is no text"},
		{[]string{"show", "x", "--admin", mcptest.FreeAddress(t)}, 1, "is it running"},
	} {
		if _, said, code := onRuns(t, c.args...); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%v: %d %s", c.args, code, said)
		}
	}
	if out, _, code := onRuns(t); code != 0 || !strings.Contains(out, "signal") {
		t.Errorf("%d %s", code, out)
	}
}

// With operators' hashes --admin may be any address, and all of it needs one of their tokens.
func TestAdminTokens(t *testing.T) {
	t.Parallel()
	at := mcptest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(at)
	_, upstream := mcptest.HTTP(t, quiet)
	hash := func(token string) string { return fmt.Sprintf("\"sha256:%x\"", sha256.Sum256([]byte(token))) }
	hashes := write(t, "operators.yaml", "version: 1\ntokens: {ann: "+hash("anns")+", bob: ["+hash("bobs")+", "+hash("bobs new")+"]}\n")
	_, p := mcptest.Listen(t, "--policy", write(t, "p.yaml", plainPolicy), "--upstream", upstream,
		"--admin", "0.0.0.0:"+port, "--admin-tokens", hashes, "--admin-bearer-file", write(t, "token", "one"))
	for sent, want := range map[string]int{"": 401, "Bearer eve": 401, "Bearer one": 200, "Bearer anns": 200, "Bearer bobs": 200, "Bearer bobs new": 200, "Basic anns": 401} {
		if got, _ := fetch(t, "GET", "http://"+at+"/v1/policy", "pod.example", "", "Authorization", sent); got != want {
			t.Errorf("%q: %d", sent, got)
		}
	}
	for _, secret := range []string{"anns", "bobs", "one"} {
		if strings.Contains(p.Log().String(), "Bearer "+secret) || strings.Contains(p.Log().String(), "token="+secret) {
			t.Error("the log tells a token")
		}
	}
	for _, text := range []string{"", "version: 1\ntokens: {ann: secret}\n", "version: 1\ntoken: {}\n"} {
		bad := write(t, "bad.yaml", text)
		cmd := exec.Command(mcptest.Proxy(t), "run", "--policy", write(t, "p.yaml", plainPolicy), "--upstream", upstream, "--admin", "127.0.0.1:0", "--admin-tokens", bad)
		cmd.Stdin, _ = os.Open(os.DevNull)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the operators' token file has errors") || strings.Contains(string(out), "secret") {
			t.Errorf("%q: %v %s", text, err, out)
		}
	}
}
