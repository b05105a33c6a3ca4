package wire

import (
	"encoding/json/jsontext"
	"strconv"
)

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
