package wire

import "testing"

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
