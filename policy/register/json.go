package register

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// AppendJSON appends the values as an object, in the order in which they are declared: what is unset is null, a set
// is its texts in the order in which they were added.
func (v *View) AppendJSON(to []byte) []byte {
	to = append(to, '{')
	if v != nil {
		for i, d := range v.schema.declared {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(appendText(to, d.Name), ':')
			to = appendValue(to, d.Kind, v.values[i])
		}
	}
	return append(to, '}')
}

// AppendRegister appends one register's value; null if there is none.
func (v *View) AppendRegister(to []byte, name string) []byte {
	if v == nil || v.schema.find(name) < 0 {
		return append(to, "null"...)
	}
	i := v.schema.find(name)
	return appendValue(to, v.schema.declared[i].Kind, v.values[i])
}

func appendValue(to []byte, kind guard.Kind, value any) []byte {
	switch value := value.(type) {
	case string:
		return appendText(to, value)
	case bool:
		return strconv.AppendBool(to, value)
	case int64:
		return strconv.AppendInt(to, value, 10)
	case float64:
		return strconv.AppendFloat(to, value, 'g', -1, 64)
	case seen:
		to = append(to, '[')
		for i, text := range value.Values() {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendText(to, text)
		}
		return append(to, ']')
	}
	switch kind {
	case guard.Counter:
		return append(to, '0')
	case guard.TextSet:
		return append(to, "[]"...)
	default:
		return append(to, "null"...)
	}
}

func appendText(to []byte, text string) []byte {
	to, _ = jsontext.AppendQuote(to, text) // registers hold UTF-8 alone
	return to
}

// Read returns registers with the values that [View.AppendJSON] wrote. What is absent or null is as it begins. There
// may be more than there is room for by now: a policy or a budget has become smaller.
func Read(s *Schema, budget int, text []byte) (*Registers, error) {
	r := New(s, budget)
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if err := r.read(d); err != nil {
		return nil, fmt.Errorf("reading registers: %w", err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading registers: something stands behind the object")
	}
	return r, nil
}

func (r *Registers) read(d *jsontext.Decoder) error {
	open, err := d.ReadToken()
	switch {
	case err != nil:
		return err
	case open.Kind() != '{':
		return errors.New("it is no object")
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		if r == nil || r.schema.find(key) < 0 {
			return fmt.Errorf("there is no register %q", key)
		}
		if err := r.life.cells[r.schema.find(key)].readValue(d); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// readValue reads one register's value.
func (c *cell) readValue(d *jsontext.Decoder) error {
	if c.Kind == guard.TextSet && d.PeekKind() == '[' {
		return c.readSet(d)
	}
	t, err := d.ReadToken()
	if err != nil || t.Kind() == 'n' {
		return err
	}
	var value any
	switch t.Kind() {
	case '"':
		value = t.String()
	case 't', 'f':
		value = t.Bool()
	case '0':
		if c.Kind == guard.Counter {
			value, err = strconv.ParseInt(t.String(), 10, 64)
		} else {
			value, err = strconv.ParseFloat(t.String(), 64)
		}
		if err != nil {
			return c.unfit("%s is no %s", t.String(), c.Kind)
		}
	}
	return c.put(Change{Operation: Assign, Values: []any{value}})
}

func (c *cell) readSet(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	var values []any
	for d.PeekKind() != ']' {
		t, err := d.ReadToken()
		if err != nil {
			return err
		}
		if t.Kind() != '"' {
			return c.unfit("a set has texts alone")
		}
		if values = append(values, t.String()); len(values) > MaxTexts {
			return c.noRoom("a set has at most %d texts", MaxTexts)
		}
	}
	if err := c.put(Change{Operation: Add, Values: values}); err != nil {
		return err
	}
	if c.len() < len(values) {
		return c.unfit("a text stands twice")
	}
	_, err := d.ReadToken()
	return err
}

// put makes a change that has been made before.
func (c *cell) put(x Change) error {
	if _, err := c.read(x); err != nil {
		return err
	}
	c.apply(x)
	return nil
}
