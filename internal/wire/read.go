package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
)

// Side says who sent a message, and so how strictly it is read.
type Side uint8

const (
	// FromClient: no duplicate member names and no invalid UTF-8 anywhere.
	FromClient Side = iota
	// FromUpstream: the same at the routed levels only. What lies below goes
	// on as it came, as on a direct connection.
	FromUpstream
)

// MaxDepth is how deeply arrays and objects of a message may nest where
// [Limits] say nothing else.
const MaxDepth = 512

// Limits bound what is read. Zero values are MaxDepth and MaxBatch.
type Limits struct {
	Depth int // how deeply arrays and objects may nest
	Batch int // how many messages a batch may have
}

func (l Limits) depth() int { return orElse(l.Depth, MaxDepth) }
func (l Limits) batch() int { return orElse(l.Batch, MaxBatch) }

func orElse(value, def int) int {
	if value <= 0 {
		return def
	}
	return value
}

// Error is a message that cannot be read, with the JSON-RPC error to answer it.
type Error struct {
	Code    int    // CodeParse or CodeInvalidRequest
	Message string // what is wrong, for the sender
	ID      []byte // the raw id under which the client waits, or which the upstream answers, where it is found, else nil
	Sure    bool   // the client waits under ID, or not at all: see [IDScan.Addressee]
}

// Error is the Message.
func (e *Error) Error() string { return e.Message }

// Answer returns the JSON-RPC error answer.
func (e *Error) Answer() []byte { return ErrorAnswer(e.ID, e.Code, e.Message, nil) }

// Read reads one message. raw is kept: it must not be changed afterwards. The
// error is always an [*Error]. A batch is no message: see [IsBatch].
func Read(raw []byte, from Side) (*Message, error) { return Limits{}.Read(raw, from) }

// Made reads a message that was made here, in part of what was given; nil: it cannot be read.
func Made(raw []byte) *Message {
	m, err := Read(raw, FromUpstream)
	if err != nil {
		return nil
	}
	return m
}

// Read is the function Read under these limits.
//
// Most messages are plain: the walk that finds the routed members sees by itself
// that they are JSON. What it cannot be sure of, or finds at fault, jsontext
// judges, before the same walk over bytes that are known to be JSON.
func (l Limits) Read(raw []byte, from Side) (*Message, error) {
	m := newMessage(raw)
	r := reader{raw: raw, from: from, m: m}
	if len(raw) <= maxRaw && l.depth() >= plainReach && r.message() == nil {
		return m, nil
	}
	return l.readChecked(raw, from)
}

// newMessage sets fields one by one: a literal would be made on the stack and copied.
func newMessage(raw []byte) *Message {
	m := new(Message)
	m.Raw, m.P.RareParams, m.R.RareFields = raw, &noRare, &noFields
	return m
}

// readChecked reads a message that jsontext has looked at first.
func (l Limits) readChecked(raw []byte, from Side) (*Message, error) {
	m := newMessage(raw)
	err := l.check(raw, from)
	if err == nil {
		err = (&reader{raw: raw, from: from, m: m, checked: true}).message()
	}
	if err != nil {
		return nil, m.fault(err, from)
	}
	return m, nil
}

var (
	strict  = jsontext.AllowDuplicateNames(false)
	lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

// judge is a decoder with its input. It is pooled, since a decoder's buffers
// cost more than a message.
type judge struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

var judges = sync.Pool{New: func() any { return new(judge) }}

// check reports whether a message is one JSON value and nothing else.
func (l Limits) check(raw []byte, from Side) error {
	if len(raw) > maxRaw {
		return &Error{Code: CodeInvalidRequest, Message: "a message of 2 GiB or more"}
	}
	if tooDeep(raw, l.depth()) {
		return &Error{Code: CodeParse, Message: "nesting deeper than " + strconv.Itoa(l.depth())}
	}
	j := judges.Get().(*judge)
	defer judges.Put(j)
	j.buf = *bytes.NewBuffer(raw)
	defer func() { j.buf = bytes.Buffer{} }()
	if from == FromUpstream {
		j.dec.Reset(&j.buf, lenient...)
	} else {
		j.dec.Reset(&j.buf, strict)
	}
	if _, err := j.dec.ReadValue(); err != nil {
		return err
	}
	if len(bytes.TrimLeft(raw[j.dec.InputOffset():], whitespace)) > 0 {
		return &Error{Code: CodeParse, Message: "data after the message's end"}
	}
	return nil
}

// fault makes the answer to a message that could not be read.
func (m *Message) fault(err error, from Side) *Error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		err = invalid("duplicate member name: " + err.Error())
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok:
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		e = &Error{Code: CodeParse, Message: "reading JSON: the message ends too early"}
	default:
		e = &Error{Code: CodeParse, Message: "reading JSON: " + err.Error()}
	}
	switch scan := scanned(m.Raw); {
	case from == FromClient:
		e.ID, e.Sure = scan.Addressee()
	case e.Code != CodeParse: // what is no JSON may be noise
		e.ID = scan.only()
	}
	return e
}

func invalid(text string) *Error { return &Error{Code: CodeInvalidRequest, Message: text} }

// IsBatch reports whether raw is a JSON array, as a JSON-RPC batch is.
func IsBatch(raw []byte) bool {
	raw = bytes.TrimLeft(raw, whitespace)
	return len(raw) > 0 && raw[0] == '['
}

// level is an object whose members are routed: a message's way is decided by
// these and nothing else.
type level uint8

const (
	envelopeLevel level = iota
	paramsLevel
	metaLevel // of params
	refLevel  // of params
	resultLevel
	errorLevel
)

// levelKeys are the routed members of each level.
var levelKeys = [...][]string{
	envelopeLevel: {"jsonrpc", "id", "method", "params", "result", "error"},
	paramsLevel: {
		"name", "uri", "cursor", "arguments", "_meta", "task", "ref",
		"progressToken", "requestId", "level", "protocolVersion",
		// Not read here, but decided on where a session begins:
		"capabilities", "clientInfo",
		// Of the modern era:
		"inputResponses", "requestState", "notifications", "taskId",
	},
	metaLevel: {
		"progressToken", metaPrefix + "protocolVersion", metaPrefix + "clientCapabilities", metaPrefix + "clientInfo",
		metaPrefix + "logLevel", metaPrefix + "subscriptionId", MetaRun,
	},
	refLevel: {"type", "name", "uri"},
	resultLevel: {
		"isError", "resultType", "task", "_meta", "content", "nextCursor",
		"inputRequests", "requestState", "ttlMs", "cacheScope",
	},
	errorLevel: {"code"},
}

// member reads the value of one member. key is its index among the level's keys,
// -1 for one that is not routed.
func (r *reader) member(l level, key int) (err error) {
	if key < 0 {
		_, err = r.value()
		return err
	}
	switch l {
	case envelopeLevel:
		return r.envelope(key)
	case paramsLevel:
		return r.params(key)
	case metaLevel:
		return r.meta(key)
	case refLevel:
		return r.ref(key)
	case resultLevel:
		return r.result(key)
	case errorLevel:
		return r.failure()
	}
	return err
}

const (
	keyVersion = iota
	keyID
	keyMethod
	keyParams
	keyResult
	keyError
)

const (
	keyName = iota
	keyURI
	keyCursor
	keyArguments
	keyMeta
	keyTask
	keyRef
	keyToken
	keyRequestID
	keyLevel
	keyProtocolVersion
	keyCapabilities
	keyClientInfo
	keyInputResponses
	keyRequestState
	keyNotifications
	keyTaskID
)

const (
	keyMetaToken = iota
	keyMetaVersion
	keyMetaCapabilities
	keyMetaClientInfo
	keyMetaLogLevel
	keyMetaSubscription
	keyMetaRun
)

const (
	keyIsError = iota
	keyResultType
	keyResultTask
	keyResultMeta
	keyContent
	keyNextCursor
	keyInputRequests
	keyResultState
	keyTTL
	keyCacheScope
)

// message reads the envelope and says what kind of message it is.
func (r *reader) message() error {
	if r.peek() != '{' {
		return invalid("a message must be a JSON object")
	}
	if err := r.object(envelopeLevel); err != nil {
		return err
	}
	if !r.checked && !r.plain() {
		return errUnsure
	}
	if r.version != "2.0" {
		return invalid(`"jsonrpc" must be "2.0"`)
	}
	return r.classify()
}

func (r *reader) envelope(key int) (err error) {
	m := r.m
	switch key {
	case keyVersion:
		_, err = r.string(&r.version)
	case keyID:
		m.ID, err = r.value()
	case keyMethod:
		r.method, err = r.string(&m.Method)
	case keyParams:
		m.Params, err = r.nested(paramsLevel)
	case keyResult:
		m.Result, err = r.nested(resultLevel)
	case keyError:
		m.Error, err = r.nested(errorLevel)
	}
	return err
}

func (r *reader) params(key int) (err error) {
	p := &r.m.P
	switch key {
	case keyName:
		p.NameAt, err = r.string(&p.Name)
	case keyURI:
		p.URIAt, err = r.string(&p.URI)
	case keyCursor:
		_, err = r.string(&r.rare().Cursor)
	case keyArguments:
		p.Arguments, err = r.value()
	case keyMeta:
		p.Meta, err = r.nested(metaLevel)
	case keyTask:
		r.rare().Task, err = r.value()
	case keyRef:
		if r.peek() == '{' {
			r.rare().Ref = new(Ref)
		}
		_, err = r.nested(refLevel)
	case keyToken:
		p.ProgressToken, err = r.value()
	case keyRequestID:
		r.rare().RequestID, err = r.value()
	case keyLevel:
		_, err = r.string(&r.rare().Level)
	case keyProtocolVersion:
		_, err = r.string(&r.rare().ProtocolVersion)
	case keyInputResponses:
		r.rare().InputResponses, err = r.value()
	case keyRequestState:
		p := r.rare()
		p.RequestStateAt, err = r.string(&p.RequestState)
	case keyNotifications:
		r.rare().Notifications, err = r.value()
	case keyTaskID:
		p := r.rare()
		p.TaskIDAt, err = r.string(&p.TaskID)
	default:
		_, err = r.value()
	}
	return err
}

// rare are the message's own rare members of params.
func (r *reader) rare() *RareParams {
	if r.m.P.RareParams == &noRare {
		r.m.P.RareParams = new(RareParams)
	}
	return r.m.P.RareParams
}

// rareFields are the message's own rare members of its result.
func (r *reader) rareFields() *RareFields {
	if r.m.R.RareFields == &noFields {
		r.m.R.RareFields = new(RareFields)
	}
	return r.m.R.RareFields
}

// meta reads a routed member of _meta. What is the modern era's is kept apart, so
// that messages of the legacy one are no larger for it.
func (r *reader) meta(key int) (err error) {
	if key == keyMetaToken {
		r.m.P.MetaToken, err = r.value()
		return err
	}
	p := r.m.P.Modern
	if p == nil {
		p = new(ModernParams)
		r.m.P.Modern = p
	}
	switch key {
	case keyMetaVersion:
		p.VersionAt, err = r.string(&p.Version)
	case keyMetaCapabilities:
		p.Capabilities, err = r.value()
	case keyMetaClientInfo:
		p.ClientInfo, err = r.value()
	case keyMetaLogLevel:
		p.LogLevelAt, err = r.string(&p.LogLevel)
	case keyMetaSubscription:
		p.Subscription, err = r.value()
	case keyMetaRun:
		p.RunAt, err = r.string(&p.Run)
	}
	return err
}

func (r *reader) ref(key int) (err error) {
	ref := r.m.P.Ref
	_, err = r.string([...]*string{&ref.Type, &ref.Name, &ref.URI}[key])
	return err
}

func (r *reader) result(key int) (err error) {
	f := &r.m.R
	var at Span
	switch key {
	case keyIsError:
		at, err = r.value()
		f.IsError = IsTrue(r.raw[at.Start:at.End])
	case keyResultType:
		f.ResultTypeAt, err = r.string(&f.ResultType)
	case keyResultTask:
		r.rareFields().Task, err = r.value()
	case keyResultMeta:
		f.Meta, err = r.value()
	case keyContent:
		f.Content, err = r.value()
	case keyNextCursor:
		f := r.rareFields()
		f.NextCursorAt, err = r.string(&f.NextCursor)
	case keyInputRequests:
		r.rareFields().InputRequests, err = r.value()
	case keyResultState:
		r.rareFields().RequestState, err = r.value()
	case keyTTL:
		r.rareFields().TTL, err = r.value()
	case keyCacheScope:
		r.rareFields().CacheScope, err = r.value()
	}
	return err
}

func (r *reader) failure() error {
	at, err := r.value()
	if err != nil {
		return err
	}
	r.m.ErrorCode = errorCode(string(r.raw[at.Start:at.End]))
	return nil
}

// errorCode reads an error's code as clients do, most of which take -32042.0 and
// -3.2042e4 for the integer. What is no 32-bit one is 0.
func errorCode(raw string) int {
	if code, err := strconv.ParseInt(raw, 10, 32); err == nil {
		return int(code)
	}
	code, err := strconv.ParseFloat(raw, 64)
	if err != nil || code != math.Trunc(code) || code < math.MinInt32 || code > math.MaxInt32 {
		return 0
	}
	return int(code)
}

// classify checks the members against each other: exactly one of method,
// result and error, and an id where one is due.
func (r *reader) classify() error {
	m := r.m
	id, asks := m.Bytes(m.ID), r.method.Present()
	answers := m.Result.Present() || m.Error.Present()
	switch {
	case !asks && !answers:
		return invalid(`a message needs "method", "result" or "error"`)
	case asks && answers, m.Result.Present() && m.Error.Present():
		return invalid(`a message has only one of "method", "result" and "error"`)
	case asks && m.Method == "":
		return invalid(`"method" must be a string that names one`)
	case m.Params.Present() && r.raw[m.Params.Start] != '{':
		return invalid(`"params" must be an object`)
	case asks && id == nil:
		m.Kind = Notification
	case m.Error.Present() && (id == nil || string(id) == "null"):
		m.Kind, m.ID = Failure, Span{}
	case !validID(id):
		return invalid(`"id" must be a string or an integer`)
	case asks:
		m.Kind = Request
	case m.Result.Present():
		m.Kind = Result
	default:
		m.Kind = Failure
	}
	return nil
}

// ValidID reports whether bytes are a request id in JSON.
func ValidID(id []byte) bool { return validID(id) && jsontext.Value(id).IsValid() }

// validID accepts what MCP allows as a request id: a string or an integer,
// written as one, of any size.
func validID(id []byte) bool {
	if len(id) == 0 {
		return false
	}
	if id[0] == '"' {
		return true
	}
	digits := bytes.TrimPrefix(id, []byte{'-'})
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(digits) > 0
}
