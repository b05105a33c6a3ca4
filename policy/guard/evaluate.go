package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// An evaluator is the part of CEL's programs that is used.
type evaluator interface {
	Eval(input any) (ref.Val, *cel.EvalDetails, error)
}

// An evaluation is one program on one call: to CEL, what variables stand for.
type evaluation struct {
	program *Program
	call    *Call
	found   []found
	values  []ref.Val // by read; nil is one not made yet
	unclear *Error    // a name that was looked up has a lookalike: nothing that CEL makes of it counts
}

// evaluate returns a program's value. What is unclear in the arguments is an error, whether or not it is read.
func (p *Program) evaluate(call *Call) (any, *Error) {
	e, _ := p.pool.Get().(*evaluation)
	if e == nil {
		e = &evaluation{program: p, found: make([]found, len(p.reads)), values: make([]ref.Val, len(p.reads))}
	}
	e.call = call
	v, err := e.run()
	clear(e.found)
	clear(e.values)
	e.call, e.unclear = nil, nil
	p.pool.Put(e)
	return v, err
}

func (e *evaluation) run() (any, *Error) {
	if err := e.scan(); err != nil {
		return nil, err
	}
	v, _, err := e.program.program.Eval(e)
	if e.unclear != nil {
		return nil, e.unclear
	}
	if err != nil {
		return nil, reason(err)
	}
	return e.program.kind.native(v)
}

// reason makes an Error of what CEL returns.
func reason(err error) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if stopped, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && stopped.Cause == interpreter.CostLimitExceeded {
		return errCost
	}
	return notEvaluable("%s", err)
}

// scan finds the paths in the documents that are read.
func (e *evaluation) scan() *Error {
	decoded := 0
	for from, root := range e.program.documents {
		if root == nil {
			continue
		}
		if err := scan(e.document(source(from)), root, e.found); err != nil {
			return err.in(source(from))
		}
	}
	for i, r := range e.program.reads {
		if r.form != formHas && r.form != formIsError {
			decoded += e.found[i].end - e.found[i].start
		}
	}
	if decoded > e.program.limit {
		return &Error{TooLarge, "what is read has more bytes than are decoded"}
	}
	return nil
}

// document returns a document's text; without one it is {}.
func (e *evaluation) document(from source) []byte {
	text := e.call.Args
	switch from {
	case fromResult:
		text = e.call.Result
	case fromClaims:
		text = e.call.Who.Claims
	}
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// in says what an unclear name means in a document: that of a result is nobody's wrong request.
func (err *Error) in(from source) *Error {
	if err.Reason == UnclearKey && from != fromArgs {
		return &Error{NotEvaluable, err.message}
	}
	return err
}

// Parent implements cel.Activation.
func (e *evaluation) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation: it returns the value of a variable of ours.
func (e *evaluation) ResolveName(name string) (any, bool) {
	i, ok := readOf(name)
	if !ok || i >= len(e.values) {
		return nil, false
	}
	if e.values[i] == nil {
		v, err := e.read(i)
		if err != nil {
			v = types.WrapErr(err)
		}
		e.values[i] = v
	}
	return e.values[i], true
}

// readOf returns the number of the read that a variable stands for; a loop's stands for none.
func readOf(name string) (i int, ok bool) {
	if len(name) < 3 || name[0] != '@' {
		return 0, false
	}
	for _, c := range []byte(name[2:]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		i = i*10 + int(c-'0')
	}
	return i, true
}

// read makes the value of a read.
func (e *evaluation) read(i int) (ref.Val, *Error) {
	r := &e.program.reads[i]
	switch r.from {
	case fromRegisters:
		return e.register(r)
	case fromWho:
		return e.who(r)
	case fromRun:
		return e.where(r.path), nil
	case fromCall:
		if r.path == "now" {
			return types.Timestamp{Time: e.call.Now}, nil
		}
		return types.String(e.call.Name), nil
	}
	v, err := e.placed(r, e.found[i])
	if err != nil && err.Reason == UnclearKey {
		err = err.in(r.from)
		e.unclear = err
	}
	return v, err
}

// placed makes the value of what stands in a document.
func (e *evaluation) placed(r *read, at found) (ref.Val, *Error) {
	if at.state == unreachable {
		return nil, notEvaluable("%s is read of what is missing, or has no such thing", r.path)
	}
	text := e.document(r.from)
	if at.state == present {
		text = text[at.start:at.end]
	}
	switch {
	case r.form == formHas:
		return types.Bool(at.state == present), nil
	case r.form == formIsError:
		return types.Bool(at.state == present && string(text) != "false" && string(text) != "null"), nil
	case r.form == formText && at.state == absent:
		return types.String(""), nil
	case at.state == absent:
		return nil, notEvaluable("%s is missing", r.path)
	case r.form == formDigest:
		sum, err := digest(text)
		if err != nil {
			return nil, err
		}
		return types.String(sum), nil
	}
	v, err := decode(text, func(err *Error) { e.unclear = (&Error{UnclearKey, err.message}).in(r.from) })
	if err != nil {
		return nil, err
	}
	switch r.form {
	case formTexts:
		return types.NewStringList(types.DefaultTypeAdapter, collect(nil, v)), nil
	case formText:
		return joined(v)
	}
	return v, nil
}

// Digest returns what digest() is of the arguments of a call, as they were sent: {} where there are none. An
// [*Error] of the reason UnclearKey says that they read differently to others.
func Digest(args []byte) (string, error) {
	if len(args) == 0 {
		args = []byte("{}")
	}
	sum, err := digest(args)
	if err != nil {
		return "", err
	}
	return sum, nil
}

func digest(text []byte) (string, *Error) {
	d := decoder{scanner: scanner{text: text}}
	canonical, err := d.canonical(nil)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// joined returns the texts of a result's content, with line breaks between them.
func joined(content ref.Val) (ref.Val, *Error) {
	blocks, ok := content.(*list)
	if !ok {
		return nil, notEvaluable("content is no list")
	}
	var texts []string
	for it := blocks.Iterator(); it.HasNext() == types.True; {
		block, ok := it.Next().(*object)
		if !ok {
			return nil, notEvaluable("a block of content is no object")
		}
		kind := block.Get(types.String("type"))
		if types.IsError(kind) {
			return nil, notEvaluable("a block of content has no type")
		}
		if kind != types.String("text") {
			continue
		}
		text, ok := block.Get(types.String("text")).(types.String)
		if !ok {
			return nil, notEvaluable("a block of text has no text")
		}
		texts = append(texts, string(text))
	}
	return types.String(strings.Join(texts, "\n")), nil
}

func (e *evaluation) register(r *read) (ref.Val, *Error) {
	var v any
	if e.call.Registers != nil {
		v = e.call.Registers.Register(r.name)
	}
	if v == nil && r.kind == Counter {
		v = int64(0)
	}
	if v == nil && r.kind == TextSet {
		v = emptySet{}
	}
	if r.form == formHas {
		return types.Bool(v != nil), nil
	}
	switch v := v.(type) {
	case nil:
		return nil, notEvaluable("%s is unset", r.path)
	case string:
		return types.String(v), nil
	case float64:
		return types.Double(v), nil
	case bool:
		return types.Bool(v), nil
	case int64:
		return types.Int(v), nil
	case Set:
		return &set{values: v}, nil
	}
	return nil, notEvaluable("%s is a %T", r.path, v)
}

func (e *evaluation) who(r *read) (ref.Val, *Error) {
	who := &e.call.Who
	text := who.Subject
	switch r.path {
	case "who.issuer":
		text = who.Issuer
	case "who.scopes":
		if r.form == formHas {
			return types.Bool(len(who.Scopes) > 0), nil
		}
		return types.NewStringList(types.DefaultTypeAdapter, who.Scopes), nil
	}
	if r.form == formHas {
		return types.Bool(text != ""), nil
	}
	if text == "" {
		return nil, notEvaluable("%s is not known", r.path)
	}
	return types.String(text), nil
}

// where returns what a path reads of a run.
func (e *evaluation) where(path string) ref.Val {
	switch path {
	case "run.began":
		return types.Timestamp{Time: e.call.Run.Began}
	case "run.entered":
		return types.Timestamp{Time: e.call.Run.Entered}
	default:
		return types.String(e.call.Run.State)
	}
}

// native returns a value as a register of this kind holds it.
func (k Kind) native(v ref.Val) (any, *Error) {
	switch v := v.(type) {
	case types.String:
		if k == Text || k == TextSet {
			return string(v), nil
		}
	case types.Bool:
		if k == Boolean {
			return bool(v), nil
		}
	case types.Int:
		switch k {
		case Counter:
			return int64(v), nil
		case Number:
			if v <= maxInteger && v >= -maxInteger {
				return float64(v), nil
			}
		}
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, notEvaluable("%v is no number", float64(v))
		}
		switch k {
		case Number:
			return float64(v), nil
		case Counter:
			if v == types.Double(math.Trunc(float64(v))) && math.Abs(float64(v)) <= maxInteger {
				return int64(v), nil
			}
		}
	case traits.Lister:
		if k == TextSet {
			return texts(v)
		}
	}
	return nil, notEvaluable("it is %s, and a %s is needed", v.Type().TypeName(), k)
}

// texts returns the texts of a list that holds nothing else.
func texts(list traits.Lister) ([]string, *Error) {
	out := []string{}
	for i := list.Iterator(); i.HasNext() == types.True; {
		text, ok := i.Next().(types.String)
		if !ok {
			return nil, notEvaluable("the list holds more than texts")
		}
		out = append(out, string(text))
	}
	return out, nil
}
