package guard

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// Conjuncts returns the parts of a guard that lists follow: of a && b && c, what hangs on who asks alone, and what
// hangs on the run and its registers alone. A part that there is not is nil. Where a part does not hold, or is an
// error, no call has the guard hold: && is true only if both its sides are, and a part reads, decodes and costs no
// more than the whole. What hangs on nothing is left out if it is true, and follows the run if it never is.
//
// The parts are programs of their own; String returns the whole expression.
func (p *Program) Conjuncts() (who, run *Program) { return p.who, p.run }

// ReadsResult reports whether the expression hangs on the result.
func (p *Program) ReadsResult() bool { return p.documents[fromResult] != nil }

// follows says what a conjunct hangs on.
type follows uint8

const (
	followsNothing follows = 0
	followsWho     follows = 1 << iota
	followsRun
	followsCall // arguments, the name, the time
)

// follows returns what there is to follow in what an expression reads.
func (c *compiler) follows(e ast.Expr) (f follows) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.IdentKind {
			return
		}
		i, ok := readOf(e.AsIdent())
		if !ok {
			return
		}
		switch c.program.reads[i].from {
		case fromWho, fromClaims:
			f |= followsWho
		case fromRun, fromRegisters:
			f |= followsRun
		default:
			f |= followsCall
		}
	}))
	return f
}

// conjuncts makes programs of the conjuncts that lists follow.
func (c *compiler) conjuncts(env *cel.Env, checked *ast.AST) {
	c.program.who = c.conjunct(env, checked, func(e ast.Expr) bool { return c.follows(e) == followsWho })
	c.program.run = c.conjunct(env, checked, func(e ast.Expr) bool {
		f := c.follows(e)
		return f == followsRun || f == followsNothing && !c.isTrue(env, checked, e)
	})
}

// conjunct makes a program of those conjuncts that are asked for, nil if there are none.
func (c *compiler) conjunct(env *cel.Env, checked *ast.AST, wanted func(ast.Expr) bool) *Program {
	switch e := c.prune(checked.Expr(), wanted); e {
	case nil:
		return nil
	case checked.Expr():
		return c.program
	default:
		return c.part(env, checked, e)
	}
}

// prune returns an expression without the conjuncts that are not wanted, nil if none is.
func (c *compiler) prune(e ast.Expr, wanted func(ast.Expr) bool) ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		if wanted(e) {
			return e
		}
		return nil
	}
	args := e.AsCall().Args()
	left, right := c.prune(args[0], wanted), c.prune(args[1], wanted)
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left == args[0] && right == args[1]:
		return e
	}
	return c.factory.NewCall(e.ID(), operators.LogicalAnd, left, right)
}

// part makes a program of a part of an expression, whose types are known. It shares the reads' numbers with the whole.
func (c *compiler) part(env *cel.Env, checked *ast.AST, e ast.Expr) *Program {
	whole := c.program
	tree := ast.NewCheckedAST(ast.NewAST(e, checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
	program, err := env.PlanProgram(tree, c.options()...)
	if err != nil {
		c.errorAt(0, "%s", c.readable(err.Error()))
		return nil
	}
	p := &Program{text: whole.text, scope: whole.scope, kind: Boolean, limit: whole.limit, program: program, reads: make([]read, len(whole.reads))}
	for i := range p.reads {
		p.reads[i] = read{from: fromNowhere, form: formHas} // nothing of it is decoded
	}
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind {
			if i, ok := readOf(e.AsIdent()); ok {
				p.reads[i] = whole.reads[i]
				if p.reads[i].from == fromClaims {
					p.documents[fromClaims] = whole.documents[fromClaims]
				}
			}
		}
	}))
	return p
}

// constants warns of sides of && and || that read nothing: they decide the condition, or nothing. Of a whole condition
// that is constant its Reads tell.
func (c *compiler) constants(env *cel.Env, checked *ast.AST, e ast.Expr) {
	if e.Kind() != ast.CallKind {
		return
	}
	name := e.AsCall().FunctionName()
	if name != operators.LogicalAnd && name != operators.LogicalOr || c.follows(e) == followsNothing {
		return
	}
	for _, side := range e.AsCall().Args() {
		if c.follows(side) != followsNothing {
			c.constants(env, checked, side)
			continue
		}
		switch holds := c.isTrue(env, checked, side); {
		case holds && name == operators.LogicalOr:
			c.warn(leftmost(side), Constant, "this side of || is always true, and so is all that || joins; remove it, or read what it is to hang on")
		case !holds && name == operators.LogicalAnd:
			c.warn(leftmost(side), Constant, "this side of && is never true, and so is all that && joins; remove it, or read what it is to hang on")
		default:
			c.warn(leftmost(side), Constant, "this side of %s decides nothing, whatever is called; remove it, or read what it is to hang on", map[string]string{operators.LogicalAnd: "&&", operators.LogicalOr: "||"}[name])
		}
	}
}

// isTrue reports whether an expression that reads nothing is true.
func (c *compiler) isTrue(env *cel.Env, checked *ast.AST, e ast.Expr) bool {
	p := c.part(env, checked, e)
	if p == nil {
		return false
	}
	holds, _ := p.Holds(&Call{})
	return holds
}
