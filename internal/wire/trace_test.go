package wire

import (
	"bytes"
	"strings"
	"testing"
)

func TestTraceContext(t *testing.T) {
	call := func(params string) string { return `{"jsonrpc":"2.0","id":1,"method":"tools/call"` + params + `}` }
	ours := TraceContext{"00-aa-bb-01", "v=1"}
	for _, tt := range []struct {
		name, raw string
		theirs    TraceContext
		want      string
		bare      string // with a context that has no state
	}{
		{"no params", call(``), TraceContext{},
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","tracestate":"v=1"}}`), call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01"}}`)},
		{"empty params", call(`,"params":{ }`), TraceContext{},
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","tracestate":"v=1"} }`), call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01"} }`)},
		{"no _meta", call(`,"params":{"name":"x"}`), TraceContext{},
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","tracestate":"v=1"},"name":"x"}`), call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01"},"name":"x"}`)},
		{"empty _meta", call(`,"params":{"_meta":{}}`), TraceContext{},
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","tracestate":"v=1"}}`), call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01"}}`)},
		{"_meta of others", call(`,"params":{"_meta":{"baggage":"k=v","progressToken":7}}`), TraceContext{},
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","tracestate":"v=1","baggage":"k=v","progressToken":7}}`),
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","baggage":"k=v","progressToken":7}}`)},
		{"a context", call(`,"params":{"_meta":{"tracestate":"t","traceparent":"p"}}`), TraceContext{"p", "t"},
			call(`,"params":{"_meta":{"tracestate":"v=1","traceparent":"00-aa-bb-01"}}`), call(`,"params":{"_meta":{"tracestate":"","traceparent":"00-aa-bb-01"}}`)},
		{"a parent alone", call(`,"params":{"_meta":{"trace\u0070arent":"p"}}`), TraceContext{"p", ""},
			call(`,"params":{"_meta":{"tracestate":"v=1","trace\u0070arent":"00-aa-bb-01"}}`), call(`,"params":{"_meta":{"trace\u0070arent":"00-aa-bb-01"}}`)},
		{"no string", call(`,"params":{"_meta":{"traceparent":{"x":[1]}}}`), TraceContext{},
			call(`,"params":{"_meta":{"tracestate":"v=1","traceparent":"00-aa-bb-01"}}`), call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01"}}`)},
		{"no object", call(`,"params":{"_meta":null}`), TraceContext{}, call(`,"params":{"_meta":null}`), call(`,"params":{"_meta":null}`)},
		{"space behind", call(``) + " \n", TraceContext{},
			call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01","tracestate":"v=1"}}`) + " \n", call(`,"params":{"_meta":{"traceparent":"00-aa-bb-01"}}`) + " \n"},
	} {
		m, err := Read([]byte(tt.raw), FromClient)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := m.Trace(); got != tt.theirs {
			t.Errorf("%s: found %q", tt.name, got)
		}
		for context, want := range map[TraceContext]string{ours: tt.want, {Parent: ours.Parent}: tt.bare} {
			got := m.WithTrace(context)
			if string(got.Raw) != want {
				t.Errorf("%s: got\n%s, want\n%s", tt.name, got.Raw, want)
			}
			if !bytes.Equal(got.Bytes(got.ID), []byte("1")) || got.Method != m.Method || got.P.Name != m.P.Name ||
				!bytes.Equal(got.Bytes(got.P.MetaToken), m.Bytes(m.P.MetaToken)) {
				t.Errorf("%s: its routed members are others", tt.name)
			}
		}
		if string(m.Raw) != tt.raw {
			t.Errorf("%s: the message was changed", tt.name)
		}
	}
}

// A message that nests as deep as limits allow gets a context all the same.
func TestTraceContextOfDeepMessages(t *testing.T) {
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	m, err := Limits{Depth: 3000}.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":`+deep+`}}`), FromClient)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.WithTrace(TraceContext{Parent: "p"}).Trace().Parent; got != "p" {
		t.Errorf("got %q", got)
	}
}
