package policies_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

// A transcript is testdata/NAME.transcript. A line is something that a client
// does:
//
//	tool NAME [ARGUMENTS]     tools/call
//	read URI                  resources/read
//	prompt NAME [ARGUMENTS]   prompts/get
//	list KIND                 tools/list and so on
//
// and the line below it, which begins with "->", what came of it: the verdict
// (success, error, unknown, or refused and why), the state, and the lists that were said
// to have changed before the answer. $DIR stands for a folder of the test's own.
const answerMark = "   -> "

func TestTranscripts(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := play(t, name, server(t, dir))
			file := filepath.Join("testdata", name+".transcript")
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := perform(t, s, string(script), dir, chatty[name])
			if golden.Updating() {
				golden.Write(t, file, []byte(got))
				return
			}
			compare(t, string(script), got)
		})
	}
}

// play connects a client to the proxy with the policy in front of the server,
// which is given as the last arguments of run.
func play(t *testing.T, name string, server []string) *mcptest.Session {
	t.Helper()
	s, _ := mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run", "--policy", name + ".yaml", "--annotate", "meta"}, server...)...)
	s.Initialize()
	return s
}

// perform does what the script says, and returns it with the answers there were.
// A chatty server says by itself that its lists have changed, so that what was
// said before an answer need not belong to it.
func perform(t *testing.T, s *mcptest.Session, script, dir string, chatty bool) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, answerMark) {
			continue
		}
		out.WriteString(line)
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		method, params := request(t, strings.ReplaceAll(text, "$DIR", dir))
		answer, before := ask(s, method, params)
		if chatty {
			before = nil
		}
		fmt.Fprintf(&out, "%s%s\n", answerMark, describe(t, answer, before))
	}
	return out.String()
}

// ask sends a request and answers the roots/list of the server's that comes in
// between, as a client without roots.
func ask(s *mcptest.Session, method, params string) (answer mcptest.Message, before []mcptest.Message) {
	id := fmt.Sprint(s.Request(method, params))
	for {
		m := s.Next()
		switch {
		case m.IsRequest():
			s.Send(mcptest.Result(m.ID, `{"roots":[]}`))
		case m.IsResponse() && string(m.ID) == id:
			return m, before
		default:
			before = append(before, m)
		}
	}
}

// request is the JSON-RPC request of a script's line.
func request(t *testing.T, line string) (method, params string) {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	name, arguments, _ := strings.Cut(rest, " ")
	switch verb {
	case "tool":
		return "tools/call", mcptest.ToolParams(name, arguments)
	case "prompt":
		return "prompts/get", mcptest.ToolParams(name, arguments)
	case "read":
		return "resources/read", fmt.Sprintf(`{"uri":%q}`, name)
	case "list":
		return name + "/list", ""
	}
	t.Fatalf("the transcript says %q", line)
	return "", ""
}

// answered is what a transcript shows of an answer.
type answered struct {
	IsError bool `json:"isError"`
	Meta    struct {
		State   struct{ State string } `json:"fsm-proxy/state"`
		Refusal *refusal               `json:"fsm-proxy/refusal"`
	} `json:"_meta"`
	Tools, Prompts []struct{ Name string }
	Resources      []struct{ URI string }
}

type refusal struct{ Error, State string }

func describe(t *testing.T, m mcptest.Message, before []mcptest.Message) string {
	t.Helper()
	var r answered
	if err := json.Unmarshal(m.Result, &r); m.Result != nil && err != nil {
		t.Fatal(err)
	}
	text := verdict(m, r)
	for _, n := range before {
		if list, ok := strings.CutSuffix(n.Method, "/list_changed"); ok {
			text += ", " + strings.TrimPrefix(list, "notifications/") + " changed"
		}
	}
	return text
}

func verdict(m mcptest.Message, r answered) string {
	var failure struct{ Data refusal }
	if m.Error != nil && json.Unmarshal(m.Error, &failure) == nil && failure.Data.Error != "" {
		r.Meta.Refusal = &failure.Data
	}
	switch {
	case r.Meta.Refusal != nil && r.Meta.Refusal.Error == "outcome_unknown":
		return "unknown, now " + r.Meta.Refusal.State
	case r.Meta.Refusal != nil:
		return fmt.Sprintf("refused, %s, in %s", r.Meta.Refusal.Error, r.Meta.Refusal.State)
	case m.Error != nil:
		return "failed: " + string(m.Error)
	case r.Tools != nil || r.Resources != nil || r.Prompts != nil:
		return listed(r)
	case r.IsError:
		return "error, now " + r.Meta.State.State
	}
	return "success, now " + r.Meta.State.State
}

func listed(r answered) string {
	var all []string
	for _, item := range slices.Concat(r.Tools, r.Prompts) {
		all = append(all, item.Name)
	}
	for _, item := range r.Resources {
		all = append(all, item.URI)
	}
	return strings.Join(all, " ")
}

// compare reports the first line that differs.
func compare(t *testing.T, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			t.Fatalf("line %d: after %q\n got %s\nwant %s", i+1, w[max(0, i-1)], g[i], w[i])
		}
	}
	t.Fatalf("the transcript has %d lines, and there were %d; write them with -update", len(w), len(g))
}
