package main

import (
	"bytes"
	"fmt"
	"strings"
)

// toolCount is how many tools the canned upstream lists: echo and tool_001 to
// tool_099.
const toolCount = 100

// latestLegacy is the newest protocol revision with an initialize handshake.
const latestLegacy = "2025-11-25"

// canned answers MCP requests of the legacy era from prepared bytes. It is
// read-only after newCanned and safe for concurrent use.
type canned struct {
	call, list []byte
}

// newCanned prepares an upstream whose echo answers with text.
func newCanned(text string) *canned {
	return &canned{
		call: fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, text),
		list: toolList(),
	}
}

// cannedText is the text of n bytes that echo is called with and answers.
func cannedText(n int) string { return strings.Repeat("x", n) }

func toolList() []byte {
	var b bytes.Buffer
	b.WriteString(`{"tools":[`)
	for i := range toolCount {
		name := fmt.Sprintf("tool_%03d", i)
		if i == 0 {
			name = "echo"
		} else {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"description":"One of %d tools of an upstream that knows nothing of states.",`+
			`"inputSchema":{"type":"object","properties":{"message":{"type":"string"}}}}`, name, toolCount)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// answer appends the answer to msg, without a line end, and returns the
// extended slice: unchanged for a notification or an answer.
func (c *canned) answer(dst, msg []byte) []byte {
	e := scanEnvelope(msg)
	if e.id == nil || e.method == nil {
		return dst
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, e.id...)
	switch string(e.method) {
	case `"tools/call"`:
		dst = append(append(dst, `,"result":`...), c.call...)
	case `"tools/list"`:
		dst = append(append(dst, `,"result":`...), c.list...)
	case `"ping"`:
		dst = append(dst, `,"result":{}`...)
	case `"initialize"`:
		dst = fmt.Appendf(dst, `,"result":{"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true}},`+
			`"serverInfo":{"name":"bench-upstream","version":"1"}}`, requestedVersion(msg))
	default:
		dst = append(dst, `,"error":{"code":-32601,"message":"Method not found"}`...)
	}
	return append(dst, '}')
}

// isInitialize reports whether msg opens a session.
func isInitialize(msg []byte) bool {
	return bytes.Contains(msg, []byte(`"initialize"`)) && string(scanEnvelope(msg).method) == `"initialize"`
}

// requestedVersion is the legacy revision that an initialize asks for, or the
// newest one where it asks for something else.
func requestedVersion(msg []byte) string {
	for _, v := range []string{"2024-11-05", "2025-03-26", "2025-06-18"} {
		if bytes.Contains(msg, []byte(v)) {
			return v
		}
	}
	return latestLegacy
}
