// Package redact takes out of JSON what nobody is to read in a record.
package redact

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Placeholder stands in place of what was taken out.
const Placeholder = "[redacted]"

// Redaction is which places of a document are taken out; nil: none. It is immutable.
type Redaction struct {
	pointers []string
	root     node
}

// Takes reports whether something is taken out of a document, or that cannot be said.
func (r *Redaction) Takes(text []byte) bool {
	if r == nil {
		return false
	}
	told, err := r.Of(text)
	was, is := jsontext.Value(text).Clone(), jsontext.Value(told)
	return err != nil || was.Canonicalize() != nil || is.Canonicalize() != nil || !bytes.Equal(was, is)
}

// node is a place; what is beneath it is found by the token of a pointer.
type node struct {
	out  bool // it is taken out
	next map[string]*node
}

// New returns what takes out the places that JSON pointers name (RFC 6901); nil for none of them.
func New(pointers []string) (*Redaction, error) {
	if len(pointers) == 0 {
		return nil, nil
	}
	r := &Redaction{pointers: slices.Clone(pointers)}
	for _, p := range pointers {
		if !jsontext.Pointer(p).IsValid() {
			return nil, fmt.Errorf("%q is no JSON pointer: write /name, or /name/0 (RFC 6901)", p)
		}
		at := &r.root
		for token := range jsontext.Pointer(p).Tokens() {
			if at.next == nil {
				at.next = make(map[string]*node)
			}
			if at.next[token] == nil {
				at.next[token] = &node{}
			}
			at = at.next[token]
		}
		at.out = true
	}
	return r, nil
}

// Of returns a document without what is taken out. Of one that others may read otherwise, or that is none, it returns
// nothing.
func (r *Redaction) Of(text []byte) ([]byte, error) {
	if r == nil {
		return text, nil
	}
	var out bytes.Buffer
	in, to := jsontext.NewDecoder(bytes.NewReader(text)), jsontext.NewEncoder(&out)
	if err := r.root.copy(in, to); err != nil {
		return nil, err
	}
	if _, err := in.ReadToken(); err != io.EOF {
		return nil, errors.New("there is more than one document")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// copy copies the next value, without what is taken out of it.
func (n *node) copy(in *jsontext.Decoder, to *jsontext.Encoder) error {
	kind := in.PeekKind()
	switch {
	case n == nil || !n.out && kind != '{' && kind != '[':
		v, err := in.ReadValue()
		if err == nil {
			err = to.WriteValue(v)
		}
		return err
	case n.out:
		if err := in.SkipValue(); err != nil {
			return err
		}
		return to.WriteToken(jsontext.String(Placeholder))
	}
	if err := pass(in, to); err != nil {
		return err
	}
	for i := 0; in.PeekKind() > 0 && in.PeekKind() != '}' && in.PeekKind() != ']'; i++ {
		token := strconv.Itoa(i)
		if kind == '{' {
			name, err := in.ReadToken()
			if err != nil {
				return err
			}
			token = name.String()
			if err := to.WriteToken(jsontext.String(token)); err != nil {
				return err
			}
		}
		if err := n.next[token].copy(in, to); err != nil {
			return err
		}
	}
	return pass(in, to)
}

func pass(in *jsontext.Decoder, to *jsontext.Encoder) error {
	t, err := in.ReadToken()
	if err == nil {
		err = to.WriteToken(t)
	}
	return err
}

// Pointers are those that name the places.
func (r *Redaction) Pointers() []string {
	if r == nil {
		return nil
	}
	return r.pointers
}

// Tokens are those of a pointer.
func Tokens(pointer string) []string {
	return slices.Collect(jsontext.Pointer(pointer).Tokens())
}
