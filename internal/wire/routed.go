package wire

import (
	"bytes"
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
	// Not read here, but decided on where a session begins:
	"capabilities", "clientInfo",
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
	if r.next() != '{' {
		return invalid("a message must be a JSON object")
	}
	if err := r.object(envelopeKeys, envelope); err != nil {
		return err
	}
	if r.version != "2.0" {
		return invalid(`"jsonrpc" must be "2.0"`)
	}
	return r.classify()
}

func envelope(r *reader, key int) (err error) {
	m := r.m
	switch key {
	case keyVersion:
		_, err = r.string(&r.version)
	case keyID:
		m.ID = r.value()
	case keyMethod:
		r.method, err = r.string(&m.Method)
	case keyParams:
		m.Params, err = r.nested(paramsKeys, params)
	case keyResult:
		m.Result, err = r.nested(resultKeys, result)
	case keyError:
		m.Error, err = r.nested(errorKeys, failure)
	default:
		r.value()
	}
	return err
}

func params(r *reader, key int) (err error) {
	p := &r.m.P
	switch key {
	case keyName:
		p.NameAt, err = r.string(&p.Name)
	case keyURI:
		p.URIAt, err = r.string(&p.URI)
	case keyCursor:
		_, err = r.string(&p.Cursor)
	case keyArguments:
		p.Arguments = r.value()
	case keyMeta:
		p.Meta, err = r.nested(metaKeys, paramsMeta)
	case keyTask:
		p.Task = r.value()
	case keyRef:
		_, err = r.nested(refKeys, ref)
	case keyToken:
		p.ProgressToken = r.value()
	case keyRequestID:
		p.RequestID = r.value()
	case keyLevel:
		_, err = r.string(&p.Level)
	case keyProtocolVersion:
		_, err = r.string(&p.ProtocolVersion)
	default:
		r.value()
	}
	return err
}

func paramsMeta(r *reader, key int) error {
	if at := r.value(); key == 0 {
		r.m.P.MetaToken = at
	}
	return nil
}

func ref(r *reader, key int) (err error) {
	p := &r.m.P
	switch key {
	case 0:
		_, err = r.string(&p.RefType)
	case 1:
		_, err = r.string(&p.RefName)
	case 2:
		_, err = r.string(&p.RefURI)
	default:
		r.value()
	}
	return err
}

func result(r *reader, key int) (err error) {
	f := &r.m.R
	switch key {
	case keyIsError:
		at := r.value()
		f.IsError = string(r.raw[at.Start:at.End]) == "true"
	case keyResultType:
		_, err = r.string(&f.ResultType)
	case keyResultTask:
		f.Task = r.value()
	case keyResultMeta:
		f.Meta = r.value()
	case keyContent:
		f.Content = r.value()
	case keyNextCursor:
		f.NextCursorAt, err = r.string(&f.NextCursor)
	default:
		r.value()
	}
	return err
}

func failure(r *reader, key int) error {
	at := r.value()
	if key != 0 {
		return nil
	}
	if code, err := strconv.ParseInt(string(r.raw[at.Start:at.End]), 10, 32); err == nil {
		r.m.ErrorCode = int(code)
	}
	return nil
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
