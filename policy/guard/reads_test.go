package guard_test

import (
	"encoding/json/jsontext"
	"slices"
	"testing"
)

func TestReadsArgument(t *testing.T) {
	for _, x := range []struct {
		text, pointer string
		want          bool
	}{
		{`args.a == "x"`, "/a", true},
		{`args.a == "x"`, "/b", false},
		{`args.a.b == "x"`, "/a", true},
		{`args.a == "x"`, "/a/b", true},
		{`args.a.c == "x"`, "/a/b", false},
		{`args["a"].b == "x"`, "/a/b", true},
		{`args["a/b"] == "x"`, "/a~1b", true},
		{`args.a[1] == "x"`, "/a/1", true},
		{`args.a[0].b == "x"`, "/a/0", true},
		{`args.a[0].b == "x" || args.a["0"].c == "x"`, "/a/0/c", true},
		{`args.a[0].b == "x" || args.a["0"].c == "x"`, "/a/0/b", true},
		{`args.a[0].b == "x" || args.a["0"].c == "x"`, "/a/0/d", false},
		{`digest(args) == "x"`, "/a", true},
		{`"x" in texts(args)`, "/a/b/c", true},
		{`"x" in texts(args.b)`, "/a", false},
		{`args.a == "x"`, "", true},
		{`has(args.a)`, "/a", false},
		{`name == "x"`, "/a", false},
		{`name == "x"`, "", false},
	} {
		tokens := slices.Collect(jsontext.Pointer(x.pointer).Tokens())
		if got := compile(t, x.text).ReadsArgument(tokens); got != x.want {
			t.Errorf("%s reads %q: %t", x.text, x.pointer, got)
		}
	}
}
