package guard

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// Clauses returns what && joins in a condition on a call, each as a condition of its own that is written as it stands
// there, for who wants to know which of them fails; the condition alone where nothing is joined.
func (e *Env) Clauses(condition *Program) []*Program {
	clauses := []*Program{}
	for _, text := range cut(condition.text) {
		program, _ := e.Guard(text)
		if program == nil {
			return []*Program{condition}
		}
		clauses = append(clauses, program)
	}
	return clauses
}

// cut returns the texts that the outermost && of an expression join.
func cut(text string) (pieces []string) {
	environment, err := environment()
	if err != nil {
		return []string{text}
	}
	parsed, issues := environment.Parse(text)
	if issues.Err() != nil {
		return []string{text}
	}
	c := &compiler{text: text, info: parsed.NativeRep().SourceInfo()}
	begin := 0
	for _, at := range append(c.ands(parsed.NativeRep().Expr()), len(text)) {
		piece := strings.TrimSpace(text[begin:at])
		if _, issues := environment.Parse(piece); issues.Err() == nil { // else the && stands within parentheses
			pieces, begin = append(pieces, piece), min(at+len("&&"), len(text))
		}
	}
	if begin < len(text) {
		return []string{text}
	}
	return pieces
}

// ands returns where the && stand that join an expression, in order.
func (c *compiler) ands(e ast.Expr) (at []int) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return nil
	}
	at = append(at, c.offset(e.ID()))
	for _, side := range e.AsCall().Args() {
		at = append(at, c.ands(side)...)
	}
	slices.Sort(at)
	return at
}
