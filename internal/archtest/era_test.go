package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The proxy sees one era: how clients and upstreams speak is asked of bridge.
func TestProxyNamesNoEra(t *testing.T) {
	named := regexp.MustCompile(`Modern|Legacy|\b[eE]ra\b|Era$`)
	files, err := filepath.Glob(filepath.Join(root(t), "proxy", "*.go"))
	rooms, failed := filepath.Glob(filepath.Join(root(t), "proxy", "*", "*.go"))
	if err != nil || failed != nil || len(files) == 0 || len(rooms) == 0 {
		t.Fatal(files, rooms, err, failed)
	}
	for _, file := range slices.Concat(files, rooms) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && named.MatchString(id.Name) {
				t.Errorf("%s names an era: %s", set.Position(id.Pos()), id.Name)
			}
			return true
		})
	}
}
