package matrix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// line is what a client tells of one step of a scenario.
type line struct {
	Step   json.RawMessage   `json:"step"`
	Result any               `json:"result,omitempty"`
	Error  any               `json:"error,omitempty"`
	During []json.RawMessage `json:"during,omitempty"`
}

// op returns the step's operation and the kind of its list, if it is one.
func (l line) op() (op, kind string) {
	var step struct {
		Op   string `json:"op"`
		Kind string `json:"kind"`
	}
	if json.Unmarshal(l.Step, &step) != nil {
		return "", ""
	}
	return step.Op, step.Kind
}

// scenarioFile writes a scenario with its folder filled in, and returns its path.
func scenarioFile(t *testing.T, name string, u target) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".json")
	text = bytes.ReplaceAll(text, []byte("{{dir}}"), []byte(filepath.ToSlash(u.folder)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// stepsFile writes steps of the test's own, and returns their path.
func stepsFile(t *testing.T, steps string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "steps.json")
	if err := os.WriteFile(path, []byte(steps), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// playNode plays a scenario with one of the TypeScript clients and returns what it saw.
func playNode(t *testing.T, script, scenario string, u target, options ...string) []line {
	t.Helper()
	return playScript(t, mcptest.Node(t), mcptest.NodeScript(script), scenario, u, options...)
}

// playScript plays a scenario with a client script and returns what it saw.
func playScript(t *testing.T, interpreter, script, scenario string, u target, options ...string) []line {
	t.Helper()
	args := append([]string{script, "--steps", scenario}, options...)
	if u.url != "" {
		args = append(args, "--url", u.url)
	} else {
		args = append(append(args, "--stdio"), u.argv...)
	}
	command := exec.Command(interpreter, args...)
	command.Env = append(os.Environ(), u.env...)
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", script, err, out, complaints.String())
	}
	return readLines(t, out)
}

func readLines(t *testing.T, out []byte) []line {
	t.Helper()
	var lines []line
	for _, text := range mcptest.Lines(out) {
		if !strings.HasPrefix(text, "{") {
			continue // SDK 2.x prints advice to standard output
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("reading %q: %v", text, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// What differs from one direct session to the next.
var volatile = []struct {
	pattern *regexp.Regexp
	stands  string
}{
	{regexp.MustCompile(`"taskId":"[0-9a-f]{32}"`), `"taskId":"TASK"`},
	{regexp.MustCompile(`\b\d{1,2}:\d\d:\d\d.[AP]M\b`), "TIME"},
	{regexp.MustCompile(`session (undefined|[0-9a-f]{8}-[0-9a-f-]{27})`), "session S"},
	{regexp.MustCompile(`"UmVzb3VyY2Ug[^"]*"`), `"BLOB"`},                                                                       // base64 of "Resource …" with the time
	{regexp.MustCompile(`\{"content":\[\{("type":"text",)?"text":"(p|\d+|progress of \w+)"(,"type":"text")?\}\]\}`), `"TOKEN"`}, // the conformance server's progress tool shows the token that it was given
}

// comparable returns a session's lines with what may differ taken out: what varies between direct sessions,
// and the edits of DESIGN section 4 that the open policy causes.
func comparable(t *testing.T, lines []line, folder string, bound []string) []string {
	t.Helper()
	texts := make([]string, len(lines))
	for i, l := range lines {
		settle(&l, bound)
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range volatile {
			text = v.pattern.ReplaceAll(text, []byte(v.stands))
		}
		if folder != "" {
			text = bytes.ReplaceAll(text, []byte(folder), []byte("DIR"))
		}
		texts[i] = string(text)
	}
	return texts
}

func settle(l *line, bound []string) {
	switch op, kind := l.op(); {
	case op == "connect":
		settleCapabilities(l)
	case op == "list" && kind == "resources":
		dropBound(l, bound)
	case op == "arrived":
		dropUnsure(l)
	case op == "call":
		dropLastProgress(l)
	}
}

// settleCapabilities: lists of the proxy always change, and tasks come later.
func settleCapabilities(l *line) {
	result, _ := l.Result.(map[string]any)
	capabilities, _ := result["capabilities"].(map[string]any)
	delete(capabilities, "tasks")
	for _, kind := range []string{"tools", "resources", "prompts"} {
		if offered, ok := capabilities[kind].(map[string]any); ok {
			offered["listChanged"] = true
		}
	}
}

// dropBound: a bound URI that only a template serves is listed by the proxy.
func dropBound(l *line, bound []string) {
	result, _ := l.Result.(map[string]any)
	resources, ok := result["resources"].([]any)
	if !ok {
		return
	}
	result["resources"] = slices.DeleteFunc(resources, func(entry any) bool {
		resource, _ := entry.(map[string]any)
		uri, _ := resource["uri"].(string)
		return slices.Contains(bound, uri)
	})
}

// dropUnsure: server-everything tells of its changed tools before its answer to initialize, where a client
// may or may not hear it, and the proxy's client has not listed yet.
func dropUnsure(l *line) {
	methods, _ := l.Result.([]any)
	l.Result = slices.DeleteFunc(methods, func(method any) bool { return method == "notifications/tools/list_changed" })
}

// dropLastProgress: SDK 1.x forgets whom progress is for when the answer comes in the same read.
func dropLastProgress(l *line) {
	l.During = slices.DeleteFunc(l.During, func(event json.RawMessage) bool {
		var read struct {
			Params struct{ Progress, Total float64 }
		}
		return json.Unmarshal(event, &read) == nil && read.Params.Total > 0 && read.Params.Progress == read.Params.Total
	})
}

// sameSession fails the test for every step that the client saw differently.
func sameSession(t *testing.T, direct, proxied []string) {
	t.Helper()
	for i := range max(len(direct), len(proxied)) {
		want, got := at(direct, i), at(proxied, i)
		if want != got {
			t.Errorf("step %d differs\ndirect:  %s\nproxied: %s", i, excerpt(want, got), excerpt(got, want))
		}
	}
}

func at(texts []string, i int) string {
	if i >= len(texts) {
		return "(none)"
	}
	return texts[i]
}

// excerpt returns the step of a text and what stands around its first difference from the other.
func excerpt(text, other string) string {
	i := 0
	for i < len(text) && i < len(other) && text[i] == other[i] {
		i++
	}
	start, end := max(0, i-120), min(len(text), i+400)
	return fmt.Sprintf("%.100s … %s", text, text[start:end])
}
