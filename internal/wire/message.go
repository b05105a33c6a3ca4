// Package wire reads JSON-RPC messages of the Model Context Protocol strictly
// and once, keeps the bytes they came in, and changes those bytes in one way
// only: [Splice].
//
// Its other types are the words that the framings (stdio, streamhttp), the
// relay (proxy) and the connections to the wrapped server (upstream) share:
// [Stream], [Session] and [Pending] towards clients, [Receiver] and
// [CallError] towards upstreams, [List] for what a server offers.
package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
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

// Repeats reports whether a message may be served once more though it may have been served before, by its method alone: it asks
// for what is there, or says what holds however often it is said.
func (m *Message) Repeats() bool {
	switch m.Method {
	case "initialize", "ping", "server/discover", "logging/setLevel", "completion/complete",
		"tools/list", "resources/list", "resources/templates/list", "prompts/list",
		"resources/subscribe", "resources/unsubscribe", "subscriptions/listen",
		"tasks/get", "tasks/result", "tasks/list",
		"notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed":
		return true
	}
	return false
}

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

// Era is which of the two ways of MCP a message goes.
type Era uint8

const (
	// Legacy are the revisions up to 2025-11-25: initialize, sessions.
	Legacy Era = iota
	// Modern is 2026-07-28: no handshake and no session, each request says in its
	// _meta what it needs to be understood.
	Modern
)

// String names the era in one word.
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// ModernRevision is the revision of the modern era, LatestLegacy the newest of the
// legacy era.
const (
	ModernRevision = "2026-07-28"
	LatestLegacy   = "2025-11-25"
)

var legacyRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", LatestLegacy}

// LegacyRevisions are those of the legacy era, oldest first.
func LegacyRevisions() []string { return slices.Clone(legacyRevisions) }

// IsLegacyRevision reports whether a revision is one of the legacy era.
func IsLegacyRevision(revision string) bool { return slices.Contains(legacyRevisions, revision) }

// Members of _meta (2026-07-28, basic/index, "_meta").
const (
	metaPrefix       = "io.modelcontextprotocol/"
	MetaVersion      = metaPrefix + "protocolVersion"
	MetaCapabilities = metaPrefix + "clientCapabilities"
	MetaClientInfo   = metaPrefix + "clientInfo"
	MetaServerInfo   = metaPrefix + "serverInfo"
	MetaLogLevel     = metaPrefix + "logLevel"
	MetaSubscription = metaPrefix + "subscriptionId"
	// MetaRun carries a run's handle, in place of an argument.
	MetaRun = "fsm-proxy/run"
)

// What a result of the modern era can be (2026-07-28, basic/index, "ResultType").
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task" // of the tasks extension
)

// ModernParams is what _meta of a request says in the modern era. Strings are
// empty where the member is absent or not a string, and the Span says which.
type ModernParams struct {
	Version, LogLevel, Run       string
	VersionAt, LogLevelAt, RunAt Span
	Capabilities, ClientInfo     Span
	Subscription                 Span // subscriptionId of a notification
}

// Edit replaces the bytes at At by With; where At is empty (Start == End) it
// inserts them.
type Edit struct {
	At   Span
	With []byte
}

// Splice returns raw with the edits made, all other bytes untouched. Edits must
// be in ascending order and not overlap. It always copies. This is the only
// place where bytes on their way through the proxy change; which edits there
// are is the closed list in docs/protocol.md.
func Splice(raw []byte, edits ...Edit) []byte {
	n := len(raw)
	for _, e := range edits {
		n += len(e.With) - int(e.At.End-e.At.Start)
	}
	out := make([]byte, 0, n)
	at := int32(0)
	for _, e := range edits {
		out = append(out, raw[at:e.At.Start]...)
		out = append(out, e.With...)
		at = e.At.End
	}
	return append(out, raw[at:]...)
}

// OneLine returns raw with the line breaks between its tokens made spaces, for
// framings in which a line break ends the message. Inside strings JSON allows
// none. raw itself is returned where there is nothing to do.
func OneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	out := bytes.Clone(raw)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return out
}

// Era is the era of a request or a notification by what it carries: modern iff
// _meta has a protocol version.
func (m *Message) Era() Era {
	if m.P.Modern != nil && m.P.Modern.VersionAt.Present() {
		return Modern
	}
	return Legacy
}

// Principal is who is asking, as authentication has found out. The zero value is
// nobody: all who are not told apart. It is comparable.
type Principal struct {
	Issuer  string // who vouches for the subject
	Subject string // who it is to the issuer
}

// PrincipalOf is who is asking, by name; of nil it is nobody.
func PrincipalOf(who *asker.Who) Principal {
	if who == nil {
		return Principal{}
	}
	return Principal{Issuer: who.Issuer, Subject: who.Subject}
}

// Progress returns a notification of progress to who has sent a token.
func Progress(token []byte, progress float64, text string) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), token...)
	out = strconv.AppendFloat(append(out, `,"progress":`...), progress, 'f', 3, 64)
	return append(AppendString(append(out, `,"message":`...), text), "}}"...)
}

// AsksOn returns on whose behalf the request comes that has this stream; nil: nobody is known.
func AsksOn(s Stream) *asker.Who {
	if asked, ok := s.(AskedStream); ok {
		return asked.Asks()
	}
	return nil
}

// BearerIssuer is the issuer of all who have the one token of a bearer file: they
// are one principal.
const BearerIssuer = "bearer-file"

// Known reports whether it is anybody.
func (p Principal) Known() bool { return p != Principal{} }

// Shared reports whether several clients may be it, who know no secret of each other.
func (p Principal) Shared() bool { return p.Issuer == BearerIssuer }

// ServerInfo is how a server introduces itself in a result: in its answer to
// initialize, or in _meta in the modern era. Nil where it does not.
func (m *Message) ServerInfo() (info []byte) {
	if info = Member(m.Bytes(m.R.Meta), MetaServerInfo); info == nil {
		info = Member(m.Bytes(m.Result), "serverInfo")
	}
	return info
}

// Fault is why a request is answered with an error before anybody looks at what
// it asks for.
type Fault struct {
	Code int
	Text string
	Data []byte // JSON; nil: none
}

// Spoken says which eras are spoken somewhere.
type Spoken struct{ Legacy, Modern bool }

// Revisions are those of the eras, newest first.
func (s Spoken) Revisions() (all []string) {
	if s.Legacy {
		all = LegacyRevisions()
	}
	if s.Modern {
		all = append(all, ModernRevision)
	}
	slices.Reverse(all)
	return all
}

// MetaFault is what is wrong with what a request of the modern era says of itself
// (2026-07-28, basic/index, "Per-request protocol fields"); nil: nothing. An unknown
// version comes before all that its revision may have otherwise.
func (s Spoken) MetaFault(m *Message) *Fault {
	p := m.P.Modern
	switch {
	case !m.SaysVersion():
		return &Fault{Code: CodeInvalidParams, Text: "params._meta must have the protocol's version as " + MetaVersion}
	case !s.Modern || p.Version != ModernRevision:
		return s.Unsupported(p.Version)
	case !p.Capabilities.Present() || m.Raw[p.Capabilities.Start] != '{':
		return &Fault{Code: CodeInvalidParams, Text: "params._meta must have the client's capabilities, an object, as " + MetaCapabilities}
	}
	return nil
}

// SaysVersion reports whether _meta has a protocol version, a string.
func (m *Message) SaysVersion() bool {
	p := m.P.Modern
	return p != nil && p.VersionAt.Present() && m.Raw[p.VersionAt.Start] == '"'
}

// maxShown is how much of a version that a client asks for is told again, in bytes.
const maxShown = 128

// Unsupported is the fault of a request in a revision that is not spoken
// (2026-07-28, basic/versioning).
func (s Spoken) Unsupported(requested string) *Fault {
	all := s.Revisions()
	data := AppendString([]byte(`{"supported":["`+strings.Join(all, `","`)+`"],"requested":`), requested[:min(len(requested), maxShown)])
	return &Fault{
		Code: CodeUnsupportedVersion,
		Text: "unsupported protocol version: spoken here are " + strings.Join(all, ", "),
		Data: append(data, '}'),
	}
}

// JSON-RPC 2.0 error codes, and those that MCP adds.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // MCP up to 2025-11-25
	CodeHeaderMismatch     = -32020 // MCP 2026-07-28: headers and body differ
	CodeMissingCapability  = -32021 // MCP 2026-07-28: the client has not declared what the call needs
	CodeUnsupportedVersion = -32022 // MCP 2026-07-28
	CodeURLElicitation     = -32042 // MCP 2025-11-25: the user is to visit a URL
)

// ResultAnswer returns the answer to the request with the raw id.
func ResultAnswer(id, result []byte) []byte {
	out := make([]byte, 0, len(id)+len(result)+34)
	out = appendResultHead(out, id)
	out = append(out, result...)
	return append(out, resultTail...)
}

// ResultFrame returns what [ResultAnswer] puts before and behind the result.
func ResultFrame(id []byte) (head, tail []byte) {
	return appendResultHead(make([]byte, 0, len(id)+33), id), resultTail
}

var resultTail = []byte("}")

func appendResultHead(out, id []byte) []byte {
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	return append(out, `,"result":`...)
}

// ErrorAnswer returns an error answer. A nil id becomes null, a nil data is
// left out.
func ErrorAnswer(id []byte, code int, message string, data []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	out := make([]byte, 0, len(id)+len(message)+len(data)+64)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	out = append(out, `,"error":{"code":`...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(out, `,"message":`...)
	out = AppendString(out, message)
	if data != nil {
		out = append(out, `,"data":`...)
		out = append(out, data...)
	}
	return append(out, "}}"...)
}

// RequestMessage returns a request with a numeric id; nil params are left out.
func RequestMessage(id int64, method string, params []byte) []byte {
	out := append([]byte(nil), `{"jsonrpc":"2.0","id":`...)
	out = strconv.AppendInt(out, id, 10)
	return appendCall(out, method, params)
}

// NotificationMessage returns a notification; nil params are left out.
func NotificationMessage(method string, params []byte) []byte {
	return appendCall([]byte(`{"jsonrpc":"2.0"`), method, params)
}

func appendCall(out []byte, method string, params []byte) []byte {
	out = append(out, `,"method":`...)
	out = AppendString(out, method)
	if params != nil {
		out = append(out, `,"params":`...)
		out = append(out, params...)
	}
	return append(out, '}')
}

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(out []byte, s string) []byte {
	out, _ = jsontext.AppendQuote(out, s)
	return out
}
