package report

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// What YAML reads wrongly of an expression is shown in quotes, and the file is right once that is pasted.
func TestShownExpressionsCanBePasted(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/findings.txtar")
	if err != nil {
		t.Fatal(err)
	}
	pasted := 0
	for _, f := range archive.Files {
		if !strings.HasPrefix(f.Name, "yaml-expression") || !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		lines := strings.Split(string(f.Data), "\n")
		_, found := Parse(f.Name, f.Data)
		for _, x := range slices.Backward(found) { // the last of a line first
			if _, shown, ok := strings.Cut(x.Message, "; write: "); ok {
				_, quoted, _ := strings.Cut(shown, ": ")
				lines[x.Line-1] = paste(lines[x.Line-1], x.Column, quoted)
				pasted++
			}
		}
		_, found = Parse(f.Name, []byte(strings.Join(lines, "\n")))
		if slices.ContainsFunc(found, func(x policy.Finding) bool { return x.Level == policy.LevelError && x.Code != "guard" }) {
			t.Errorf("%s, with what is shown:\n%s\n%v", f.Name, strings.Join(lines, "\n"), found)
		}
	}
	if pasted < 20 {
		t.Errorf("%d are shown", pasted)
	}
}

// paste puts an expression in quotes in place of the one without that stands in a column.
func paste(line string, column int, quoted string) string {
	runes := []rune(line)
	plain := strings.ReplaceAll(quoted[1:len(quoted)-1], "''", "'")
	before, rest := string(runes[:column-1]), string(runes[column-1:])
	if !strings.HasPrefix(rest, plain) {
		plain = `"` + plain + `"`
	}
	return before + quoted + strings.TrimPrefix(rest, plain)
}
