package policy

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

func TestStrictAndErr(t *testing.T) {
	f := Findings{{Level: LevelNote, File: "p", Message: "n"}, {Level: LevelWarning, File: "p", Line: 1, Column: 2, Code: "c", Message: "w"}}
	if f.Err() != nil || len(f.Warnings()) != 1 || len(f.Notes()) != 1 {
		t.Error("levels differ")
	}
	err := f.Strict().Err()
	if err == nil || err.Error() != "p:1:2: error: w (c)" {
		t.Errorf("strict: %v", err)
	}
	if f[1].Level != LevelWarning {
		t.Error("Strict changed its receiver")
	}
}

func TestTooLarge(t *testing.T) {
	p, found := Parse("p.yaml", make([]byte, strictyaml.MaxSource+1))
	if p != nil || found.String() != "p.yaml: error: the file has more than 1048576 bytes, the most that a policy may have (too-large)" {
		t.Error(found)
	}
}

func TestTooManyGlobs(t *testing.T) {
	var out strings.Builder
	out.WriteString("version: 1\ninitial: a\nstates:\n  a:\n    tools:\n")
	for i := range maxGlobs + 1 {
		out.WriteString("      t" + strings.Repeat("x", i) + "y*: stay\n")
	}
	p, found := Parse("p.yaml", []byte(out.String()))
	if p != nil || !strings.Contains(found.String(), "p.yaml:6:7: error: 257 globs over tools in one place; at most 256") {
		t.Error(found)
	}
}

// TestBytesBeforeYAML checks the places of what YAML's decoder would report
// without one.
func TestBytesBeforeYAML(t *testing.T) {
	for src, want := range map[string]string{
		"a: \"\xff\"":                  "p:1:5: error: bytes that are not UTF-8",
		"a: b\nä: \x00":                "p:2:4: error: a control character, U+0000",
		"\xff\xfea\x00":                "p:1:1: error: bytes that are not UTF-8",
		"a: \u0080":                    "p:1:4: error: a control character, U+0080",
		"a: 1\r\n\ufeff\u0007":         "p:2:2: error: a control character, U+0007",
		"\ufeff\u0007":                 "p:1:1: error: a control character, U+0007",
		"\ufeffversion: 1\ninitial: b": "p:1:1: error: no states",
	} {
		_, found := Parse("p", []byte(src))
		if !strings.HasPrefix(found.String(), want) {
			t.Errorf("%q: %v", src, found)
		}
	}
}

// TestExpansionIsBounded reads the classic of nested aliases at once.
func TestExpansionIsBounded(t *testing.T) {
	src := "x-0: &a0 {a: b}\n"
	for i := range 40 {
		n, m := string(rune('A'+i)), "a0"
		if i > 0 {
			m = string(rune('A' + i - 1))
		}
		src += "x-" + n + ": &" + n + " [*" + m + ", *" + m + "]\n"
	}
	if _, found := Parse("p", []byte(src)); !strings.Contains(found.String(), "aliases make the file") && !strings.Contains(found.String(), "not YAML") {
		t.Error(found)
	}
}
