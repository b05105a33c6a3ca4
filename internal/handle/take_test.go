package handle_test

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func read(t *testing.T, raw string) *wire.Message {
	t.Helper()
	m, err := wire.Read([]byte(raw), wire.FromClient)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func called(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
}

func TestTakeUndoesWhatAClientAdds(t *testing.T) {
	for _, x := range []struct{ params, want, run string }{
		{`{"name":"t","arguments":{"fsm_run":"r1"}}`, `{"name":"t","arguments":{}}`, "r1"},
		{`{"name":"t","arguments":{"fsm_run":"r1","a":{"fsm_run":2}}}`, `{"name":"t","arguments":{"a":{"fsm_run":2}}}`, "r1"},
		{`{"arguments":{"a":1 , "fsm_run" : "r1" },"name":"t"}`, `{"arguments":{"a":1  },"name":"t"}`, "r1"},
		{`{"name":"t","arguments":{"a":1,"f\u0073m_run":"r\u0031","b":2}}`, `{"name":"t","arguments":{"a":1,"b":2}}`, "r1"},
		{`{"name":"t","_meta":{"fsm-proxy/run":"r1"}}`, `{"name":"t","_meta":{}}`, "r1"},
		{`{"_meta":{"a":1,"fsm-proxy/run":"r1"},"name":"t","arguments":{"fsm_run":"r1"}}`, `{"_meta":{"a":1},"name":"t","arguments":{}}`, "r1"},
		{`{"name":"t","arguments":{"fsm_run":"r1"},"_meta":{"fsm-proxy/run":"r1","x":"fsm_run"}}`, `{"name":"t","arguments":{},"_meta":{"x":"fsm_run"}}`, "r1"},
		{`{"name":"t","arguments":{"fsm_run":""}}`, `{"name":"t","arguments":{}}`, ""},
	} {
		m := read(t, called(x.params))
		taken, fault := handle.Take(m, "fsm_run")
		if fault != "" || !taken.Given || taken.Handle != x.run {
			t.Errorf("%s: %+v, %s", x.params, taken, fault)
			continue
		}
		if got := string(wire.Splice(m.Raw, taken.Edits...)); got != called(x.want) {
			t.Errorf("%s\n got %s\nwant %s", x.params, got, called(x.want))
		}
	}
}

func TestNothingIsTakenOfACallWithoutOne(t *testing.T) {
	for _, raw := range []string{
		called(`{"name":"t"}`), called(`{"name":"t","arguments":{}}`), called(`{"name":"t","arguments":null}`), called(`{"name":"t","arguments":["fsm_run"]}`),
		called(`{"name":"t","arguments":{"a":{"fsm_run":"r1"},"b":"fsm_run"}}`), called(`{"name":"t","fsm_run":"r1"}`),
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p","arguments":{"fsm_run":"r1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
	} {
		if taken, fault := handle.Take(read(t, raw), "fsm_run"); fault != "" || taken.Given || taken.Edits != nil {
			t.Errorf("%s: %+v, %s", raw, taken, fault)
		}
	}
}

func TestHandlesThatReadersDisagreeOnAreRefused(t *testing.T) {
	for _, x := range []struct{ params, want string }{
		{`{"name":"t","arguments":{"fsm_run":1}}`, "must be a string: the run's handle, as fsm_start_run returned it"},
		{`{"name":"t","arguments":{"fsm_run":null}}`, "must be a string"},
		{`{"name":"t","arguments":{"fsm_run":{"a":"r1"}}}`, "must be a string"},
		{`{"name":"t","arguments":{"FSM_RUN":"r1"}}`, "looks like \"fsm_run\", which says what run a call belongs to: leave it out, or write that"},
		{`{"name":"t","arguments":{"f\u017fm_run":"r2","fsm_run":"r1"}}`, "looks like"},
		{`{"name":"t","arguments":{"fsm_run":"r1","fsm_run\u0000":"r2"}}`, "looks like"},
		{`{"name":"t","_meta":{"fsm-proxy/run":1}}`, "must be a string"},
		{`{"name":"t","arguments":{"fsm_run":"r1"},"_meta":{"fsm-proxy/run":"r2"}}`, "two runs"},
		{`{"name":"t","arguments":{"fsm_run":"r1"},"_meta":{"fsm-proxy/run":""}}`, "two runs"},
	} {
		if taken, fault := handle.Take(read(t, called(x.params)), "fsm_run"); !strings.Contains(string(fault), x.want) || taken.Given {
			t.Errorf("%s: %+v, %q", x.params, taken, fault)
		}
	}
}

func TestAHandleGivenTwiceIsRefused(t *testing.T) {
	m, err := wire.Read([]byte(called(`{"name":"t","arguments":{"fsm_run":"r1","fsm_run":"r2"}}`)), wire.FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	if taken, fault := handle.Take(m, "fsm_run"); fault == "" {
		t.Errorf("%+v", taken)
	}
}

func TestAHandleInMetaIsTakenOfAnyRequest(t *testing.T) {
	m := read(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b","_meta":{"fsm-proxy/run":"r1","progressToken":1}}}`)
	taken, fault := handle.Take(m, "fsm_run")
	if fault != "" || taken.Handle != "r1" {
		t.Fatal(taken, fault)
	}
	const want = `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b","_meta":{"progressToken":1}}}`
	if got := string(wire.Splice(m.Raw, taken.Edits...)); got != want {
		t.Error(got)
	}
}

// FuzzTake: a handle that is put in front of a call's arguments, or behind them, is
// taken out again, and the bytes are those before.
func FuzzTake(f *testing.F) {
	for _, arguments := range []string{`{}`, `{ }`, `{"a":1}`, ` { "a" : [ "," , "fsm_run" ] , "b":{} } `, `{"a":"\\\",","fsm_runs":""}`} {
		f.Add(arguments, "r1", true)
		f.Add(arguments, "\"\u2028", false)
	}
	f.Fuzz(func(t *testing.T, arguments, run string, front bool) {
		m, err := wire.Read([]byte(called(`{"name":"t","arguments":`+arguments+`}`)), wire.FromClient)
		if err != nil || m.Raw[m.P.Arguments.Start] != '{' {
			return
		}
		if taken, fault := handle.Take(m, "fsm_run"); fault != "" || taken.Given {
			return // the client has put one in by itself
		}
		with, err := wire.Read(wire.Splice(m.Raw, put(m, run, front)), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		taken, fault := handle.Take(with, "fsm_run")
		if fault != "" || taken.Handle != string([]rune(run)) { // as AppendString writes what is no UTF-8
			t.Fatalf("%s: %+v, %s", with.Raw, taken, fault)
		}
		if got := wire.Splice(with.Raw, taken.Edits...); string(got) != string(m.Raw) {
			t.Fatalf("%s became %s", m.Raw, got)
		}
	})
}

// put puts a handle into a call.
func put(m *wire.Message, run string, front bool) wire.Edit {
	member := `"fsm_run":` + string(wire.AppendString(nil, run))
	inner := m.Raw[m.P.Arguments.Start+1 : m.P.Arguments.End-1]
	some := strings.TrimSpace(string(inner)) != ""
	at := m.P.Arguments.Start + 1
	switch {
	case front && some:
		member += ","
	case !front:
		at = m.P.Arguments.End - 1
		if some {
			member = "," + member
		}
	}
	return wire.Edit{At: wire.Span{Start: at, End: at}, With: []byte(member)}
}
