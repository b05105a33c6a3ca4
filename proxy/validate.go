package proxy

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

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// schemas caches compiled input schemas by their bytes. It is safe for
// concurrent use.
type schemas struct {
	mu       sync.Mutex // guards what follows
	compiled map[string]*jsonschema.Schema
}

var english = message.NewPrinter(language.English)

// maxSchemas bounds the cache; beyond it starts anew.
const maxSchemas = 4096

// invalid checks a call's arguments against the listed inputSchema where the
// policy asks for that. It returns why they do not fit, empty if they do. A tool
// that is not listed, or listed without a schema, and a schema that cannot be
// used are refused: there is nothing to check by.
func (c *call) invalid() string {
	if !c.validated() || !c.Known { // in shadow the list may not be at hand
		return ""
	}
	raw := member(c.offer, c.Name, "inputSchema")
	switch {
	case raw == nil && c.Listed:
		return fmt.Sprintf("%s cannot be checked: the server lists it without an input schema.", c.called(clip(c.Name)))
	case raw == nil:
		return fmt.Sprintf("%s cannot be checked: the server does not list it, so there is no input schema.", c.called(clip(c.Name)))
	}
	schema, err := c.s.p.schemas.get(raw)
	if err != nil {
		return fmt.Sprintf("%s cannot be checked: its input schema is not usable (%v).", c.called(clip(c.Name)), err)
	}
	arguments := c.m.Bytes(c.m.P.Arguments)
	if arguments == nil {
		arguments = []byte("{}")
	}
	err = check(schema, arguments)
	if err == nil {
		return ""
	}
	return fmt.Sprintf("The arguments of %s do not fit its input schema: %s.", c.called(clip(c.Name)), brief(err))
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

// validated reports whether the policy wants the call's arguments checked.
func (c *call) validated() bool { return c.Kind == policy.Tool && c.Snapshot.InForce().Validate() }

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
				b.WriteString(clip(step))
			}
			fmt.Fprintf(&b, ": %s", clip(cause.ErrorKind.LocalizedString(english)))
		}
		return b.String()
	}
	return clip(err.Error())
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

// member returns a member of a listed tool's definition, nil if it has none.
func member(l *wire.List, tool, key string) []byte {
	if l == nil {
		return nil
	}
	item, ok := l.Find(tool)
	if !ok {
		return nil
	}
	return wire.Member(item.Raw, key)
}

// hasOutputSchema reports whether a tool has one in what the upstream lists now,
// or in what the client was given last: that is what it goes by.
func (s *session) hasOutputSchema(tool string) bool {
	if handle.Own(tool) {
		return true
	}
	s.mu.Lock()
	given := s.refreshes[wire.Tools].shown.list
	s.mu.Unlock()
	if member(given, tool, "outputSchema") != nil {
		return true
	}
	conn := s.link.live()
	return conn != nil && member(conn.Cached(wire.Tools), tool, "outputSchema") != nil
}

func (s *schemas) get(raw []byte) (schema *jsonschema.Schema, err error) {
	defer recovered(&err)
	s.mu.Lock()
	schema = s.compiled[string(raw)]
	s.mu.Unlock()
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiled == nil || len(s.compiled) >= maxSchemas {
		s.compiled = make(map[string]*jsonschema.Schema)
	}
	s.compiled[string(raw)] = schema
	return schema, nil
}

// noLoader fetches nothing: a schema of the upstream's is no reason to open a
// file or a connection.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, errors.New("it refers to " + clip(url)) }
