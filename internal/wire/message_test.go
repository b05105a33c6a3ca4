package wire

import (
	"strings"
	"testing"
)

func TestEra(t *testing.T) {
	for raw, want := range map[string]Era{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`:                                                                             Legacy,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":1}}}`:                                      Legacy,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`: Modern,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":7}}}`:           Modern,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28","_meta":{"fsm-proxy/run":"abc"}}}`:   Legacy,
	} {
		m, err := Read([]byte(raw), FromClient)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if m.Era() != want {
			t.Errorf("%s is of the %s era, want %s", raw, m.Era(), want)
		}
	}
}

func TestModernParams(t *testing.T) {
	m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","inputResponses":{"k":{}},"requestState":"s","_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},`+
		`"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"info","fsm-proxy/run":"r"}}}`), FromClient)
	if err != nil {
		t.Fatal(err)
	}
	p := m.P.Modern
	for got, want := range map[string]string{
		p.Version: ModernRevision, p.LogLevel: "info", p.Run: "r", m.P.RequestState: "s",
		string(m.Bytes(p.Capabilities)): `{"roots":{}}`, string(m.Bytes(p.ClientInfo)): `{"name":"c"}`,
		string(m.Bytes(m.P.InputResponses)): `{"k":{}}`, string(m.Bytes(p.RunAt)): `"r"`,
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestModernResult(t *testing.T) {
	m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{},"requestState":"x","ttlMs":5,"cacheScope":"private"}}`), FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	if m.R.ResultType != ResultInputRequired || string(m.Bytes(m.R.InputRequests)) != "{}" || string(m.Bytes(m.R.RequestState)) != `"x"` ||
		string(m.Bytes(m.R.TTL)) != "5" || string(m.Bytes(m.R.CacheScope)) != `"private"` {
		t.Errorf("%+v", m.R)
	}
}

// A second protocol version that another reader takes for the first is none of ours to guess.
func TestLookalikeOfAnEra(t *testing.T) {
	for _, meta := range []string{
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/protocolVersion":"2025-11-25"`,
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/ProtocolVersion":"2025-11-25"`,
		`"IO.modelcontextprotocol/protocolVersion":"2026-07-28"`,
		`"fsm-proxy/run":"a","FSM-proxy/run":"b"`,
	} {
		if _, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+meta+`}}}`), FromClient); err == nil {
			t.Errorf("%s is read", meta)
		}
	}
}

func TestMetaFault(t *testing.T) {
	both, sessions, alone := Spoken{Legacy: true, Modern: true}, Spoken{Legacy: true}, Spoken{Modern: true}
	version, capabilities := `"`+MetaVersion+`":"2026-07-28"`, `"`+MetaCapabilities+`":{}`
	for name, tt := range map[string]struct {
		spoken Spoken
		params string
		code   int
		data   string
	}{
		"nothing is wrong":         {both, `{"_meta":{` + version + `,` + capabilities + `}}`, 0, ""},
		"no params":                {both, `{}`, CodeInvalidParams, ""},
		"no version":               {both, `{"_meta":{` + capabilities + `}}`, CodeInvalidParams, ""},
		"a version that is none":   {both, `{"_meta":{"` + MetaVersion + `":1,` + capabilities + `}}`, CodeInvalidParams, ""},
		"no capabilities":          {both, `{"_meta":{` + version + `}}`, CodeInvalidParams, ""},
		"capabilities in an array": {both, `{"_meta":{` + version + `,"` + MetaCapabilities + `":[]}}`, CodeInvalidParams, ""},
		"an empty version": {both, `{"_meta":{"` + MetaVersion + `":""}}`, CodeUnsupportedVersion,
			`{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":""}`},
		"a version of tomorrow, and nothing else": {alone, `{"_meta":{"` + MetaVersion + `":"2027-01-01"}}`, CodeUnsupportedVersion,
			`{"supported":["2026-07-28"],"requested":"2027-01-01"}`},
		"where only sessions are spoken": {sessions, `{"_meta":{` + version + `}}`, CodeUnsupportedVersion,
			`{"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2026-07-28"}`},
		"a long version": {alone, `{"_meta":{"` + MetaVersion + `":"` + strings.Repeat("a", 1000) + `"}}`, CodeUnsupportedVersion,
			`{"supported":["2026-07-28"],"requested":"` + strings.Repeat("a", 128) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+tt.params+`}`), FromClient)
			if err != nil {
				t.Fatal(err)
			}
			f := tt.spoken.MetaFault(m)
			if f == nil {
				f = new(Fault)
			}
			if f.Code != tt.code || string(f.Data) != tt.data || (f.Text == "") != (f.Code == 0) {
				t.Errorf("%d %s %s", f.Code, f.Text, f.Data)
			}
		})
	}
}

func TestMember(t *testing.T) {
	for object, want := range map[string]string{
		`{"a":1,"b":{"a":2}}`: "1",
		`{"a":1, "a": [2] }`:  "[2]",
		`{"\u0061":null}`:     "null",
		`{"b":1}`:             "",
		`["a"]`:               "",
		``:                    "",
	} {
		if got := Member([]byte(object), "a"); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("of %s: %q, not %q", object, got, want)
		}
	}
}
