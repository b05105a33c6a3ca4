package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestSplice(t *testing.T) {
	raw := []byte(`{"id":1,"x":2}`)
	tests := []struct {
		edits []Edit
		want  string
	}{
		{nil, `{"id":1,"x":2}`},
		{[]Edit{{Span{6, 7}, []byte(`"long"`)}}, `{"id":"long","x":2}`},
		{[]Edit{{Span{1, 8}, nil}}, `{"x":2}`},
		{[]Edit{{Span{1, 1}, []byte(`"a":0,`)}, {Span{12, 13}, []byte(`3`)}}, `{"a":0,"id":1,"x":3}`},
		{[]Edit{{Span{13, 13}, []byte(`,"y":4`)}}, `{"id":1,"x":2,"y":4}`},
	}
	for _, tt := range tests {
		got := Splice(raw, tt.edits...)
		if string(got) != tt.want {
			t.Errorf("%v: got %s, want %s", tt.edits, got, tt.want)
		}
		if len(got) > 0 {
			got[0] = 'X'
		}
		if raw[0] != '{' {
			t.Fatal("Splice did not copy")
		}
	}
}

func TestOneLine(t *testing.T) {
	raw := []byte(`{"a":"\n"}`)
	if got := OneLine(raw); &got[0] != &raw[0] {
		t.Error("copied though nothing was to do")
	}
	many := []byte("{\r\n \"a\":\n1}\n")
	if got := string(OneLine(many)); got != `{   "a": 1} ` {
		t.Errorf("got %q", got)
	}
	if !bytes.Contains(many, []byte("\n")) {
		t.Error("changed in place")
	}
}

func TestSplit(t *testing.T) {
	tests := map[string]struct {
		raw  string
		want []string // nil: an error
		code int
	}{
		"two":            {"[ {\"a\":1} ,\n{\"b\":[2]} ]\n", []string{`{"a":1}`, `{"b":[2]}`}, 0},
		"a hidden batch": {`[[{"a":1}]]`, []string{`[{"a":1}]`}, 0}, // Read refuses the member
		"not objects":    {`[1,"x",null]`, []string{`1`, `"x"`, `null`}, 0},
		"empty":          {`[]`, nil, CodeInvalidRequest},
		"100":            {`[` + strings.Repeat(`1,`, 99) + `1]`, nil, 0},
		"101":            {`[` + strings.Repeat(`1,`, 100) + `1]`, nil, CodeInvalidRequest},
		"too early":      {`[{"a":1}`, nil, CodeParse},
		"trailing data":  {`[1]{}`, nil, CodeParse},
		"two batches":    {`[1][2]`, nil, CodeParse},
		"too deep":       {strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000), nil, CodeParse},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Split([]byte(tt.raw))
			switch fault, _ := err.(*Error); {
			case name == "100":
				if err != nil || len(got) != 100 {
					t.Errorf("%d members, %v", len(got), err)
				}
			case tt.want == nil:
				if fault == nil || fault.Code != tt.code || got != nil {
					t.Errorf("got %d members, %v", len(got), err)
				}
			case err != nil || len(got) != len(tt.want):
				t.Errorf("got %q, %v", got, err)
			default:
				for i, member := range got {
					if string(member) != tt.want[i] {
						t.Errorf("member %d: %s, want %s", i, member, tt.want[i])
					}
				}
			}
		})
	}
	for raw, want := range map[string]bool{" \n[": true, "{": false, "": false, "\ufeff[": false} {
		if IsBatch([]byte(raw)) != want {
			t.Errorf("IsBatch(%q) is %v", raw, !want)
		}
	}
}

// TestBuiltMessages reads back what the builders make.
func TestBuiltMessages(t *testing.T) {
	text := "quote \" back \\ line \n nul \x00 bad \xff"
	built := map[string][]byte{
		"result":       ResultAnswer([]byte(`"a"`), []byte(`{}`)),
		"error":        ErrorAnswer([]byte(`1`), CodeInvalidParams, text, []byte(`{"x":1}`)),
		"error alone":  ErrorAnswer(nil, CodeParse, text, nil),
		"request":      RequestMessage(-7, "ping", []byte(`{"a":1}`)),
		"notification": NotificationMessage(text, nil),
	}
	for name, raw := range built {
		if _, err := Read(raw, FromClient); err != nil {
			t.Errorf("%s: %s: %v", name, raw, err)
		}
	}
}

func TestWithoutTakesMembersWithOneCommaEach(t *testing.T) {
	for _, x := range []struct{ raw, want string }{
		{`{"x":1}`, `{}`},
		{`{ "x" : 1 }`, `{  }`},
		{`{"x":1,"a":2}`, `{"a":2}`},
		{`{"x":1 , "a":2}`, `{ "a":2}`},
		{`{"a":2,"x":1}`, `{"a":2}`},
		{`{"a":2 , "x":1 }`, `{"a":2  }`},
		{`{"a":2,"x":1,"b":3}`, `{"a":2,"b":3}`},
		{`{"x":1,"y":2}`, `{}`},
		{`{"x":1,"y":2,"a":3}`, `{"a":3}`},
		{`{"x":1,"a":3,"y":2}`, `{"a":3}`},
		{`{"a":3,"x":1,"y":2}`, `{"a":3}`},
		{`{"a":3,"x":1,"y":2,"b":4}`, `{"a":3,"b":4}`},
		{`{"a":"x,","\u0078":[1,{"y":2}],"b":4}`, `{"a":"x,","b":4}`},
		{`{"x":{"y":1},"x":2}`, `{}`},
		{`{}`, `{}`}, {`[]`, `[]`}, {`null`, `null`}, {`"x"`, `"x"`},
	} {
		raw := []byte(" \t" + x.raw + "]")
		edits := Without(raw, span(2, len(raw)-1), func(name string) bool { return name == "x" || name == "y" })
		if got := string(Splice(raw, edits...)); got != " \t"+x.want+"]" {
			t.Errorf("%s without x and y: %s, want %s", x.raw, got[2:len(got)-1], x.want)
		}
	}
}

// TestArguments: what reads alike is told, at every name of a path, and what is no scalar
// is nothing.
func TestArguments(t *testing.T) {
	m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{"mode":"pl\u0061n","Depth":"x","n":1e2,`+
		`"no":null,"yes":true,"list":[{"a":"x"}],"in":{"mode":"deep","Alike":"x","alike":"y","in":{"n":-0},"list":["a"],"dotted.name":"d"},`+
		`"In\u0000":{},"twin":{"a":"x"},"TWIN":{"a":"y"}}}}`), FromClient)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"mode": "{plan false} true false", "depth": "{ false} false true", "n": "{1e2 true} true false", "none": "{ false} false false",
		"no": "{null true} true false", "yes": "{true true} true false", "list": "{ false} false false", "list/a": "{ false} false false",
		"list/0": "{ false} false false", "in": "{ false} false true", "in/mode": "{deep false} true true", "in/alike": "{y false} true true",
		"in/in/n": "{-0 true} true true", "in/dotted.name": "{d false} true true", "in.mode": "{ false} false false", "mode/mode": "{ false} false false",
		"twin/a": "{x false} true true", "n/n": "{ false} false false", "no/no": "{ false} false false",
	} {
		value, ok, unclear := (*Arguments)(m).Scalar(strings.Split(path, "/"))
		if fmt.Sprint(value, " ", ok, " ", unclear) != want {
			t.Errorf("%s: got %v, %v, %v; want %s", path, value, ok, unclear, want)
		}
	}
}

// TestArgumentsTwice: a reader that takes the first and one that takes the last must not
// disagree, though a client's message with a name twice is refused before.
func TestArgumentsTwice(t *testing.T) {
	const raw = `{"in":{"a":"x","a":"y"},"b":1,"b":2}`
	a := &Arguments{Raw: []byte(raw)}
	a.P.Arguments = span(0, len(raw))
	for _, path := range [][]string{{"in", "a"}, {"b"}} {
		if _, _, unclear := a.Scalar(path); !unclear {
			t.Errorf("%v is clear", path)
		}
	}
	if _, _, unclear := a.Scalar([]string{"in"}); unclear {
		t.Error("in is not clear")
	}
}
