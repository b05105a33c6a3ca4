package cli

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Each finding that the sources can make has a rule, and each rule a finding.
func TestEveryFindingHasARule(t *testing.T) {
	made := codes(t)
	ruled := map[string]bool{}
	for _, r := range rules {
		if ruled[r.id] {
			t.Errorf("%s has two rules", r.id)
		}
		ruled[r.id] = true
		if made[r.id] == "" {
			t.Errorf("nothing makes a finding %s", r.id)
		}
	}
	for code, where := range made {
		if !ruled[code] {
			t.Errorf("%s: the finding %s has no rule", where, code)
		}
	}
}

// codeAt is the argument that is a finding's code, by the method of a Reader.
var codeAt = map[string]int{"Errorf": 1, "Add": 2, "AddAbout": 2}

// codes are the codes of the findings that the sources make, each with where.
func codes(t *testing.T) map[string]string {
	t.Helper()
	cfg := &packages.Config{Dir: mcptest.Root(), Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile}
	all, err := packages.Load(cfg, "./policy/...", "./internal/strictyaml", "./internal/config", "./internal/lock", "./internal/cli")
	if err != nil || packages.PrintErrors(all) > 0 {
		t.Fatal("the packages do not load", err)
	}
	made := map[string]string{}
	for _, p := range all {
		take := func(x ast.Expr) {
			if value := p.TypesInfo.Types[x].Value; value != nil {
				made[constant.StringVal(value)] = p.Fset.Position(x.Pos()).String()
			} else if p.Name != "strictyaml" { // whose Add calls AddAbout
				t.Errorf("%s: the code of a finding is no constant", p.Fset.Position(x.Pos()))
			}
		}
		for _, file := range p.Syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if at, ok := codeArgument(p.TypesInfo, n); ok {
						take(n.Args[at])
					}
				case *ast.CompositeLit:
					for _, e := range n.Elts {
						if named(p.TypesInfo.TypeOf(n), "Finding") && e.(*ast.KeyValueExpr).Key.(*ast.Ident).Name == "Code" {
							take(e.(*ast.KeyValueExpr).Value)
						}
					}
				}
				return true
			})
		}
	}
	return made
}

// codeArgument is which argument of a call is a finding's code, if it makes one.
func codeArgument(info *types.Info, call *ast.CallExpr) (int, bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return 0, false
	}
	method, ok := info.Uses[selector.Sel].(*types.Func)
	if !ok || method.Signature().Recv() == nil {
		return 0, false
	}
	of, ok := method.Signature().Recv().Type().(*types.Pointer)
	at, makes := codeAt[method.Name()]
	return at, ok && makes && named(of.Elem(), "Reader")
}

// named reports whether a type is strictyaml's of this name.
func named(x types.Type, name string) bool {
	of, ok := types.Unalias(x).(*types.Named)
	return ok && of.Obj().Name() == name && of.Obj().Pkg() != nil && of.Obj().Pkg().Name() == "strictyaml"
}

// The page lists each rule as it is.
func TestRulesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(mcptest.Root(), "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if row := fmt.Sprintf("\n| `%s` | %s | %s |\n", r.id, r.level, r.meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/policy.md has no row %s", row)
		}
	}
}
