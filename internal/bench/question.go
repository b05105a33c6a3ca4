package main

import (
	"fmt"
	"strconv"
)

// The ids of a load all have idDigits digits, so that a request's length never
// changes and the id is put in place.
const (
	idDigits = 10
	firstID  = 1_000_000_000
	idsEach  = 10_000_000 // a caller's own ids, used again from the first
)

// questionKind is what a load asks.
type questionKind int

const (
	askCall questionKind = iota // tools/call of echo
	askList                     // tools/list, toolCount tools
	askPing
)

func (k questionKind) String() string {
	return [...]string{"tools/call", "tools/list", "ping"}[k]
}

// question is a request with a place for its id, and what a right answer holds,
// near its end: a search through a whole list was a seventh of what it took.
type question struct {
	kind questionKind
	body []byte
	idAt int
	want []byte
}

func newQuestion(kind questionKind, text string, modern bool) question {
	const before = `{"jsonrpc":"2.0","id":`
	var params, want string
	switch kind {
	case askCall:
		params, want = fmt.Sprintf(`,"params":{"name":"echo","arguments":{"message":%q}%s}`, text, metaOf(modern, ",")), text
	case askList:
		want = fmt.Sprintf("tool_%03d", toolCount-1)
		if modern {
			params = `,"params":{` + metaOf(modern, "") + `}`
		}
	case askPing:
		want = `"result"`
	}
	return question{
		kind: kind,
		body: fmt.Appendf(nil, `%s%d,"method":%q%s}`, before, firstID, kind, params),
		idAt: len(before),
		want: []byte(want),
	}
}

// metaOf is what a modern request says of itself, behind a comma or not; empty for a
// legacy one.
func metaOf(modern bool, comma string) string {
	if !modern {
		return ""
	}
	return comma + `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernRevision + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"fsm-proxy-bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
}

// putID writes id over the digits at dst.
func putID(dst []byte, id int) { strconv.AppendInt(dst[:0], int64(id), 10) }

const (
	initializeRequest = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + latestLegacy +
		`","capabilities":{},"clientInfo":{"name":"fsm-proxy-bench","version":"1"}}}`
	initializedNote = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)
