package guard

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// scope says what an expression is for.
type scope uint8

const (
	guard scope = iota
	outcome
	value
)

// The types that a read may have, by the first letter of its variable. Each place that an expression reads
// becomes a variable of its own, @LETTER and its number, so that CEL checks its type and gets nothing else.
const (
	typeDyn    = 'd'
	typeText   = 's'
	typeNumber = 'n'
	typeBool   = 'b'
	typeInt    = 'i'
	typeTexts  = 'l'
	typeTime   = 't'
)

// variable returns the name of a read's variable.
func variable(letter byte, read int) string { return "@" + string(letter) + strconv.Itoa(read) }

// environment returns CEL's environment, which is the same for all policies: it is made when the first
// expression is compiled.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{ExcludeFunctions: excluded()})),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableIdentifierEscapeSyntax(), // has() takes no index
		cel.ParserRecursionLimit(50),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ExpressionNestingDepthLimit(250),
	}
	for letter, t := range map[byte]*cel.Type{
		typeDyn: cel.DynType, typeText: cel.StringType, typeNumber: cel.DoubleType, typeBool: cel.BoolType,
		typeInt: cel.IntType, typeTexts: cel.ListType(cel.StringType), typeTime: cel.TimestampType,
	} {
		for i := range maxReads {
			options = append(options, cel.Variable(variable(letter, i), t))
		}
	}
	return cel.NewCustomEnv(append(options, ours()...)...)
})

// excluded are the functions of standard CEL that expressions have not: a text is no number and no boolean
// ("100" for 100), and names of time zones are looked up in files.
func excluded() []*env.Function {
	without := func(name string, overloads ...string) *env.Function {
		f := &env.Function{Name: name}
		for _, id := range overloads {
			f.Overloads = append(f.Overloads, &env.Overload{ID: id})
		}
		return f
	}
	functions := []*env.Function{
		without(overloads.TypeConvertInt, overloads.StringToInt),
		without(overloads.TypeConvertUint, overloads.StringToUint),
		without(overloads.TypeConvertDouble, overloads.StringToDouble),
		without(overloads.TypeConvertBool, overloads.StringToBool),
	}
	for name, id := range map[string]string{
		overloads.TimeGetFullYear:     overloads.TimestampToYearWithTz,
		overloads.TimeGetMonth:        overloads.TimestampToMonthWithTz,
		overloads.TimeGetDate:         overloads.TimestampToDayOfMonthOneBasedWithTz,
		overloads.TimeGetDayOfMonth:   overloads.TimestampToDayOfMonthZeroBasedWithTz,
		overloads.TimeGetDayOfWeek:    overloads.TimestampToDayOfWeekWithTz,
		overloads.TimeGetDayOfYear:    overloads.TimestampToDayOfYearWithTz,
		overloads.TimeGetHours:        overloads.TimestampToHoursWithTz,
		overloads.TimeGetMinutes:      overloads.TimestampToMinutesWithTz,
		overloads.TimeGetSeconds:      overloads.TimestampToSecondsWithTz,
		overloads.TimeGetMilliseconds: overloads.TimestampToMillisecondsWithTz,
	} {
		functions = append(functions, without(name, id))
	}
	return functions
}

// compiler makes a program of one expression.
type compiler struct {
	env      *Env
	text     string
	scope    scope
	info     *ast.SourceInfo
	factory  ast.ExprFactory
	program  *Program
	problems []Problem
	shown    map[string]string // what a variable of ours stands for, in messages
	regexes  prices
	calls    []doubtful
	typed    map[string]bool // what type() and size() are asked of
	filled   map[string]bool // what size() is asked of, to have something in it
}

// doubtful is a call that is looked at once types are known.
type doubtful struct {
	call    ast.Expr
	negated bool // `!` stands around it
}

func (e *Env) compile(text string, s scope, kind Kind) (*Program, []Problem) {
	e.compiled++
	switch {
	case e.compiled > maxExpressions:
		return nil, []Problem{{Message: fmt.Sprintf("a policy has at most %d expressions; say the same in fewer places", maxExpressions)}}
	case len(text) > maxExpression:
		return nil, []Problem{{Offset: maxExpression, Message: fmt.Sprintf("an expression has at most %d bytes; cut it into alternatives, or into outcomes", maxExpression)}}
	case !utf8.ValidString(text):
		return nil, []Problem{{Message: "the expression is no UTF-8"}}
	}
	cel, err := environment()
	if err != nil {
		return nil, []Problem{{Message: "making the environment: " + err.Error()}}
	}
	c := &compiler{
		env: e, text: text, scope: s, factory: ast.NewExprFactory(),
		program: &Program{text: text, scope: s, kind: kind, limit: maxDecodedGuard},
		shown:   map[string]string{}, regexes: prices{}, typed: map[string]bool{}, filled: map[string]bool{},
	}
	program := c.compile(cel)
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return a.Offset - b.Offset })
	if slices.ContainsFunc(c.problems, func(p Problem) bool { return p.Warning == "" }) {
		return nil, c.problems
	}
	return program, c.problems
}

func (c *compiler) compile(environment *cel.Env) *Program {
	parsed, issues := environment.Parse(c.text)
	if c.report(issues) {
		return nil
	}
	tree := parsed.NativeRep()
	c.info = tree.SourceInfo()
	c.visit(tree.Expr(), 0, false)
	if len(c.problems) > 0 {
		return nil
	}
	checked, issues := environment.Check(parsed)
	if c.report(issues) {
		return nil
	}
	c.checkTypes(checked)
	c.checkOutput(tree.Expr(), checked.OutputType())
	if slices.ContainsFunc(c.problems, func(p Problem) bool { return p.Warning == "" }) {
		return nil
	}
	program, err := environment.Program(checked, c.options()...)
	if err != nil {
		c.errorAt(0, "%s", c.readable(err.Error()))
		return nil
	}
	c.program.program = program
	if c.scope == outcome || c.program.documents[fromResult] != nil {
		c.program.limit = maxDecodedResult
	}
	if c.scope == guard {
		c.conjuncts(environment, checked.NativeRep())
	}
	if c.scope != value {
		c.constants(environment, checked.NativeRep(), checked.NativeRep().Expr())
	}
	return c.program
}

// options are how programs are made: they are optimized, and their cost is bounded.
func (c *compiler) options() []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(bounded), cel.CostTracking(c.regexes), cel.CostLimit(maxCost),
	}
}

func (c *compiler) errorAt(offset int, format string, args ...any) {
	c.problems = append(c.problems, Problem{Offset: offset, Message: fmt.Sprintf(format, args...)})
}

func (c *compiler) errorOf(e ast.Expr, format string, args ...any) {
	if _, _, path := follow(e); path {
		e = leftmost(e)
	}
	c.errorAt(c.offset(e.ID()), format, args...)
}

func (c *compiler) warn(e ast.Expr, id, format string, args ...any) {
	c.problems = append(c.problems, Problem{c.offset(e.ID()), id, fmt.Sprintf(format, args...)})
}

// offset returns where an expression begins, in bytes: CEL counts code points.
func (c *compiler) offset(id int64) int {
	at, ok := c.info.GetOffsetRange(id)
	if !ok {
		return 0
	}
	return c.bytes(int(at.Start))
}

// bytes returns where the code point with this number begins.
func (c *compiler) bytes(points int) int {
	for i := range c.text {
		if points <= 0 {
			return i
		}
		points--
	}
	return len(c.text)
}

// report takes over what CEL finds wrong, and says whether it is anything.
func (c *compiler) report(issues *cel.Issues) bool {
	if issues == nil || issues.Err() == nil {
		return false
	}
	for _, issue := range issues.Errors() {
		points, line := issue.Location.Column(), 1
		for i, r := range []rune(c.text) {
			if line == issue.Location.Line() {
				points += i
				break
			}
			if r == '\n' {
				line++
			}
		}
		c.errorAt(c.bytes(points), "%s", c.readable(issue.Message))
	}
	return true
}

// readable puts what is read in place of our variables, and says what to do.
func (c *compiler) readable(message string) string {
	for name, path := range c.shown {
		message = strings.ReplaceAll(message, "'"+name+"'", "'"+path+"'")
	}
	message = strings.ReplaceAll(message, " (in container '')", "")
	switch {
	case strings.HasPrefix(message, "undeclared reference to '"):
		name, _, _ := strings.Cut(strings.TrimPrefix(message, "undeclared reference to '"), "'")
		if name == "texts" || name == "digest" {
			return name + " takes args, or a path such as args.body"
		}
		return message + "; there are args, result, name, registers, run, who and now, and the functions of standard CEL, words, path_under, host, json, texts and digest"
	case strings.HasPrefix(message, "found no matching overload for '"):
		return message + "; compare and combine values of one type (a text is converted to no number and no boolean)"
	}
	return message
}

// visit looks at an expression and at all in it, and puts a variable in place of each path that is read.
func (c *compiler) visit(e ast.Expr, loops int, negated bool) {
	if c.path(e) {
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		c.visit(e.AsSelect().Operand(), loops, negated)
	case ast.CallKind:
		c.call(e, loops, negated)
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			c.visit(element, loops, negated)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			c.visit(entry.AsMapEntry().Key(), loops, negated)
			c.visit(entry.AsMapEntry().Value(), loops, negated)
		}
	case ast.StructKind:
		c.errorOf(e, "%s{…} makes a message; there are texts, numbers, booleans, lists and maps", e.AsStruct().TypeName())
	case ast.LiteralKind:
		c.literal(e)
	case ast.ComprehensionKind:
		c.loop(e, loops, negated)
	}
}

func (c *compiler) literal(e ast.Expr) {
	big := false
	switch v := e.AsLiteral().(type) {
	case types.Int:
		big = v > maxInteger || v < -maxInteger
	case types.Uint:
		big = v > maxInteger
	}
	if big {
		c.errorOf(e, "an integer beyond 2^53 is no number of JSON; compare texts instead")
	}
}

func (c *compiler) loop(e ast.Expr, loops int, negated bool) {
	loop := e.AsComprehension()
	if loop.HasIterVar2() || slices.Contains(roots, loop.IterVar()) {
		c.errorOf(e, "%s has a meaning of its own; give the variable another name", loop.IterVar())
		return
	}
	if loops == maxLoops {
		c.errorOf(e, "all, exists, exists_one, map and filter stand within each other at most %d deep; say it in fewer", maxLoops)
		return
	}
	c.visit(loop.IterRange(), loops, negated)
	if all(loop) {
		c.calls = append(c.calls, doubtful{call: e})
	}
	for _, part := range [...]ast.Expr{loop.AccuInit(), loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
		c.visit(part, loops+1, negated)
	}
}

// all reports whether a loop is what the macro all becomes.
func all(loop ast.ComprehensionExpr) bool {
	return loop.AccuInit().Kind() == ast.LiteralKind && loop.AccuInit().AsLiteral() == types.True &&
		loop.LoopStep().Kind() == ast.CallKind && loop.LoopStep().AsCall().FunctionName() == operators.LogicalAnd
}

func (c *compiler) call(e ast.Expr, loops int, negated bool) {
	call := e.AsCall()
	parts := call.Args()
	if call.IsMemberFunction() {
		parts = append([]ast.Expr{call.Target()}, parts...)
	}
	switch name := call.FunctionName(); name {
	case "texts", "digest":
		if len(parts) == 1 && !call.IsMemberFunction() && c.whole(e, parts[0], name) {
			return
		}
		c.errorOf(e, "%s takes args, or a path such as args.body; write %s(args)", name, name)
		return
	case overloads.Matches:
		c.regex(e, parts)
	case operators.LogicalNot:
		negated = true
	case operators.Equals, operators.In:
		if negated {
			c.calls = append(c.calls, doubtful{e, true})
		}
	case operators.NotEquals:
		c.calls = append(c.calls, doubtful{call: e})
	default:
		if isArithmetic(call) {
			c.calls = append(c.calls, doubtful{call: e})
		}
	}
	for _, part := range parts {
		c.visit(part, loops, negated)
	}
	if isArithmetic(call) && len(parts) == 2 {
		c.checkArithmetic(call, parts[0], parts[1], kindOf)
	}
	if len(parts) == 2 {
		c.fills(call.FunctionName(), parts[0], parts[1])
	}
	if name := call.FunctionName(); (name == overloads.Size || name == overloads.TypeConvertType) && len(parts) == 1 {
		c.typed[key(parts[0])] = true
	}
}

// fills notes of what a comparison has that its size is not 0; what it is compared with that is no number may be one.
func (c *compiler) fills(operator string, a, b ast.Expr) {
	mirrored := map[string]string{operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
		operators.Equals: operators.Equals, operators.NotEquals: operators.NotEquals}
	of := sizeOf(a)
	if of == nil {
		if of = sizeOf(b); of == nil {
			return
		}
		operator, b = mirrored[operator], a
	}
	least := types.Int(1)
	if b.Kind() == ast.LiteralKind {
		least, _ = b.AsLiteral().(types.Int)
	}
	switch operator {
	case operators.Greater:
		least++
	case operators.NotEquals:
		least = 1 - least
	case operators.GreaterEquals, operators.Equals:
	default:
		return
	}
	if least > 0 {
		c.filled[key(of)] = true
	}
}

// sizeOf is what an expression is the size of, nil for none.
func sizeOf(e ast.Expr) ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != overloads.Size {
		return nil
	}
	if e.AsCall().IsMemberFunction() {
		return e.AsCall().Target()
	}
	if len(e.AsCall().Args()) == 1 {
		return e.AsCall().Args()[0]
	}
	return nil
}

func (c *compiler) regex(e ast.Expr, parts []ast.Expr) {
	if len(parts) != 2 {
		return // CEL says what is wrong
	}
	pattern, ok := ref.Val(nil), false
	if parts[1].Kind() == ast.LiteralKind {
		pattern, ok = parts[1].AsLiteral(), true
	}
	text, isText := pattern.(types.String)
	switch {
	case !ok || !isText:
		c.errorOf(parts[1], "a regular expression is a literal text: it is compiled at load")
	default:
		size := instructions(string(text))
		if size > maxRegex {
			c.errorOf(parts[1], "the regular expression is wrong, or larger than %d instructions; write it anew, with smaller counts in braces", maxRegex)
		}
		c.regexes[string(text)] = size
	}
}

// key tells expressions apart that read the same; empty is one that is not compared.
func key(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.LiteralKind:
		return fmt.Sprint(e.AsLiteral().Value())
	case ast.SelectKind:
		return key(e.AsSelect().Operand()) + "." + e.AsSelect().FieldName()
	case ast.CallKind:
		parts := []string{e.AsCall().FunctionName()}
		if e.AsCall().IsMemberFunction() {
			parts = append(parts, key(e.AsCall().Target()))
		}
		for _, a := range e.AsCall().Args() {
			parts = append(parts, key(a))
		}
		return strings.Join(parts, "(")
	}
	return fmt.Sprint("#", e.ID())
}

// checkTypes looks at the calls that are right for some types and doubtful for others.
func (c *compiler) checkTypes(checked *cel.Ast) {
	typeOf := func(e ast.Expr) *types.Type { return checked.NativeRep().GetType(e.ID()) }
	untyped := func(e ast.Expr) bool { return typeOf(e).Kind() == types.DynKind }
	for _, d := range c.calls {
		if d.call.Kind() == ast.ComprehensionKind {
			over := d.call.AsComprehension().IterRange()
			if over.Kind() != ast.ListKind && !c.filled[key(over)] {
				c.warn(d.call, All, "all holds of what is empty; add %s.size() > 0", c.show(over))
			}
			continue
		}
		call := d.call.AsCall()
		a, b := call.Args()[0], call.Args()[1]
		switch call.FunctionName() {
		case operators.Equals, operators.NotEquals, operators.In:
			if call.FunctionName() == operators.In {
				b = nil
			}
			c.checkNegation(d, a, b, untyped)
		default:
			c.checkArithmetic(call, a, b, func(e ast.Expr) types.Kind { return typeOf(e).Kind() })
		}
	}
}

// checkNegation warns of what holds for values of all other types too.
func (c *compiler) checkNegation(d doubtful, a, b ast.Expr, untyped func(ast.Expr) bool) {
	for _, operand := range [...]ast.Expr{a, b} {
		if operand == nil || !untyped(operand) || c.typed[key(operand)] || null(a) || b != nil && null(b) {
			continue
		}
		if call := d.call.AsCall(); call.FunctionName() == operators.In && c.isSet(call.Args()[1]) {
			continue // anything but a text is an error there
		}
		sign := "!="
		if d.negated {
			sign = "!"
		}
		path := c.show(operand)
		c.warn(d.call, Negation, "%s holds for every other type too: a list for a text, a text for a number; add type(%s) == string, or the type that you mean", sign, path)
		return
	}
}

func null(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.NullValue
}

// isSet reports whether an expression is a register that is a set.
func (c *compiler) isSet(e ast.Expr) bool {
	if e.Kind() != ast.IdentKind {
		return false
	}
	path := c.shown[e.AsIdent()]
	name, ok := strings.CutPrefix(path, "registers.")
	return ok && c.env.registers[name] == TextSet
}

func isArithmetic(call ast.CallExpr) bool {
	switch call.FunctionName() {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return true
	}
	return false
}

// kindOf returns the type of what can be told without CEL, which says less of what is wrong with it.
func kindOf(e ast.Expr) types.Kind {
	switch {
	case e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), "@"+string(typeDyn)):
		return types.DynKind
	case e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), "@"+string(typeInt)):
		return types.IntKind
	case e.Kind() == ast.LiteralKind && e.AsLiteral().Type() == types.IntType:
		return types.IntKind
	}
	return types.UnspecifiedKind
}

// checkArithmetic finds ints that are combined with what is a double.
func (c *compiler) checkArithmetic(call ast.CallExpr, a, b ast.Expr, kindOf func(ast.Expr) types.Kind) {
	for range 2 {
		kind := kindOf(a)
		if (kind == types.IntKind || kind == types.UintKind) && kindOf(b) == types.DynKind {
			switch {
			case call.FunctionName() == operators.Modulo:
				c.errorOf(a, "numbers of JSON are doubles, which have no remainder; write int(%s)", c.show(b))
			case a.Kind() == ast.LiteralKind:
				c.errorOf(a, "numbers of JSON are doubles, and this is an int; write %v.0", a.AsLiteral().Value())
			default:
				c.errorOf(a, "numbers of JSON are doubles, and this is an int; write double(%s)", c.show(a))
			}
			return
		}
		a, b = b, a
	}
}

// show returns an expression as it is written, if it is a path or a name.
func (c *compiler) show(e ast.Expr) string {
	if e.Kind() == ast.IdentKind {
		if path, ok := c.shown[e.AsIdent()]; ok {
			return path
		}
		return e.AsIdent()
	}
	return "…"
}

// checkOutput compares what an expression yields with what it is for.
func (c *compiler) checkOutput(e ast.Expr, output *types.Type) {
	want := map[Kind][]types.Kind{
		Text: {types.StringKind}, TextSet: {types.StringKind}, Boolean: {types.BoolKind},
		Number: {types.DoubleKind, types.IntKind}, Counter: {types.IntKind},
	}[c.program.kind]
	if output.Kind() == types.DynKind || slices.Contains(want, output.Kind()) {
		return
	}
	kind := c.program.kind
	if kind == TextSet && output.Kind() == types.ListKind {
		if of := output.Parameters()[0].Kind(); of == types.DynKind || of == types.StringKind {
			return
		}
	}
	if kind == TextSet {
		kind = Text
	}
	c.errorAt(0, "this is %s, and a %s is needed", cel.FormatCELType(output), kind)
}

// names returns the registers' names, for messages.
func (c *compiler) names() string {
	if len(c.env.registers) == 0 {
		return "the policy declares none"
	}
	return "there are " + strings.Join(slices.Sorted(maps.Keys(c.env.registers)), ", ")
}
