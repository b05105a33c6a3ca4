package bridge

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// FuzzEra checks that a request is JSON after its way from one era to the other, and
// differs by what it says of the era alone.
func FuzzEra(f *testing.F) {
	for _, params := range []string{
		`{}`, `{ }`, `{"_meta":{}}`, `{"_meta":{ "a" : 1 }, "name":"x"}`, `{"name":"x","inputResponses":{},"requestState":"s"}`,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","fsm-proxy/run":"r","progressToken":1}}`,
		`{"requestState":"s" , "\u005fmeta":{"fsm-proxy\/run":1,"b":"}"},"arguments":{"_meta":2}}`, `{"_meta":null}`, `{"_meta":[]}`,
		"{\n\t\"inputResponses\" : { } ,\n\"_meta\" : { \"io.modelcontextprotocol/clientInfo\":{},\"c\":[] }\n}", `[]`, `null`,
	} {
		f.Add(params)
	}
	f.Fuzz(func(t *testing.T, params string) {
		raw := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + "}"
		m, err := wire.Read([]byte(raw), wire.FromClient)
		if err != nil || !m.Params.Present() || m.Raw[m.Params.Start] != '{' {
			return
		}
		plain := withoutEra(m)
		differ(t, raw, string(plain))
		a := wire.Amend(m.Raw, m.Params)
		a.SetMeta(m.P.Meta, []string{wire.MetaVersion, wire.MetaCapabilities}, [][]byte{[]byte(`"v"`), []byte(`{}`)})
		differ(t, raw, string(a.Bytes()))
		again, err := wire.Read(plain, wire.FromClient)
		if err != nil || again.Era() == wire.Modern || again.P.RequestStateAt.Present() || again.P.InputResponses.Present() {
			t.Errorf("%s became %s (%v)", raw, plain, err)
		}
	})
}

// differ checks that two requests are the same but for what belongs to the eras.
func differ(t *testing.T, before, after string) {
	t.Helper()
	var b, a map[string]any
	if json.Unmarshal([]byte(before), &b) != nil {
		return // what one reader takes another does not, as with numbers
	}
	if err := json.Unmarshal([]byte(after), &a); err != nil {
		t.Fatalf("%s became %s: %v", before, after, err)
	}
	if eraless(b); !reflect.DeepEqual(b, eraless(a)) {
		t.Errorf("%s became %s", before, after)
	}
}

func eraless(m map[string]any) map[string]any {
	params := m["params"].(map[string]any)
	delete(params, "inputResponses")
	delete(params, "requestState")
	meta, _ := params["_meta"].(map[string]any)
	for _, name := range []string{wire.MetaVersion, wire.MetaCapabilities, wire.MetaClientInfo, wire.MetaLogLevel, wire.MetaRun} {
		delete(meta, name)
	}
	if len(meta) == 0 {
		delete(params, "_meta")
	}
	return m
}

// FuzzStatelessResult checks that a result is JSON with the members that a stateless client wants.
func FuzzStatelessResult(f *testing.F) {
	for _, result := range []string{`{}`, `{ }`, `{"_meta":null}`, `{"_meta":{ },"ttlMs":1}`, `{"resultType":"x","tools":[]}`, `{"\u0074tlMs":{},"cacheScope":"public"}`} {
		f.Add(result)
	}
	f.Fuzz(func(t *testing.T, result string) {
		raw := wire.ResultAnswer([]byte("1"), []byte(result))
		m, err := wire.Read(raw, wire.FromUpstream)
		if err != nil || m.Kind != wire.Result || m.Raw[m.Result.Start] != '{' {
			return
		}
		out := Stateless.Result(m.Bytes(m.Result), nil, "5")
		var got struct {
			Type  string `json:"resultType"`
			TTL   int    `json:"ttlMs"`
			Scope string `json:"cacheScope"`
		}
		if !json.Valid(m.Bytes(m.Result)) {
			return
		}
		if err := json.Unmarshal(out, &got); err != nil || got.Type != "complete" || got.TTL != 5 || got.Scope != "private" {
			t.Errorf("%s became %s (%v)", result, out, err)
		}
	})
}
