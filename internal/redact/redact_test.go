package redact

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"testing"
)

func TestOf(t *testing.T) {
	for _, x := range []struct {
		pointers []string
		text     string
		want     string // "": nothing
	}{
		{nil, `{"a": 1}`, `{"a": 1}`},
		{[]string{"/a"}, `{"a": {"x":[1]}, "b":"a"}`, `{"a":"[redacted]","b":"a"}`},
		{[]string{"/a"}, `{"\u0061": 1}`, `{"a":"[redacted]"}`},
		{[]string{"/a/b", "/a/c"}, `{"a":{"b":1,"c":2,"d":{"b":3}},"b":4}`, `{"a":{"b":"[redacted]","c":"[redacted]","d":{"b":3}},"b":4}`},
		{[]string{"/a/1"}, `{"a":["x",{"y":1},"z"]}`, `{"a":["x","[redacted]","z"]}`},
		{[]string{"/a/1"}, `{"a":{"1":"x","2":"y"}}`, `{"a":{"1":"[redacted]","2":"y"}}`},
		{[]string{"/a/b", "/a"}, `{"a":{"c":1}}`, `{"a":"[redacted]"}`},
		{[]string{"/a/b"}, `{"a":"text"}`, `{"a":"text"}`},
		{[]string{"/a~1b/~0"}, `{"a/b":{"~":1,"x":2}}`, `{"a/b":{"~":"[redacted]","x":2}}`},
		{[]string{""}, `{"a":1}`, `"[redacted]"`},
		{[]string{"/a"}, `{}`, `{}`},
		{[]string{"/a"}, `{"a":1,"a":"secret"}`, ""},
		{[]string{"/a"}, `{"b":"` + "\xff" + `"}`, ""},
		{[]string{"/a"}, `{"a":1`, ""},
		{[]string{"/a"}, `{"a":1}{"a":"secret"}`, ""},
		{[]string{"/a"}, ``, ""},
	} {
		r, err := New(x.pointers)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Of([]byte(x.text))
		if taken := x.want == "" || string(got) != x.text; r.Takes([]byte(x.text)) != taken {
			t.Errorf("%v takes something out of %s: %v", x.pointers, x.text, !taken)
		}
		if string(got) != x.want || (err != nil) != (x.want == "") {
			t.Errorf("%v of %s: %s, %v; not %s", x.pointers, x.text, got, err, x.want)
		}
	}
}

func TestPointersThatAreNone(t *testing.T) {
	for _, p := range []string{"a", "/a~2", "#/a"} {
		if _, err := New([]string{p}); err == nil {
			t.Errorf("%q is taken", p)
		}
	}
}

// FuzzOf redacts any text: what is taken out is nowhere in what is left, which is JSON.
func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"a":{"b":["SECRET"]},"c":[{"a":1},2]}`))
	f.Add([]byte(`[1,{"a":"SECRET"}]`))
	r, err := New([]string{"/a", "/c/0/a", "/1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := r.Of(text)
		if err != nil {
			return
		}
		if !jsontext.Value(got).IsValid() || !jsontext.Value(text).IsValid() {
			t.Fatalf("%q has become %q", text, got)
		}
		var members map[string]jsontext.Value
		if json.Unmarshal(got, &members) == nil && members["a"] != nil && string(members["a"]) != `"`+Placeholder+`"` {
			t.Fatalf("%q has become %q", text, got)
		}
		if again, err := r.Of(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q, and again %q, %v", got, again, err)
		}
	})
}
