package telemetry

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

var textExample = regexp.MustCompile("(?s)```text\n(.*?)```")

// documented is the first example of text on a page.
func documented(t *testing.T, page string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(mcptest.Root(), "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	found := textExample.FindStringSubmatch(string(doc))
	if found == nil {
		t.Fatalf("%s has no example", page)
	}
	return found[1]
}

// anyRun is what differs from one run to the next.
var anyRun = []struct {
	what *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`(?m)^\S+Z `), "TIME "},
	{regexp.MustCompile(`since=\S+`), "since=TIME"},
	{regexp.MustCompile(`after=\S+`), "after=TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`session=[0-9a-f]{8}`), "session=NAME"},
	{regexp.MustCompile(`/\S+/policy\.yaml`), "policy.yaml"},
	{regexp.MustCompile(`upstream=\S+`), "upstream=SERVER"},
}

func ofAnyRun(text string) string {
	for _, x := range anyRun {
		text = x.what.ReplaceAllString(text, x.to)
	}
	return text
}

const logged = `version: 1
name: logged
initial: start
states:
  start:
    tools: {look: , move: {on_success: after, on_unknown: stay}}
  after:
    tools: {look: , wait: {on_success: start, on_unknown: start}}
`

// The lines in docs/telemetry.md are what is logged.
func TestDocumentedLog(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	upstream := mcptest.Stdio(t, "world")
	url, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, logged), "--bearer-file", token, "--call-timeout", "1s",
		"--share-upstream", "--"}, upstream.Command()...)...)
	stranger, err := http.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	stranger.Body.Close()
	s, web := mcptest.DialWeb(t, url)
	web.Header.Set("Authorization", "Bearer right")
	s.Initialize()
	s.Tool("move", "")
	s.Tool("move", "")
	s.Tool("wait", "")
	web.Delete()
	p.Log().Await(t, "session ended")
	_ = p.Process.Signal(os.Interrupt)
	p.ExitCode()
	var lines []string
	for line := range strings.Lines(p.Log().String()) {
		if !strings.Contains(line, "reduced environment") && !strings.Contains(line, "pid=") { // the test's; at any time
			lines = append(lines, line)
		}
	}
	if got, want := ofAnyRun(strings.Join(lines, "")), ofAnyRun(documented(t, "telemetry.md")); got != want {
		t.Errorf("got\n%s\ndocumented is\n%s\nas it was:\n%s", got, want, strings.Join(lines, ""))
	}
}

var readmePolicy = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The line in docs/shadow.md is what is logged under the README's policy.
func TestDocumentedShadow(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(mcptest.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	policy := readmePolicy.FindStringSubmatch(string(readme))[1]
	upstream := mcptest.Stdio(t, "world")
	s, p := mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run", "--mode", "shadow", "--policy", mcptest.WritePolicy(t, policy), "--"}, upstream.Command()...)...)
	s.Initialize()
	s.Tool("apply", "")
	p.Log().Await(t, "would be refused")
	if got, want := ofAnyRun(p.Log().String()), ofAnyRun(documented(t, "shadow.md")); !strings.Contains(got, want) {
		t.Errorf("got\n%s\ndocumented is\n%s", got, want)
	}
}
