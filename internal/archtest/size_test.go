package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// The most that a reader is asked to keep in mind at once.
const (
	maxPackageLines = 4000
	maxFileLines    = 700
	maxFields       = 20
)

// large are the structs with more fields, and why: configuration, and what mirrors a format
// from outside.
var large = map[string]string{
	"internal/service.Config":          "configuration",
	"internal/service.Limits":          "configuration",
	"internal/streamhttp.ServerConfig": "configuration",
	"internal/strictyaml.Schema":       "mirrors JSON Schema",
	"proxy/settings.Config":            "configuration",
	"upstream.Config":                  "configuration",
}

// typed returns the packages of the module with their syntax and types, without tests.
func typed(t *testing.T, patterns ...string) []*packages.Package {
	t.Helper()
	all, err := packages.Load(&packages.Config{
		Dir:  root(t),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}, patterns...)
	if err != nil {
		t.Fatalf("loading packages: %v", err)
	}
	for _, p := range all {
		for _, e := range p.Errors {
			t.Fatalf("loading %s: %v", p.PkgPath, e)
		}
	}
	return all
}

func folderOf(p *packages.Package) string { return strings.TrimPrefix(p.PkgPath, module+"/") }

func TestSizes(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range typed(t, "./...") {
		sum := 0
		for _, file := range p.Syntax {
			lines := p.Fset.File(file.Pos()).LineCount()
			sum += lines
			if lines > maxFileLines {
				t.Errorf("%s has %d lines: a file is one noun, of at most %d", relative(t, p, file.Pos()), lines, maxFileLines)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				name := folderOf(p) + "." + spec.Name.Name
				s, ok := spec.Type.(*ast.StructType)
				if ok && s.Fields.NumFields() > maxFields {
					seen[name] = true
					if large[name] == "" {
						t.Errorf("%s has %d fields, of at most %d: what changes for different reasons is different types", name, s.Fields.NumFields(), maxFields)
					}
				}
				return true
			})
		}
		if sum > maxPackageLines {
			t.Errorf("%s has %d lines, of at most %d", folderOf(p), sum, maxPackageLines)
		}
	}
	for name := range large {
		if !seen[name] {
			t.Errorf("%s is an exception that nothing needs any more", name)
		}
	}
}

// Files of proxy that all need each other are one file, or another package.
func TestCircles(t *testing.T) {
	for _, p := range typed(t, "./proxy") {
		uses := arrows(p)
		largest := slices.MaxFunc(circles(uses), func(a, b []string) int { return len(a) - len(b) })
		if 3*len(largest) > len(p.Syntax) {
			slices.Sort(largest)
			t.Errorf("%d of the %d files of %s need each other, of at most a third: %s", len(largest), len(p.Syntax), folderOf(p), strings.Join(largest, " "))
		}
	}
}

// arrows tells of each file of a package which others have what it names.
func arrows(p *packages.Package) map[string][]string {
	name := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	uses := map[string][]string{}
	for _, file := range p.Syntax {
		uses[name(file.Pos())] = nil
	}
	for ident, object := range p.TypesInfo.Uses {
		if object.Pkg() != p.Types || !object.Pos().IsValid() {
			continue
		}
		if v, ok := object.(*types.Var); ok && (v.IsField() || v.Parent() != p.Types.Scope()) {
			continue // a field belongs to its type, which is named with it
		}
		from, to := name(ident.Pos()), name(object.Pos())
		if from != to && !slices.Contains(uses[from], to) {
			uses[from] = append(uses[from], to)
		}
	}
	return uses
}

// circles returns the strongly connected components of a graph (Tarjan 1972).
func circles(uses map[string][]string) (all [][]string) {
	index, low, on := map[string]int{}, map[string]int{}, map[string]bool{}
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, on[v] = append(stack, v), true
		for _, w := range uses[v] {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if on[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		at := slices.Index(stack, v)
		circle := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, w := range circle {
			on[w] = false
		}
		all = append(all, circle)
	}
	for v := range uses {
		if index[v] == 0 {
			visit(v)
		}
	}
	return all
}

func relative(t *testing.T, p *packages.Package, pos token.Pos) string {
	t.Helper()
	path, err := filepath.Rel(root(t), p.Fset.Position(pos).Filename)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(path)
}
