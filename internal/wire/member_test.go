package wire

import "testing"

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
