package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// TestFindings reads every policy of findings.txtar and compares what is found
// with the file that follows it. Each message is to be read as its user would:
// it says what is wrong, where, and what to do.
func TestFindings(t *testing.T) {
	const file = "testdata/findings.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		p, found := Parse(f.Name, f.Data)
		if (p == nil) != (len(found.Errors()) > 0) {
			t.Errorf("%s: policy %v with errors %v", f.Name, p != nil, found.Errors())
		}
		out.Files = append(out.Files, f, txtar.File{
			Name: strings.TrimSuffix(f.Name, ".yaml") + ".want",
			Data: []byte(found.String() + "\n"),
		})
	}
	golden.Compare(t, file, txtar.Format(out))
}

func loadFile(t testing.TB, file string) *policy.Policy {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, filepath.Base(file), src)
}

// parse parses a policy that has no errors.
func parse(t testing.TB, file string, src []byte) *policy.Policy {
	t.Helper()
	p, found := Parse(file, src)
	if p == nil {
		t.Fatalf("%s:\n%v", file, found)
	}
	return p
}

func TestRenderings(t *testing.T) {
	for _, file := range append(model.Examples(t, ".."), "testdata/conditions.yaml") {
		p := loadFile(t, file)
		all := &txtar.Archive{Files: []txtar.File{
			{Name: "text", Data: []byte(Text(p))},
			{Name: "mermaid", Data: []byte(Mermaid(p))},
			{Name: "dot", Data: []byte(DOT(p))},
			{Name: "json", Data: JSON(p)},
		}}
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		golden.Compare(t, filepath.Join("testdata/rendered", name+".txtar"), txtar.Format(all))
	}
}

func TestStrictExamples(t *testing.T) {
	for _, file := range []string{"../testdata/valid/deploy-review.yaml", "../../policies/crossroads.yaml"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, found := Parse(file, src)
		if err := found.Strict().Err(); err != nil {
			t.Error(err)
		}
	}
}
