package wire

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// Headers of the modern era that repeat what the body says, in their canonical
// form (2026-07-28, basic/transports/streamable-http, "Request Metadata").
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	// HeaderParam begins the names of those that repeat a tool's arguments.
	HeaderParam = "Mcp-Param-"
)

// What stands around a header's value that is Base64.
const (
	encodedHead = "=?base64?"
	encodedTail = "?="
)

// Named returns what Mcp-Name repeats of a request, which is required where named
// is true. An empty name: the request has none.
func (m *Message) Named() (name string, named bool) {
	switch m.Method {
	case "tools/call", "prompts/get":
		return m.P.Name, true
	case "resources/read":
		return m.P.URI, true
	case "tasks/get", "tasks/update", "tasks/cancel":
		return m.P.TaskID, true
	}
	return "", false
}

// EncodeHeader returns a header's value that stands for text: itself where it is
// made of visible ASCII and spaces within, else its Base64 form, which the empty
// text has, too, as headers without a value are lost on some ways.
func EncodeHeader(text string) string {
	if plainHeader(text) && !encoded(text) {
		return text
	}
	return encodedHead + base64.StdEncoding.EncodeToString([]byte(text)) + encodedTail
}

// DecodeHeader returns what a header's value stands for. ok is false where it has
// characters that no header may have, or claims to be Base64 and is not.
func DecodeHeader(value string) (text string, ok bool) {
	for i := range len(value) {
		if c := value[i]; c != '\t' && (c < ' ' || c > '~') {
			return "", false
		}
	}
	if !encoded(value) {
		return value, true
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(value[len(encodedHead) : len(value)-len(encodedTail)])
	return string(raw), err == nil && utf8.Valid(raw)
}

func encoded(value string) bool {
	return len(value) >= len(encodedHead)+len(encodedTail) && strings.HasPrefix(value, encodedHead) && strings.HasSuffix(value, encodedTail)
}

// plainHeader reports whether text arrives as it is when it is a header's value.
func plainHeader(text string) bool {
	if text == "" || text[0] == ' ' || text[len(text)-1] == ' ' {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
