package mcptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// Message is one JSON-RPC message as it arrived, with the members that tests ask about. It is read with
// encoding/json, which is not the parser of the code under test.
type Message struct {
	Raw    []byte          // the bytes received, without the framing
	ID     json.RawMessage // the id's bytes; nil in a notification
	Method string          // empty in a response
	Name   string          // params.name or params.uri
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
	Header http.Header // of the POST that brought it to an upstream in the test's own process; nil elsewhere
}

// ParseMessage reads one message. What is no JSON object gives a Message with only Raw set.
func ParseMessage(raw []byte) Message {
	m := Message{Raw: bytes.Clone(raw)}
	var read struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(raw, &read) != nil {
		return m
	}
	m.ID, m.Method, m.Params, m.Result, m.Error = read.ID, read.Method, read.Params, read.Result, read.Error
	var named struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	if json.Unmarshal(read.Params, &named) == nil {
		m.Name = named.Name + named.URI
	}
	return m
}

// IsRequest reports whether the message waits for an answer.
func (m Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsResponse reports whether the message is an answer.
func (m Message) IsResponse() bool { return m.Method == "" && m.ID != nil }

// String returns the bytes received.
func (m Message) String() string { return string(m.Raw) }

// Request returns a request's bytes. Params is JSON, and left out when empty.
func Request(id any, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%s%s}`, encode(id), encode(method), member("params", params))
}

// Notification returns a notification's bytes. Params is JSON, and left out when empty.
func Notification(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%s%s}`, encode(method), member("params", params))
}

// Result returns a successful answer's bytes to the request with the id given as JSON.
func Result(id json.RawMessage, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// Failure returns an error answer's bytes to the request with the id given as JSON.
func Failure(id json.RawMessage, code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, encode(message))
}

// Text returns the result of a tools/call that says one text.
func Text(text string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, encode(text))
}

// ErrorText returns the result of a tools/call that failed with a text.
func ErrorText(text string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":true}`, encode(text))
}

func member(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf(",%s:%s", encode(name), value)
}

// encode returns v as JSON. Only values that cannot fail are given to it.
func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return out
}

// ID returns an id as JSON.
func ID(id any) json.RawMessage { return encode(id) }
