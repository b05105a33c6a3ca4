package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Validator checks arguments against the input schemas of listed tools, and compiles
// each schema once. The zero value is ready. It is safe for concurrent use.
type Validator struct {
	mu       sync.Mutex // guards what follows
	compiled map[string]*jsonschema.Schema
}

var english = message.NewPrinter(language.English)

// maxSchemas bounds the cache; beyond it starts anew.
const maxSchemas = 4096

// Check returns, as a sentence, why a call's arguments do not fit what a list of tools
// says of them; "": they do, or there is no list. A tool that is not listed, or listed
// without a schema, and a schema that cannot be used fit nothing: there is nothing to
// check by.
func (v *Validator) Check(l *wire.List, tool string, arguments []byte) string {
	if l == nil {
		return ""
	}
	raw := l.Member(tool, "inputSchema")
	switch {
	case raw == nil && l.Has(tool):
		return fmt.Sprintf("Tool '%s' cannot be checked: the server lists it without an input schema.", wire.Clip(tool))
	case raw == nil:
		return fmt.Sprintf("Tool '%s' cannot be checked: the server does not list it, so there is no input schema.", wire.Clip(tool))
	}
	schema, err := v.schema(raw)
	if err != nil {
		return fmt.Sprintf("Tool '%s' cannot be checked: its input schema is not usable (%v).", wire.Clip(tool), err)
	}
	if arguments == nil {
		arguments = []byte("{}")
	}
	if err = check(schema, arguments); err != nil {
		return fmt.Sprintf("The arguments of Tool '%s' do not fit its input schema: %s.", wire.Clip(tool), brief(err))
	}
	return ""
}

// check validates a value. What the validator cannot bear is an error: it
// computes with numbers as they are written, whatever that takes, and panics at
// those that it cannot read.
func check(schema *jsonschema.Schema, raw []byte) (err error) {
	defer recovered(&err)
	value, err := readNumbers(raw)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("it cannot be checked: %v", r)
	}
}

// readNumbers decodes a value, and refuses one with a number that is far beyond
// any that is meant.
func readNumbers(raw []byte) (any, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err == nil && !computable(value) {
		err = errors.New("a number in it is too large or too long to be checked")
	}
	return value, err
}

func computable(value any) bool {
	switch v := value.(type) {
	case json.Number:
		return short(string(v))
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !computable(item) })
	case map[string]any:
		for _, member := range v {
			if !computable(member) {
				return false
			}
		}
	}
	return true
}

// maxNumber bounds a number's digits, and its exponent: more than a double has
// room for.
const maxNumber = 400

func short(number string) bool {
	digits, exponent := number, 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(number[i+1:]); err != nil {
			return false
		}
		digits = number[:i]
	}
	return len(digits) <= maxNumber && max(exponent, -exponent) <= maxNumber
}

// brief is a validation error on one line, without the schema's location.
func brief(err error) string {
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		var b bytes.Buffer
		for _, cause := range leaves(invalid) {
			if b.Len() > 0 {
				b.WriteString("; ")
			}
			b.WriteString("at /")
			for i, step := range cause.InstanceLocation {
				if i > 0 {
					b.WriteByte('/')
				}
				b.WriteString(wire.Clip(step))
			}
			fmt.Fprintf(&b, ": %s", wire.Clip(cause.ErrorKind.LocalizedString(english)))
		}
		return b.String()
	}
	return wire.Clip(err.Error())
}

func leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	return all
}

// schema returns a schema that is ready to check by.
func (v *Validator) schema(raw []byte) (schema *jsonschema.Schema, err error) {
	defer recovered(&err)
	v.mu.Lock()
	schema = v.compiled[string(raw)]
	v.mu.Unlock()
	if schema != nil {
		return schema, nil
	}
	document, err := readNumbers(raw)
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	const name = "inputSchema.json"
	if err := compiler.AddResource(name, document); err != nil {
		return nil, err
	}
	if schema, err = compiler.Compile(name); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.compiled == nil || len(v.compiled) >= maxSchemas {
		v.compiled = make(map[string]*jsonschema.Schema)
	}
	v.compiled[string(raw)] = schema
	return schema, nil
}

// noLoader fetches nothing: a schema of the upstream's is no reason to open a
// file or a connection.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("it refers to " + wire.Clip(url))
}
