package main

import (
	"bytes"
	"fmt"
	"strings"
)

// toolCount is how many tools the canned upstream lists: echo and tool_001 to
// tool_099.
const toolCount = 100

// modernRevision is the protocol revision without one.
const modernRevision = "2026-07-28"

// latestLegacy is the newest protocol revision with an initialize handshake.
const latestLegacy = "2025-11-25"

// canned answers MCP requests of one era from prepared bytes. It is
// read-only after newCanned and safe for concurrent use.
type canned struct {
	call, list []byte
	modern     bool
}

// newCanned prepares an upstream whose echo answers with text.
func newCanned(text string, modern bool) *canned {
	kind := ""
	if modern {
		kind = `"resultType":"complete",`
	}
	return &canned{
		modern: modern,
		call:   fmt.Appendf(nil, `{%s"content":[{"type":"text","text":%q}]}`, kind, text),
		list:   toolList(kind),
	}
}

// cannedText is the text of n bytes that echo is called with and answers.
func cannedText(n int) string { return strings.Repeat("x", n) }

func toolList(kind string) []byte {
	var b bytes.Buffer
	b.WriteString("{" + kind + `"tools":[`)
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
	case `"server/discover"`:
		if !c.modern {
			dst = append(dst, `,"error":{"code":-32601,"message":"Method not found"}`...)
			break
		}
		dst = append(dst, `,"result":{"resultType":"complete","supportedVersions":["`+modernRevision+`"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`...)
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
