package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// MaxBatch is how many messages a JSON-RPC batch may have where [Limits] say
// nothing else.
const MaxBatch = 100

// Batch returns a batch of messages; nil where there are none.
func Batch(messages [][]byte) []byte {
	if len(messages) == 0 {
		return nil
	}
	return append(append([]byte{'['}, bytes.Join(messages, []byte{','})...), ']')
}

// Split returns the members of a batch, unread: each is still to be given to
// [Read]. The error is always an [*Error].
func Split(raw []byte) ([][]byte, error) { return Limits{}.Split(raw) }

// Split is the function Split under these limits.
func (l Limits) Split(raw []byte) ([][]byte, error) {
	if tooDeep(raw, l.depth()+1) {
		return nil, &Error{Code: CodeParse, Message: "nesting deeper than " + strconv.Itoa(l.depth())}
	}
	members, err := split(raw, l.batch())
	if _, ok := errors.AsType[*Error](err); err != nil && !ok {
		return nil, &Error{Code: CodeParse, Message: "reading a batch: " + err.Error()}
	}
	if err == nil && len(members) == 0 {
		err = invalid("an empty batch")
	}
	return members, err
}

func split(raw []byte, most int) (members [][]byte, err error) {
	dec := decoder(raw)
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		if len(members) == most {
			return nil, invalid("a batch of more than " + strconv.Itoa(most) + " messages")
		}
		end := int(dec.InputOffset())
		members = append(members, raw[end-len(value):end:end])
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if rest := raw[dec.InputOffset():]; len(bytes.TrimLeft(rest, whitespace)) > 0 {
		return nil, errors.New("data after the batch's end")
	}
	return members, nil
}

// MemberFault says why a message must not be part of a batch, as an [*Error]; nil:
// it may. The modern era has no batches.
func (m *Message) MemberFault() error {
	switch {
	case m.Method == "initialize":
		return &Error{Code: CodeInvalidRequest, Message: "initialize must not be part of a batch", ID: m.Bytes(m.ID)}
	case m.Era() == Modern:
		return &Error{Code: CodeInvalidRequest, Message: "revision " + ModernRevision + " has no batches: send the messages one by one", ID: m.Bytes(m.ID)}
	}
	return nil
}
