package wire

import (
	"bytes"
	jsonv1 "encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var seeds = []string{
	call200,
	`{"jsonrpc":"2.0","id":"\u0061","method":"tools/call","params":{"name":"a\\\"","arguments":{"name":"b"}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a","URI":"x"}}`,
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"param\u017f\":{},\"params\":{\"name\":\"a\"}}",
	`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}}}`,
	`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"\ud83d\ude00","_meta":{"progressToken":1e400}}}`,
	`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1","reason":"\n"}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"isError":true,"_meta":{"a":1}}}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`,
	`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
	"\ufeff{}", `{"name\u0000":1}`, ` { "jsonrpc" : "2.0" , "id" : -0 , "method" : "ping" } `,
}

// readings is what other JSON readers make of the routed fields. The tags are
// read by encoding/json in any case of letters.
type readings struct {
	Method string `json:"method"`
	Params struct {
		Name any `json:"name"`
		URI  any `json:"uri"`
		Ref  any `json:"ref"`
		Task any `json:"task"`
	} `json:"params"`
}

// FuzzRead: no bytes make Read panic, and what it accepts of a client is
// understood alike by readers of other habits: encoding/json (last wins, any
// case), a map (last wins), and jsontext. So the bytes forwarded, read by
// another parser, name the tool that was decided on.
func FuzzRead(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if m, err := Read(raw, FromUpstream); err == nil {
			spansHold(t, m)
		}
		m, err := Read(raw, FromClient)
		if err != nil {
			return
		}
		spansHold(t, m)
		if m.Kind != Request && m.Kind != Notification {
			return
		}
		caseless(t, m)
		lastWins(t, m)
		tokens(t, m)
	})
}

// FuzzArguments: what stands at a path of arguments is what encoding/json finds there, which
// takes the last of several and any case, unless it is said to be unclear.
func FuzzArguments(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":{"b":"c"}}`, "a/b"}, {`{"a":{"B":1,"b":2}}`, "a/b"}, {`{"a":[{"b":1}]}`, "a/0/b"}, {`{"a":1e2,"A":{"b":null}}`, "a/b"}, {`[]`, "a"}, {`{"a":-0}`, "a"},
		{`{"\u0061":{"b\u0000":1,"b":"\ud800"}}`, "a/b"}, {`{"a":true}`, "a"}, {`{"ſ":1,"s":2}`, "s"}, {`{"a":{"a":{"a":false}}}`, "a/a/a"},
	} {
		f.Add([]byte(seed[0]), seed[1])
	}
	f.Fuzz(func(t *testing.T, raw []byte, path string) {
		m, err := Read(slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":`), raw, []byte(`}}`)), FromClient)
		if err != nil || !utf8.ValidString(path) || m.P.Name != "n" {
			return
		}
		arguments, names := m.Bytes(m.P.Arguments), strings.Split(path, "/")
		value, ok, unclear := (*Arguments)(m).Scalar(names)
		if unclear {
			return
		}
		for _, folded := range []bool{false, true} {
			at, found := jsonv1.RawMessage(arguments), true
			for _, name := range names {
				at, found = memberOf(at, name, folded)
				if !found {
					break
				}
			}
			var text string
			switch isText := found && at[0] == '"' && jsonv1.Unmarshal(at, &text) == nil; {
			case !found || at[0] == '{' || at[0] == '[':
				if ok {
					t.Fatalf("%q of %s: %v, where encoding/json finds no scalar", names, arguments, value)
				}
			case !ok, isText == value.Literal, isText && text != value.Text, !isText && string(at) != value.Text:
				t.Fatalf("%q of %s: %v, %v; encoding/json finds %s", names, arguments, value, ok, at)
			}
		}
	})
}

// memberOf returns a member of an object as encoding/json reads it into a map, or, folded,
// into a struct: the last, in any case.
func memberOf(object jsonv1.RawMessage, name string, folded bool) (value jsonv1.RawMessage, found bool) {
	dec := jsonv1.NewDecoder(bytes.NewReader(object))
	if open, err := dec.Token(); err != nil || open != jsonv1.Delim('{') {
		return nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		var next jsonv1.RawMessage
		if err != nil || dec.Decode(&next) != nil {
			return nil, false
		}
		if key == name || folded && strings.EqualFold(key.(string), name) {
			value, found = next, true
		}
	}
	return value, found
}

// FuzzPlain: what the walk takes for JSON by itself, jsontext takes for JSON too,
// and the message read is the same.
func FuzzPlain(f *testing.F) {
	for _, seed := range append(seeds, plainSeeds...) {
		f.Add([]byte(seed))
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":` + seed + `}}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, from := range []Side{FromClient, FromUpstream} {
			m, err := Read(raw, from)
			checked, errChecked := Limits{}.readChecked(raw, from)
			if !reflect.DeepEqual(m, checked) || !reflect.DeepEqual(err, errChecked) {
				t.Fatalf("from %d Read gives\n%+v, %v, with jsontext first\n%+v, %v", from, m, err, checked, errChecked)
			}
		}
	})
}

// plainSeeds are values at the border of what the walk knows.
var plainSeeds = []string{
	`0`, `-0`, `00`, `01`, `-`, `1.`, `1.5e+9`, `1e`, `1E-0`, `-1.0e5`, `.5`, `+1`, `0x1`, `1e400`, `NaN`,
	`true`, `falsey`, `nul`, `null`, `"\u00e9"`, `"\ud83d\ude00"`, `"\ud800"`, `"\u12"`, `"\x"`, `"\/\b\f\n\r\t\""`, "\"\t\"", "\"\x7f\"", "\"é\"", "\"\xff\"", "\"\xc0\x80\"",
	`[]`, `[,]`, `[1,]`, `[1 2]`, `{}`, `{,}`, `{"a":1,}`, `{"a" 1}`, `{"a":1 "b":2}`, `{a:1}`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`,
	`{"a":1,"\u0061":2}`, `{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9}`, `{"a":1}}`, `]`, `"`, `"\`, `{"`, ` [ 1 , { "a" : [ ] } ] `,
	strings.Repeat("[", 40) + strings.Repeat("]", 40), "[1]\x00", "\x00",
}

// spansHold checks that every span is a JSON value within the message.
func spansHold(t *testing.T, m *Message) {
	for _, s := range []Span{m.ID, m.Params, m.Result, m.Error, m.P.NameAt, m.P.URIAt, m.P.Arguments, m.P.Meta, m.P.Task,
		m.P.MetaToken, m.P.ProgressToken, m.P.RequestID, m.R.Task, m.R.Meta, m.R.Content, m.R.NextCursorAt} {
		raw := m.Bytes(s)
		if raw == nil {
			continue
		}
		dec := jsontext.NewDecoder(bytes.NewBuffer(raw), lenient...)
		if v, err := dec.ReadValue(); err != nil || len(v) != len(raw) {
			t.Fatalf("span %v of %s is %s", s, m.Raw, raw)
		}
	}
}

func caseless(t *testing.T, m *Message) {
	var r readings
	if err := jsonv1.Unmarshal(m.Raw, &r); err != nil {
		if strings.Contains(err.Error(), "cannot unmarshal number") { // 1e400 under any
			return
		}
		t.Fatalf("encoding/json: %v", err)
	}
	if r.Method != m.Method || text(r.Params.Name) != m.P.Name || text(r.Params.URI) != m.P.URI {
		t.Fatalf("encoding/json reads %+v, Read %q %+v", r, m.Method, m.P)
	}
	if (r.Params.Task != nil) && !m.P.Task.Present() {
		t.Fatal("encoding/json sees a task")
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func lastWins(t *testing.T, m *Message) {
	var envelope, params map[string]jsonv1.RawMessage
	if err := jsonv1.Unmarshal(m.Raw, &envelope); err != nil {
		t.Fatalf("a map: %v", err)
	}
	if string(envelope["id"]) != string(m.Bytes(m.ID)) && m.ID.Present() {
		t.Fatalf("a map reads id %s, Read %s", envelope["id"], m.Bytes(m.ID))
	}
	_ = jsonv1.Unmarshal(envelope["params"], &params)
	for name, at := range map[string]Span{"name": m.P.NameAt, "uri": m.P.URIAt, "arguments": m.P.Arguments, "task": m.P.Task, "_meta": m.P.Meta} {
		if string(params[name]) != string(m.Bytes(at)) {
			t.Fatalf("a map reads %s as %s, Read %s", name, params[name], m.Bytes(at))
		}
	}
}

func tokens(t *testing.T, m *Message) {
	var r readings
	err := jsonv2.Unmarshal(m.Raw, &r)
	if err != nil && strings.Contains(err.Error(), "number") {
		return
	}
	if err != nil || r.Method != m.Method || text(r.Params.Name) != m.P.Name || text(r.Params.URI) != m.P.URI {
		t.Fatalf("json/v2 reads %+v, %v; Read %q %+v", r, err, m.Method, m.P)
	}
}

// FuzzForwarded: the bytes that go upstream, with the id and the progress token
// replaced, still name what was decided on, and nothing else has changed.
func FuzzForwarded(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Read(raw, FromClient)
		if err != nil || m.Kind != Request {
			return
		}
		edits := []Edit{{At: m.ID, With: []byte("424242")}}
		if m.P.MetaToken.Present() {
			edits = append(edits, Edit{At: m.P.MetaToken, With: []byte("424242")})
			if edits[1].At.Start < edits[0].At.Start {
				edits[0], edits[1] = edits[1], edits[0]
			}
		}
		forwarded, err := Read(OneLine(Splice(m.Raw, edits...)), FromClient)
		if err != nil {
			t.Fatalf("forwarded as %s: %v", Splice(m.Raw, edits...), err)
		}
		if forwarded.Method != m.Method || forwarded.P.Name != m.P.Name || forwarded.P.URI != m.P.URI ||
			string(OneLine(m.Bytes(m.P.Arguments))) != string(forwarded.Bytes(forwarded.P.Arguments)) {
			t.Fatalf("decided on %+v, forwarded %+v", m.P, forwarded.P)
		}
		caseless(t, forwarded)
		lastWins(t, forwarded)
	})
}

// FuzzList: what is shown of a list has the items that it was made of, under
// the names that other readers read, and nothing beside them.
func FuzzList(f *testing.F) {
	for _, seed := range []string{
		`{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"x"}`, `{"nextCursor":"x","tools":[]}`, `{"tools":[],"Tools":[{}]}`,
		`{ "a" : [ ] , "tools" : [ 1 , {"name":"a","Name":"b"} ] , "nextCursor" : null }`, `{"tool\u0073":[{"n\u0061me":"\ud800"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, result []byte) {
		m, err := Read(ResultAnswer([]byte("1"), result), FromUpstream)
		if err != nil || m.Kind != Result {
			return
		}
		l, err := NewList(Tools, []*Message{m})
		if err != nil {
			return
		}
		var shown struct {
			Tools      []jsonv1.RawMessage
			NextCursor any
		}
		out := l.Result(nil)
		if err := jsonv1.Unmarshal(out, &shown); err != nil || len(shown.Tools) > 0 || shown.NextCursor != nil {
			t.Fatalf("%s shows %s (%v)", result, out, err)
		}
		for _, item := range l.Items {
			var named struct{ Name *string }
			if err := jsonv1.Unmarshal(item.Raw, &named); err != nil || named.Name == nil || *named.Name != item.Name {
				t.Fatalf("%s is named %q", item.Raw, item.Name)
			}
		}
	})
}

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{`[{"a":1},{"b":2}]`, `[ ]`, `[1]]`, `[[],"]"]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		members, err := Split(raw)
		if err != nil {
			return
		}
		var want []jsonv1.RawMessage
		if jsonv1.Unmarshal(raw, &want) == nil && len(want) != len(members) {
			t.Fatalf("%d members, encoding/json has %d", len(members), len(want))
		}
		for _, member := range members {
			_, _ = Read(member, FromClient)
		}
	})
}
