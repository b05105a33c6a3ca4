package guard

import (
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// source says where a read takes its value from. The first three are JSON documents.
type source uint8

const (
	fromArgs source = iota
	fromResult
	fromClaims
	fromRegisters
	fromWho
	fromRun
	fromCall
	fromNowhere // a read of the whole expression that this part of it has not

	documents = int(fromClaims) + 1
)

// form says what is made of what stands at a place of a document.
type form uint8

const (
	formValue   form = iota
	formHas          // whether it is there
	formTexts        // every text in it
	formDigest       // its SHA-256
	formIsError      // false only if it is absent, false or null
	formText         // the texts of content, joined
)

// A read is one place that an expression reads.
type read struct {
	from source
	form form
	path string // as it is written, for messages; without from's name for who, run and the call
	name string // of a register
	kind Kind   // of a register
}

// roots are the names that an expression may begin with.
var roots = []string{"args", "result", "name", "registers", "run", "who", "now"}

// A step leads from a value to one in it: by name, or by index.
type step struct {
	name  string
	index int64
	array bool
}

// path puts a variable in place of an expression that is a path from one of the roots, and says whether it was
// one. A path that leads nowhere is a problem.
func (c *compiler) path(e ast.Expr) bool {
	root, steps, ok := follow(e)
	if !ok || !slices.Contains(roots, root) {
		return false
	}
	if at, ok := c.info.GetOffsetRange(leftmost(e).ID()); ok {
		c.info.SetOffsetRange(e.ID(), at) // CEL's is that of its last dot
	}
	has := e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly()
	if has {
		steps = append(steps, step{name: e.AsSelect().FieldName()})
	}
	c.resolve(e, root, steps, has)
	return true
}

// follow returns the steps by which an expression leads from a name, if all of them are constant.
func follow(e ast.Expr) (root string, steps []step, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return strings.TrimPrefix(e.AsIdent(), "."), nil, true
	case ast.SelectKind:
		root, steps, ok = follow(e.AsSelect().Operand())
		if e.AsSelect().IsTestOnly() {
			return root, steps, ok
		}
		return root, append(steps, step{name: e.AsSelect().FieldName()}), ok
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || call.Args()[1].Kind() != ast.LiteralKind {
			return "", nil, false
		}
		root, steps, ok = follow(call.Args()[0])
		switch at := call.Args()[1].AsLiteral().(type) {
		case types.String:
			return root, append(steps, step{name: string(at)}), ok
		case types.Int:
			return root, append(steps, step{index: int64(at), array: true}), ok && at >= 0
		}
	}
	return "", nil, false
}

// leftmost returns the name that a path begins with.
func leftmost(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return leftmost(e.AsSelect().Operand())
	case ast.CallKind:
		return leftmost(e.AsCall().Args()[0])
	}
	return e
}

// written returns a path as it may be written.
func written(root string, steps []step) string {
	var b strings.Builder
	b.WriteString(root)
	for _, s := range steps {
		switch {
		case s.array:
			b.WriteString("[" + strconv.FormatInt(s.index, 10) + "]")
		case plainIdent(s.name):
			b.WriteString("." + s.name)
		default:
			b.WriteString("[" + strconv.Quote(s.name) + "]")
		}
	}
	return b.String()
}

func plainIdent(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// resolve finds out what a path reads.
func (c *compiler) resolve(e ast.Expr, root string, steps []step, has bool) {
	path := written(root, steps)
	switch root {
	case "name", "now":
		if len(steps) > 0 {
			c.errorOf(e, "there is no %s; %s has nothing in it", path, root)
			return
		}
		letter := byte(typeText)
		if root == "now" {
			letter = typeTime
		}
		c.replace(e, letter, read{from: fromCall, path: root})
	case "args":
		if len(steps) == 0 {
			c.errorOf(e, "args is read by constant paths alone, like args.path or args[\"path\"]; texts(args) and digest(args) take all of it")
			return
		}
		c.document(e, fromArgs, path, steps, has)
	case "result":
		c.result(e, path, steps, has)
	case "registers":
		c.register(e, path, steps, has)
	case "run":
		c.run(e, path, steps, has)
	case "who":
		c.who(e, path, steps, has)
	}
}

// document puts a variable in place of what is read of a document.
func (c *compiler) document(e ast.Expr, from source, path string, steps []step, has bool) {
	letter, r := byte(typeDyn), read{from: from, path: path}
	if has {
		letter, r.form = typeBool, formHas
	}
	c.place(e, letter, r, steps)
}

// place puts a read of a document into its tree.
func (c *compiler) place(e ast.Expr, letter byte, r read, steps []step) {
	i, known := c.replace(e, letter, r)
	if known || i < 0 {
		return
	}
	at := &c.program.documents[r.from]
	if *at == nil {
		*at = &node{}
	}
	n := *at
	for _, s := range steps {
		if s.array {
			n = n.element(s.index)
		} else {
			n = n.member(s.name)
		}
	}
	if r.form == formHas {
		n.has = append(n.has, i)
	} else {
		n.values = append(n.values, i)
	}
}

// replace puts a read's variable in place of an expression, and returns its number; -1 is one too many. It is
// known if the expression reads the same elsewhere.
func (c *compiler) replace(e ast.Expr, letter byte, r read) (i int, known bool) {
	i = slices.Index(c.program.reads, r)
	known = i >= 0
	if !known {
		i = len(c.program.reads)
		if i == maxReads {
			c.errorOf(e, "an expression reads at most %d places; cut it into alternatives", maxReads)
			return -1, false
		}
		c.program.reads = append(c.program.reads, r)
	}
	name := variable(letter, i)
	c.shown[name] = c.display(r)
	e.SetKindCase(c.factory.NewIdent(e.ID(), name))
	return i, known
}

// display returns what a read is called in messages.
func (c *compiler) display(r read) string {
	switch r.form {
	case formHas:
		return "has(" + r.path + ")"
	case formTexts:
		return "texts(" + r.path + ")"
	case formDigest:
		return "digest(" + r.path + ")"
	}
	return r.path
}

// whole puts a variable in place of texts() or digest() of a path. It says no if it was none.
func (c *compiler) whole(e, of ast.Expr, function string) bool {
	root, steps, ok := follow(of)
	if !ok || of.Kind() == ast.SelectKind && of.AsSelect().IsTestOnly() {
		return false
	}
	letter, r := byte(typeTexts), read{form: formTexts, path: written(root, steps)}
	if function == "digest" {
		letter, r.form = typeText, formDigest
	}
	switch root {
	case "args":
		r.from = fromArgs
	case "result":
		if !c.inResult(of, r.path, steps) {
			return true
		}
		if steps[0].name == "text" || steps[0].name == "isError" {
			return false
		}
		r.from = fromResult
	default:
		return false
	}
	c.place(e, letter, r, steps)
	return true
}

// resultMembers are what is seen of a result.
var resultMembers = []string{"isError", "structuredContent", "content", "text", "contents", "messages"}

// inResult says whether a path leads into a result; otherwise it is a problem.
func (c *compiler) inResult(e ast.Expr, path string, steps []step) bool {
	switch {
	case c.scope == guard:
		c.errorOf(e, "a guard is asked before the call, so there is no result; use outcomes")
	case len(steps) == 0:
		c.errorOf(e, "result is read by constant paths alone, like result.structuredContent.id")
	case steps[0].array || !slices.Contains(resultMembers, steps[0].name):
		c.errorOf(e, "there is no %s; of a result there are %s", path, strings.Join(resultMembers, ", "))
	default:
		return true
	}
	return false
}

func (c *compiler) result(e ast.Expr, path string, steps []step, has bool) {
	if !c.inResult(e, path, steps) {
		return
	}
	r := read{from: fromResult, path: path}
	switch name := steps[0].name; {
	case name == "text" && has && len(steps) == 1: // no member of that name is sent
		c.document(e, fromResult, path, []step{{name: "content"}}, has)
	case name != "isError" && name != "text" || has && len(steps) == 1:
		c.document(e, fromResult, path, steps, has)
	case len(steps) > 1:
		c.errorOf(e, "there is no %s; result.%s has nothing in it", path, name)
	case name == "isError":
		r.form = formIsError
		c.place(e, typeBool, r, steps)
	default:
		r.form = formText
		c.place(e, typeText, r, []step{{name: "content"}})
	}
}

func (c *compiler) register(e ast.Expr, path string, steps []step, has bool) {
	if len(steps) == 0 || steps[0].array {
		c.errorOf(e, "registers are read by name, like registers.x; %s", c.names())
		return
	}
	name := steps[0].name
	kind, ok := c.env.registers[name]
	if !ok {
		c.errorOf(e, "there is no register %s; %s", strconv.Quote(name), c.names())
		return
	}
	if len(steps) > 1 {
		c.errorOf(e, "there is no %s; a register has nothing in it, and a set is asked by in", path)
		return
	}
	letter := map[Kind]byte{Text: typeText, Number: typeNumber, Boolean: typeBool, Counter: typeInt, TextSet: typeTexts}[kind]
	r := read{from: fromRegisters, path: path, name: name, kind: kind}
	if has {
		letter, r.form = typeBool, formHas
	}
	c.replace(e, letter, r)
}

func (c *compiler) run(e ast.Expr, path string, steps []step, has bool) {
	letter := map[string]byte{"run.state": typeText, "run.began": typeTime, "run.entered": typeTime}[path]
	switch {
	case letter == 0 || has:
		c.errorOf(e, "there is no %s to ask for; of a run there are state, began and entered, always", path)
	default:
		c.replace(e, letter, read{from: fromRun, path: path})
	}
}

func (c *compiler) who(e ast.Expr, path string, steps []step, has bool) {
	if len(steps) > 1 && steps[0].name == "claims" {
		c.document(e, fromClaims, path, steps[1:], has)
		return
	}
	letter := map[string]byte{"who.subject": typeText, "who.issuer": typeText, "who.scopes": typeTexts}[path]
	if path == "who.claims" {
		c.errorOf(e, "claims are read by constant paths alone, like who.claims.department")
		return
	}
	if letter == 0 {
		c.errorOf(e, "there is no %s; of who asks there are subject, issuer, scopes and claims", path)
		return
	}
	r := read{from: fromWho, path: path}
	if has {
		letter, r.form = typeBool, formHas
	}
	c.replace(e, letter, r)
}
