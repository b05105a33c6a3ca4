package wire

import "testing"

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
