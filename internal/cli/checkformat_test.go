//go:build unix

package cli

import (
	"go/constant"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/txtar"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

// formats are command lines of check, by the name of what they print.
var formats = []struct {
	name string
	args []string
}{
	{"text", []string{"policies"}},
	{"terminal", []string{"policies", "--color", "always"}},
	{"json", []string{"policies", "--format", "json"}},
	{"github", []string{"policies", "missing.yaml", "--format", "github"}},
	{"sarif", []string{"policies", "missing.yaml", "--format", "sarif"}},
	{"against.text", []string{"--against", "before", "after"}},
	{"against.json", []string{"--against", "before", "after", "--format", "json"}},
	{"against.github", []string{"--against", "before", "after", "--format", "github", "--strict"}},
	{"against.sarif", []string{"--against", "before", "after", "--format", "sarif"}},
}

// Each format prints the whole of what is found, of one file or many, and of what a
// reload would do. Colours are written as \e.
func TestCheckFormats(t *testing.T) {
	const file = "testdata/check.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if strings.HasPrefix(f.Name, "want/") {
			continue
		}
		out.Files = append(out.Files, f)
		path := filepath.Join(folder, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range formats {
		r := commandIn(t, folder, []string{"GITHUB_WORKSPACE="}, append([]string{"check"}, f.args...)...)
		if strings.Contains(f.name, "sarif") {
			validSARIF(t, r.stdout)
		}
		printed := strings.NewReplacer("\x1b", `\e`, folder, "FOLDER", `"version": "`+versionOf("")+`"`, `"version": "VERSION"`).Replace(r.stdout)
		out.Files = append(out.Files, txtar.File{Name: "want/" + f.name, Data: []byte(printed)})
	}
	golden.Compare(t, file, txtar.Format(out))
}

// A file is told of whose name is no UTF-8, which not every file system has.
func TestJSONOfANameThatIsNoText(t *testing.T) {
	var out strings.Builder
	if err := writeIndented(&out, jsonReport{File: "a\xff.yaml"}); err != nil || !strings.Contains(out.String(), "a\uFFFD.yaml") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// validSARIF fails unless a text is SARIF 2.1.0 by its schema.
func validSARIF(t *testing.T, text string) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := sarifSchemaOf(t).Validate(document); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
}

// sarifSchemaOf is the schema of SARIF that go-sarif has within it.
func sarifSchemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	all, err := packages.Load(&packages.Config{Mode: packages.NeedTypes | packages.NeedSyntax}, reflect.TypeFor[sarif.Report]().PkgPath())
	if err != nil || packages.PrintErrors(all) > 0 {
		t.Fatal("go-sarif does not load", err)
	}
	source := constant.StringVal(all[0].Types.Scope().Lookup("schema").(*types.Const).Val())
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(source))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(sarifSchema, document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(sarifSchema)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
