package lock

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// appendCanonical appends the canonical form of a JSON value: without white space,
// the members of objects ordered by their decoded names, strings and numbers
// written in one way only. Two values have the same form if, and only if, they say
// the same. It is RFC 8785 but for numbers, which are exact here and not cut to a
// double, and for what that does not allow: members of the same name stay in the
// order in which they came, and a string that is not Unicode keeps its bytes.
func appendCanonical(out []byte, raw jsontext.Value) ([]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return appendValue(out, dec)
}

func appendValue(out []byte, dec *jsontext.Decoder) ([]byte, error) {
	switch dec.PeekKind() {
	case '{':
		return appendObject(out, dec)
	case '[':
		return appendArray(out, dec)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	switch raw.Kind() {
	case '"':
		return appendString(out, raw), nil
	case '0':
		return appendNumber(out, string(raw)), nil
	}
	return append(out, raw...), nil
}

func appendArray(out []byte, dec *jsontext.Decoder) ([]byte, error) {
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	out = append(out, '[')
	for first := true; dec.PeekKind() != ']'; first = false {
		if !first {
			out = append(out, ',')
		}
		var err error
		if out, err = appendValue(out, dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken()
	return append(out, ']'), err
}

// member is one member of an object in canonical form.
type member struct{ name, value []byte }

func appendObject(out []byte, dec *jsontext.Decoder) ([]byte, error) {
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var members []member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		m := member{name: appendString(nil, name)}
		if m.value, err = appendValue(nil, dec); err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	out = append(out, '{')
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.name...), ':'), m.value...)
	}
	_, err := dec.ReadToken()
	return append(out, '}'), err
}

// appendString appends a string in the one way in which it is written here. One
// that is not Unicode, with a lone surrogate in it, say, has no other way than its
// own; the sign in front of it keeps it from looking like one that is.
func appendString(out []byte, raw jsontext.Value) []byte {
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return append(append(out, '!'), raw...)
	}
	return strconv.AppendQuote(out, string(text))
}

// appendNumber appends a number as its digits without zeros at either end, and the
// power of ten of the last one: 1.50e3 is 15e2. Zero is 0, and has no sign.
func appendNumber(out []byte, text string) []byte {
	digits, negative := strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(digits[i+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return append(append(out, '!'), text...)
		}
		digits = digits[:i]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	exponent -= len(fraction)
	digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	switch {
	case trimmed == "":
		return append(out, '0')
	case negative:
		out = append(out, '-')
	}
	return fmt.Appendf(out, "%se%d", trimmed, exponent)
}

// maxExponent bounds the exponents that are computed with. Beyond it a number is
// its text.
const maxExponent = 1 << 40
