package wire

import (
	"bytes"
	jsonv1 "encoding/json"
	"encoding/json/jsontext"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	segmentio "github.com/segmentio/encoding/json"
)

// FuzzReaders: what Read takes for a message is one to strict jsontext, to encoding/json and to the parser that go-sdk's
// servers read with, and each finds the same values at all the places that a message's way depends on. What strict jsontext
// refuses, Read refuses, and nothing else for being no JSON.
func FuzzReaders(f *testing.F) {
	for _, seed := range append(append(seeds, plainSeeds...), routedSeeds...) {
		f.Add([]byte(seed))
		f.Add([]byte(`{"jsonrpc":"2.0","id":` + seed + `,"method":"x","params":{"_meta":{"progressToken":` + seed + `}}}`))
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":` + seed + `,"isError":` + seed + `,"resultType":` + seed + `}}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, from := range []Side{FromClient, FromUpstream} {
			m, err := Read(raw, from)
			fault := judged(raw, from)
			if err != nil {
				refusal := err.(*Error)
				if fault == nil && refusal.Code == CodeParse && !tooDeep(raw, MaxDepth) {
					t.Fatalf("from %d Read finds no JSON: %v; jsontext does", from, err)
				}
				continue
			}
			if fault != nil {
				t.Fatalf("from %d Read takes what jsontext refuses: %v", from, fault)
			}
			for name, r := range readers {
				if !r.valid(raw) {
					t.Fatalf("from %d Read takes what is no JSON to %s", from, name)
				}
				alike(t, name, r, m)
			}
		}
	})
}

// routedSeeds have something at each place.
var routedSeeds = []string{
	`{"jsonrpc":"2.0","id":"\u0031","method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p","uri":"u"},"cursor":"c","task":{},` +
		`"progressToken":1.0,"requestId":"1","level":"info","protocolVersion":"2025-11-25","inputResponses":{},"requestState":"s","notifications":[],` +
		`"taskId":"t","name":"\uD83D\uDE00","uri":"a\/b","arguments":[],"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/logLevel":"debug",` +
		`"io.modelcontextprotocol/subscriptionId":7,"fsm-proxy/run":"h"}}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"isError":null,"resultType":"task","task":{"a":1,"a":2},"_meta":{},"content":[{"x":"` + "\xff" + `"}],"nextCursor":"\ud800",` +
		`"inputRequests":{},"requestState":"s","ttlMs":1e3,"cacheScope":"private"}}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32042,"message":"m","data":{"elicitations":[]}}}`,
	`{"jsonrpc":"2.0","id":1,"error":{"code":2147483648}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32042.0}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":"-32042"}}`, `{"\u006asonrpc":"2.0","m\u0065thod":"a","params":{"n\u0061me":"b"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"x","params":{"ref":[{"name":"a"}],"_meta":[],"name":1,"uri":null}}`,
}

// judged is jsontext's verdict: strict as far as the side asks for it.
func judged(raw []byte, from Side) error {
	options := []jsontext.Options{strict}
	if from == FromUpstream {
		options = lenient
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), options...)
	if err := dec.SkipValue(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("something stands behind the value")
	}
	return nil
}

// jsonReader is another way to read JSON.
type jsonReader struct {
	valid   func([]byte) bool
	members func([]byte) (map[string][]byte, error)
	text    func([]byte) (string, error)
}

var readers = map[string]jsonReader{
	"jsontext": {
		valid:   func(raw []byte) bool { return judged(raw, FromUpstream) == nil },
		members: tokensOf,
		text: func(raw []byte) (string, error) {
			text, err := jsontext.AppendUnquote(nil, raw)
			if text != nil { // with U+FFFD for half a surrogate pair
				err = nil
			}
			return string(text), err
		},
	},
	"encoding/json": {jsonv1.Valid, membersBy(jsonv1.Unmarshal), textBy(jsonv1.Unmarshal)},
	"segmentio":     {segmentio.Valid, membersBy(segmentio.Unmarshal), textBy(segmentio.Unmarshal)},
}

// tokensOf reads an object token by token, where the last of two members counts.
func tokensOf(raw []byte) (map[string][]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), lenient...)
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		all[key] = bytes.Clone(value)
	}
	return all, nil
}

func membersBy(unmarshal func([]byte, any) error) func([]byte) (map[string][]byte, error) {
	return func(raw []byte) (map[string][]byte, error) {
		var all map[string]jsonv1.RawMessage
		err := unmarshal(raw, &all)
		plain := make(map[string][]byte, len(all))
		for name, value := range all {
			plain[name] = value
		}
		return plain, err
	}
}

func textBy(unmarshal func([]byte, any) error) func([]byte) (string, error) {
	return func(raw []byte) (text string, err error) {
		err = unmarshal(raw, &text)
		return text, err
	}
}

// place is what Read has found at a place of a message.
type place struct {
	path []string
	at   Span
	text *string // decoded; nil: it is left raw
	raw  bool    // at is known
}

func places(m *Message) []place {
	p, f := &m.P, &m.R
	rare, fields, modern := p.RareParams, f.RareFields, p.Modern
	if modern == nil {
		modern = new(ModernParams)
	}
	ref := rare.Ref
	if ref == nil {
		ref = new(Ref)
	}
	raw := func(at Span, path ...string) place { return place{path, at, nil, true} }
	both := func(at Span, s *string, path ...string) place { return place{path, at, s, true} }
	text := func(s *string, path ...string) place { return place{path, Span{}, s, false} }
	all := []place{
		raw(m.Params, "params"), raw(m.Result, "result"), raw(m.Error, "error"), text(&m.Method, "method"),
		both(p.NameAt, &p.Name, "params", "name"), both(p.URIAt, &p.URI, "params", "uri"), raw(p.Arguments, "params", "arguments"),
		raw(p.Meta, "params", "_meta"), raw(p.MetaToken, "params", "_meta", "progressToken"), raw(p.ProgressToken, "params", "progressToken"),
		both(modern.VersionAt, &modern.Version, "params", "_meta", MetaVersion), raw(modern.Capabilities, "params", "_meta", MetaCapabilities),
		raw(modern.ClientInfo, "params", "_meta", MetaClientInfo), both(modern.LogLevelAt, &modern.LogLevel, "params", "_meta", MetaLogLevel),
		raw(modern.Subscription, "params", "_meta", MetaSubscription), both(modern.RunAt, &modern.Run, "params", "_meta", MetaRun),
		text(&rare.Cursor, "params", "cursor"), raw(rare.Task, "params", "task"), raw(rare.RequestID, "params", "requestId"),
		text(&rare.Level, "params", "level"), text(&rare.ProtocolVersion, "params", "protocolVersion"),
		text(&ref.Type, "params", "ref", "type"), text(&ref.Name, "params", "ref", "name"), text(&ref.URI, "params", "ref", "uri"),
		raw(rare.InputResponses, "params", "inputResponses"), both(rare.RequestStateAt, &rare.RequestState, "params", "requestState"),
		raw(rare.Notifications, "params", "notifications"), both(rare.TaskIDAt, &rare.TaskID, "params", "taskId"),
		both(f.ResultTypeAt, &f.ResultType, "result", "resultType"), raw(f.Meta, "result", "_meta"), raw(f.Content, "result", "content"),
		raw(fields.Task, "result", "task"), both(fields.NextCursorAt, &fields.NextCursor, "result", "nextCursor"),
		raw(fields.InputRequests, "result", "inputRequests"), raw(fields.RequestState, "result", "requestState"),
		raw(fields.TTL, "result", "ttlMs"), raw(fields.CacheScope, "result", "cacheScope"),
	}
	if m.ID.Present() || m.Kind != Failure { // an error with the id null has none
		all = append(all, raw(m.ID, "id"))
	}
	return all
}

// alike fails the test where another reader finds something else at a place.
func alike(t *testing.T, name string, r jsonReader, m *Message) {
	t.Helper()
	objects := map[string]map[string][]byte{}
	find := func(path []string) []byte {
		value := m.Raw
		for i, key := range path {
			at := strings.Join(path[:i], "\x00")
			members, known := objects[at]
			if !known {
				var err error
				if members, err = r.members(value); err != nil {
					t.Fatalf("%s cannot read %s at %q: %v", name, value, path[:i], err)
				}
				objects[at] = members
			}
			if value = members[key]; len(value) == 0 || value[0] != '{' && i < len(path)-1 {
				return nil
			}
		}
		return value
	}
	for _, p := range places(m) {
		want := find(p.path)
		if p.raw && string(want) != string(m.Bytes(p.at)) {
			t.Fatalf("at %q %s finds %s, Read %s", p.path, name, want, m.Bytes(p.at))
		}
		if p.text == nil {
			continue
		}
		text := ""
		if len(want) > 0 && want[0] == '"' {
			var err error
			if text, err = r.text(want); err != nil {
				t.Fatalf("%s cannot read the text %s at %q: %v", name, want, p.path, err)
			}
		}
		if text != *p.text {
			t.Fatalf("at %q %s reads %q, Read %q", p.path, name, text, *p.text)
		}
	}
	if is := find([]string{"result", "isError"}); m.R.IsError != (is != nil && string(is) != "false" && string(is) != "null") {
		t.Fatalf("isError is %s to %s, %v to Read", is, name, m.R.IsError)
	}
	var code float64
	if jsonv1.Unmarshal(find([]string{"error", "code"}), &code) != nil || code != math.Trunc(code) || math.Abs(code) > 1<<31 {
		code = 0
	}
	if code != float64(m.ErrorCode) && !(code == 1<<31 && m.ErrorCode == 0) {
		t.Fatalf("the error's code is %v to others, %d to Read", code, m.ErrorCode)
	}
	kindAlike(t, name, find, m.Kind)
}

// kindAlike fails the test where the members that another reader finds make another kind of message.
func kindAlike(t *testing.T, name string, find func([]string) []byte, kind Kind) {
	t.Helper()
	has := func(key string) bool { return find([]string{key}) != nil }
	want := Result
	switch {
	case has("method") && has("id"):
		want = Request
	case has("method"):
		want = Notification
	case has("error"):
		want = Failure
	}
	if kind != want || want == Result && !has("result") {
		t.Fatalf("a %v to %s, a %v to Read", want, name, kind)
	}
}
