package guard

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
)

// What is allowed of one policy's expressions.
const (
	maxExpression  = 2 << 10
	maxExpressions = 2000
	maxReads       = 64 // different places that one expression reads
	maxLoops       = 2  // all, exists, map and filter within each other

	maxDecodedGuard  = 64 << 10
	maxDecodedResult = 1 << 20
)

// A Kind is a register's type.
type Kind uint8

const (
	Text Kind = iota
	Number
	Boolean
	Counter
	TextSet
)

// String returns the kind as a policy names it.
func (k Kind) String() string {
	switch k {
	case Text:
		return "text"
	case Number:
		return "number"
	case Boolean:
		return "boolean"
	case Counter:
		return "counter"
	case TextSet:
		return "set of text"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// An Env compiles the expressions of one policy. It is for one goroutine; the programs are for any number.
type Env struct {
	registers map[string]Kind
	compiled  int
}

// New returns an environment for a policy with these registers. It costs nothing before something is compiled.
func New(registers map[string]Kind) *Env { return &Env{registers: maps.Clone(registers)} }

// Guard compiles a condition on a call: `when`. It has no result yet.
func (e *Env) Guard(text string) (*Program, []Problem) { return e.compile(text, guard, Boolean) }

// Outcome compiles a condition on a call and its result: `outcomes`.
func (e *Env) Outcome(text string) (*Program, []Problem) { return e.compile(text, outcome, Boolean) }

// Value compiles what a register of this kind is set to, or what is added to it; to a set of texts a text, or a list of
// texts, is added. It may read the result, and Reads says whether it does.
func (e *Env) Value(text string, kind Kind) (*Program, []Problem) {
	program, problems := e.compile(text, value, kind)
	if program == nil && (kind == Text || kind == TextSet) && meantAsText(text) {
		problems = []Problem{{Message: fmt.Sprintf(`%q is no text in CEL; if that text is meant, write '"%s"', with quotes in the quotes; else there are %s`, text, text, strings.Join(roots, ", "))}}
	}
	return program, problems
}

// maxConstant is how many characters a text may have that is taken for one without the quotes of CEL.
const maxConstant = 80

// meantAsText reports whether what is no expression reads like a text without the quotes of CEL: words, and what
// stands between those of a sentence.
func meantAsText(text string) bool {
	between := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) }
	words := strings.FieldsFunc(text, between)
	return len(words) > 0 && strings.HasPrefix(text, words[0]) && utf8.RuneCountInString(text) <= maxConstant && !slices.Contains(roots, words[0]) &&
		!strings.ContainsFunc(text, func(r rune) bool { return between(r) && !strings.ContainsRune(" .:;,!?/-", r) })
}

// A Problem is what is wrong with an expression, or doubtful.
type Problem struct {
	Offset  int    // in bytes, where it begins in the expression
	Warning string // the id of a warning; empty is an error
	Message string // what it is, and what to do
}

// The ids of warnings.
const (
	Negation = "guard-negation" // it is true of values of other types
	Constant = "constant-guard" // a part of it decides it, or nothing
	All      = "guard-all"      // it is true of what is empty
)

// Reads says what an expression hangs on.
type Reads struct {
	Args      []string // paths, as they are written; "args" is all of them
	Result    []string
	Claims    []string
	Registers []string // names, sorted
	Name      bool
	Run       bool
	Who       bool // claims too
	Now       bool
}

// A Call is what an expression is evaluated on. What it reads is only looked at while it is evaluated.
type Call struct {
	Name      string
	Args      []byte // the object of arguments as it came; empty is {}
	Result    []byte // the result as it came, for outcomes and values
	Registers Registers
	Run       Run
	Who       Who
	Now       time.Time
}

// Registers returns a register's value: a string, float64, bool, int64 or Set, by its kind; nil is unset, and of a
// counter 0, of a set the empty one.
type Registers interface {
	Register(name string) any
}

// A Set is the value of a register that is a set of texts.
type Set interface {
	Contains(text string) bool
	Len() int
	Values() []string // in an order that is the same each time
}

// Run is where a run stands.
type Run struct {
	State          string
	Began, Entered time.Time // when the run began, and when it entered its state
}

// Who is on whose behalf a call comes. To read what is empty is an error.
type Who = asker.Who

// A Program is a compiled expression. It is immutable.
type Program struct {
	text      string
	scope     scope
	kind      Kind
	program   evaluator
	reads     []read
	documents [documents]*node // what is read of each; nil is nothing
	limit     int              // bytes that are decoded
	who, run  *Program         // its parts that lists follow
	pool      sync.Pool
}

// String returns the expression.
func (p *Program) String() string { return p.text }

// Reads returns what the expression hangs on.
func (p *Program) Reads() Reads {
	var r Reads
	registers := map[string]bool{}
	for _, read := range p.reads {
		switch read.from {
		case fromNowhere:
		case fromArgs:
			r.Args = append(r.Args, read.path)
		case fromResult:
			r.Result = append(r.Result, read.path)
		case fromClaims:
			r.Claims, r.Who = append(r.Claims, read.path), true
		case fromRegisters:
			registers[read.name] = true
		case fromWho:
			r.Who = true
		case fromRun:
			r.Run = true
		case fromCall:
			r.Name = r.Name || read.path == "name"
			r.Now = r.Now || read.path == "now"
		}
	}
	r.Registers = slices.Sorted(iter.Seq[string](maps.Keys(registers)))
	for _, paths := range [...]*[]string{&r.Args, &r.Result, &r.Claims} {
		slices.Sort(*paths)
		*paths = slices.Compact(*paths)
	}
	return r
}

// Holds evaluates a guard or an outcome. With an error it does not hold; the error is an *Error.
func (p *Program) Holds(call *Call) (bool, error) {
	v, err := p.Value(call)
	holds, _ := v.(bool)
	return holds && err == nil, err
}

// Value evaluates an expression: a string, float64, bool or int64, by its kind, or a []string for a set. The error is an *Error.
func (p *Program) Value(call *Call) (any, error) {
	v, err := p.evaluate(call)
	if err != nil {
		return nil, err
	}
	return v, nil
}
