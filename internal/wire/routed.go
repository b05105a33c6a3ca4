package wire

import (
	"bytes"
	"io"
	"strconv"
)

// The routed members, level by level. A message's way is decided by these and
// nothing else.
const (
	keyVersion = iota
	keyID
	keyMethod
	keyParams
	keyResult
	keyError
)

var envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}

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
)

var paramsKeys = []string{
	"name", "uri", "cursor", "arguments", "_meta", "task", "ref",
	"progressToken", "requestId", "level", "protocolVersion",
}

var metaKeys = []string{"progressToken"}

var refKeys = []string{"type", "name", "uri"}

const (
	keyIsError = iota
	keyResultType
	keyResultTask
	keyResultMeta
	keyContent
	keyNextCursor
)

var resultKeys = []string{"isError", "resultType", "task", "_meta", "content", "nextCursor"}

var errorKeys = []string{"code"}

// message reads the envelope and says what kind of message it is.
func (r *reader) message() error {
	if k := r.dec.PeekKind(); k != '{' {
		if k == 0 {
			_, err := r.dec.ReadToken()
			return err
		}
		return invalid("a message must be a JSON object")
	}
	var version string
	if err := r.object(envelopeKeys, func(r *reader, key int) error { return r.envelope(key, &version) }); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); err != io.EOF {
		return &Error{Code: CodeParse, Message: "data after the message's end"}
	}
	if version != "2.0" {
		return invalid(`"jsonrpc" must be "2.0"`)
	}
	return r.m.classify()
}

func (r *reader) envelope(key int, version *string) (err error) {
	m := r.m
	switch key {
	case keyVersion:
		_, err = r.text(version)
	case keyID:
		m.ID, _, err = r.value()
	case keyMethod:
		var at Span
		if at, err = r.text(&m.Method); err == nil && m.Raw[at.Start] != '"' {
			return invalid(`"method" must be a string`)
		}
	case keyParams:
		if m.Params, err = r.nested(paramsKeys, params); err == nil && m.Raw[m.Params.Start] != '{' {
			return invalid(`"params" must be an object`)
		}
	case keyResult:
		m.Result, err = r.nested(resultKeys, result)
	case keyError:
		m.Error, err = r.nested(errorKeys, failure)
	default:
		err = r.dec.SkipValue()
	}
	return err
}

func params(r *reader, key int) (err error) {
	p := &r.m.P
	switch key {
	case keyName:
		p.NameAt, err = r.text(&p.Name)
	case keyURI:
		p.URIAt, err = r.text(&p.URI)
	case keyCursor:
		_, err = r.text(&p.Cursor)
	case keyArguments:
		p.Arguments, _, err = r.value()
	case keyMeta:
		p.Meta, err = r.nested(metaKeys, paramsMeta)
	case keyTask:
		p.Task, _, err = r.value()
	case keyRef:
		_, err = r.nested(refKeys, ref)
	case keyToken:
		p.ProgressToken, _, err = r.value()
	case keyRequestID:
		p.RequestID, _, err = r.value()
	case keyLevel:
		_, err = r.text(&p.Level)
	case keyProtocolVersion:
		_, err = r.text(&p.ProtocolVersion)
	default:
		err = r.dec.SkipValue()
	}
	return err
}

func paramsMeta(r *reader, key int) (err error) {
	if key != 0 {
		return r.dec.SkipValue()
	}
	r.m.P.MetaToken, _, err = r.value()
	return err
}

func ref(r *reader, key int) (err error) {
	p := &r.m.P
	switch key {
	case 0:
		_, err = r.text(&p.RefType)
	case 1:
		_, err = r.text(&p.RefName)
	case 2:
		_, err = r.text(&p.RefURI)
	default:
		err = r.dec.SkipValue()
	}
	return err
}

func result(r *reader, key int) (err error) {
	f := &r.m.R
	switch key {
	case keyIsError:
		var at Span
		at, _, err = r.value()
		f.IsError = err == nil && string(r.m.Raw[at.Start:at.End]) == "true"
	case keyResultType:
		_, err = r.text(&f.ResultType)
	case keyResultTask:
		f.Task, _, err = r.value()
	case keyResultMeta:
		f.Meta, _, err = r.value()
	case keyContent:
		f.Content, _, err = r.value()
	case keyNextCursor:
		f.NextCursorAt, err = r.text(&f.NextCursor)
	default:
		err = r.dec.SkipValue()
	}
	return err
}

func failure(r *reader, key int) error {
	if key != 0 {
		return r.dec.SkipValue()
	}
	at, _, err := r.value()
	if code, bad := strconv.ParseInt(string(r.m.Raw[at.Start:at.End]), 10, 32); err == nil && bad == nil {
		r.m.ErrorCode = int(code)
	}
	return err
}

// classify checks the members against each other: exactly one of method,
// result and error, and an id where one is due.
func (m *Message) classify() error {
	id := m.Bytes(m.ID)
	answers := m.Result.Present() || m.Error.Present()
	switch {
	case m.Method == "" && !answers:
		return invalid(`a message needs "method", "result" or "error"`)
	case m.Method != "" && answers, m.Result.Present() && m.Error.Present():
		return invalid(`a message has only one of "method", "result" and "error"`)
	case m.Method != "" && id == nil:
		m.Kind = Notification
	case m.Error.Present() && (id == nil || string(id) == "null"):
		m.Kind, m.ID = Failure, Span{}
	case !validID(id):
		m.ID = Span{}
		return invalid(`"id" must be a string or an integer`)
	case m.Method != "":
		m.Kind = Request
	case m.Result.Present():
		m.Kind = Result
	default:
		m.Kind = Failure
	}
	return nil
}

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
	return len(digits) > 0 && len(bytes.Trim(digits, "0123456789")) == 0
}
