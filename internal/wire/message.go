package wire

import (
	"encoding/json/jsontext"
)

// Kind says which of the four JSON-RPC 2.0 messages a [Message] is. The zero
// value is none of them.
type Kind uint8

// The kinds of messages.
const (
	Request      Kind = iota + 1 // method and id
	Notification                 // method, no id
	Result                       // id and result
	Failure                      // id and error
)

// String names the kind in one word.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Result:
		return "result"
	case Failure:
		return "error"
	}
	return "invalid"
}

// Span is a half-open range of bytes of [Message.Raw]. The zero Span is absent:
// no routed value can begin at offset 0, where the message's brace stands.
type Span struct{ Start, End int32 }

// maxRaw is how long a message can be, so that a Span reaches everywhere in it.
const maxRaw = 1<<31 - 1

func span(start, end int) Span { return Span{int32(start), int32(end)} }

// Present reports whether there is anything at the span.
func (s Span) Present() bool { return s.End > 0 }

// Message is one JSON-RPC message: the fields that decide its way, and the
// bytes it came in. It is immutable once read and safe for concurrent use.
type Message struct {
	// Raw is the whole message as received, without framing.
	Raw []byte
	// Kind is what the message is.
	Kind Kind
	// Method is the decoded method of a request or notification.
	Method string
	// ID, Params, Result and Error are the raw values of those members.
	ID, Params, Result, Error Span
	// P are the routed members of an object in params.
	P Params
	// R are the routed members of an object in result.
	R ResultFields
	// ErrorCode is error.code of a Failure, 0 where it is no 32-bit integer.
	ErrorCode int
}

// Params are the routed members of a message's params. Strings are decoded;
// they are empty where the member is absent or not a string, and the Span says
// which.
type Params struct {
	Name, URI       string // tools/call, prompts/get; resources/*
	NameAt, URIAt   Span
	Arguments, Meta Span
	MetaToken       Span // _meta.progressToken of a request
	ProgressToken   Span // progressToken of notifications/progress
	// Modern is what _meta says of the modern era; nil where it says nothing.
	Modern *ModernParams
	*RareParams
}

// RareParams are the routed members of params that few messages have. They are
// apart so that all others are no larger for them.
type RareParams struct {
	Cursor                 string // */list
	Ref                    *Ref   // completion/complete; nil where there is no object
	Task                   Span   // of a call
	RequestID              Span   // requestId of notifications/cancelled
	Level, ProtocolVersion string // logging/setLevel; initialize
	// InputResponses and RequestState come with a call that is sent again with what
	// its server asked for, Notifications with subscriptions/listen, TaskID with
	// tasks/*.
	InputResponses, Notifications, RequestStateAt, TaskIDAt Span
	RequestState, TaskID                                    string
}

// noRare is what messages have that have none of them. It is never changed.
var noRare RareParams

// Ref is what completion/complete completes an argument of.
type Ref struct{ Type, Name, URI string }

// ResultFields are the routed members of a result.
type ResultFields struct {
	IsError    bool   // isError is anything but false and null
	ResultType string // resultType of the modern era; empty: "complete"
	Meta       Span
	Content    Span
	// ResultTypeAt is the raw resultType.
	ResultTypeAt Span
	*RareFields
}

// RareFields are the routed members of a result that few have: of a page of a list,
// what an "input_required" one asks for, and how long one may be kept by whom.
type RareFields struct {
	Task       Span // a task handle stands in for the result
	NextCursor string
	// NextCursorAt is the raw nextCursor, absent where there is none.
	NextCursorAt                                 Span
	InputRequests, RequestState, TTL, CacheScope Span
}

// noFields is what results have that have none of them. It is never changed.
var noFields RareFields

// Bytes returns the raw bytes of a span of m, nil where it is absent. They are
// a part of m.Raw and must not be changed.
func (m *Message) Bytes(s Span) []byte {
	if !s.Present() {
		return nil
	}
	return m.Raw[s.Start:s.End:s.End]
}

// IDKey returns a comparable key for the message's id: equal for two ids iff
// they are the same JSON value, so that 1 and "1" differ and "a" and "\u0061"
// do not. It is empty where there is no id.
func (m *Message) IDKey() string { return Key(m.Bytes(m.ID)) }

// Key is [Message.IDKey] for the raw bytes of an id or a progress token.
func Key(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	if raw[0] != '"' {
		if string(raw) == "-0" {
			return "0"
		}
		return string(raw)
	}
	text, err := jsontext.AppendUnquote([]byte{'"'}, raw)
	if err != nil {
		return string(raw)
	}
	return string(text)
}

// IsTrue reads isError, which is raw: only its absence, false and null say that
// nothing went wrong, whatever else a server writes for it.
func IsTrue(raw []byte) bool {
	return len(raw) > 0 && string(raw) != "false" && string(raw) != "null"
}

// Text decodes a JSON string; ok is false where raw is none.
func Text(raw []byte) (text string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	return unquote(raw), true
}
