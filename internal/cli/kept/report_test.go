package kept

import (
	"os"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// hostile is what somebody may call a thing who wants more than to be read.
const hostile = "x|y`</code><img src=x onerror=alert(1)>\\\\|@everyone [a](javascript:b) $`z`$ \\n# no\\u202e"

func TestReport(t *testing.T) {
	url := store(t, map[string][]string{"AAA1": {
		began, reads, plans, applies, applied,
		`"type":"refused","kind":"tool","name":"` + hostile + `","refusal":"unknown_action","times":3,"from":"done","to":{"state":"done","policy":"DIGEST"}`,
		`"type":"ended","kind":"resource","name":"` + hostile + `","outcome":"error","rule":"a|b.yaml:1:2","from":"done","to":{"state":"done","policy":"DIGEST"}`,
		`"type":"reset","from":"done","to":{"state":"open","policy":"DIGEST"}`,
		`"type":"` + hostile + `","from":"open","to":{"state":"ready","policy":"DIGEST"}`,
		`"type":1`,
		`"type":"begun","kind":"tool","name":"apply","turn":true,"rule":"planning.yaml:12:7","from":"ready","to":{"state":"ready","policy":"DIGEST"}`,
		`"type":"ended","kind":"tool","name":"plan","outcome":"success","from":"ready","to":{"state":"open","policy":"another"},"changed":true`,
	}})
	out, err := do(t, "", "report", "aaa", "--store", url)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/report.md"
	if want, _ := os.ReadFile(golden); out != string(want) {
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Errorf("it is\n%s\nwant what %s has (UPDATE=1 writes it)", out, golden)
	}
	if strings.Count(out, "```") != 2 || strings.Contains(out, "<img") || strings.Contains(out, "@everyone") {
		t.Errorf("somebody has written more than a name:\n%s", out)
	}
}

// Whatever a text is, as code it is one piece of a table's cell.
func TestCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("`|\\ <>&#;a\n$")), 0, 12, -1)).Draw(t, "text")
		shown := code(text)
		inner, plain := strings.CutPrefix(shown, "`")
		forbidden := "`|\\"
		if plain {
			inner = strings.TrimSuffix(inner, "`")
		} else if inner, _ = strings.CutPrefix(shown, "<code>"); inner != "" {
			inner, forbidden = strings.TrimSuffix(inner, "</code>"), "`|\\<>*_[]()!$@:.\"'"
		}
		if strings.ContainsAny(inner, forbidden) || strings.ContainsFunc(shown, unicode.IsControl) || shown == "``" || text != "" && shown == "" {
			t.Fatalf("%q is shown as %s", text, shown)
		}
	})
}
