//go:build long

package matrix

import (
	"encoding/json"
	"strings"
	"testing"
)

// inspectorAt plays the scenario with the Inspector's command line, which is a connection for each step: over HTTP with
// one proxy, over stdio with one proxy for each.
func inspectorAt(era string) func(*testing.T, string, target) []line {
	return func(t *testing.T, scenario string, u target) []line {
		var lines []line
		for _, step := range readSteps(t, scenario) {
			arguments := inspection(t, step)
			if arguments == nil {
				continue
			}
			out, _ := inspect(t, u, append(arguments, "--protocol-era", era))
			l := line{Step: step}
			if json.Unmarshal([]byte(out), &l.Result) != nil {
				l.Error = out
			}
			lines = append(lines, l)
		}
		return lines
	}
}

// inspection is a step as arguments of the command line; nil: it has none for it.
func inspection(t *testing.T, step json.RawMessage) []string {
	var read goStep
	if err := json.Unmarshal(step, &read); err != nil {
		t.Fatal(err)
	}
	switch {
	case read.Op == "list":
		return []string{"--method", "tools/list"}
	case read.Op == "call" && !read.Cancel && !strings.Contains("ask progress", read.Name):
		return []string{"--method", "tools/call", "--tool-name", read.Name}
	}
	return nil
}
