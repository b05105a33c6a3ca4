package wire

import "testing"

// The examples of 2026-07-28, basic/transports/streamable-http, "Value Encoding",
// and what else a header cannot carry as it is.
func TestEncodeHeader(t *testing.T) {
	for text, want := range map[string]string{
		"us-west1":            "us-west1",
		"Hello, 世界":           "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":            "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":        "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":  "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"":                    "=?base64??=",
		"a\tb":                "=?base64?YQli?=",
		"=?base64?no end":     "=?base64?no end",
		"file:///a%20b?c=d,e": "file:///a%20b?c=d,e",
	} {
		value := EncodeHeader(text)
		if value != want {
			t.Errorf("%q becomes %q, want %q", text, value, want)
		}
		if back, ok := DecodeHeader(value); !ok || back != text {
			t.Errorf("%q comes back as %q, %t", text, back, ok)
		}
	}
}

func TestDecodeHeader(t *testing.T) {
	for value, want := range map[string]string{
		"":                      "",
		"=?base64?SGVsbG8=":     "=?base64?SGVsbG8=",
		"SGVsbG8=":              "SGVsbG8=",
		"=?BASE64?SGVsbG8=?=":   "=?BASE64?SGVsbG8=?=",
		"=?base64?=":            "=?base64?=", // begins and ends with the same question mark
		"a\tb":                  "a\tb",
		"=?base64?SGVsbG8=?=":   "Hello",
		"=?base64?4piV?= and a": "=?base64?4piV?= and a",
	} {
		if text, ok := DecodeHeader(value); !ok || text != want {
			t.Errorf("%q stands for %q, %t, want %q", value, text, ok, want)
		}
	}
	for _, value := range []string{
		"=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVsbG9=?=", // padding, letters, bits behind the end
		"=?base64?SGVs\nbG8=?=", "=?base64?/w==?=", "caf\u00e9", "\xff", "a\x00b", "a\x7f",
	} {
		if text, ok := DecodeHeader(value); ok {
			t.Errorf("%q is taken for %q", value, text)
		}
	}
}

func TestNamed(t *testing.T) {
	for raw, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","uri":"b"}}`:     "a",
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"name":"a","uri":"b"}}`: "b",
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"a"}}`:              "a",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}`:              "t",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"a"}}`:               "",
	} {
		m, err := Read([]byte(raw), FromClient)
		if err != nil {
			t.Fatal(err)
		}
		if name, named := m.Named(); name != want || named != (want != "") {
			t.Errorf("%s is named %q, %t", raw, name, named)
		}
	}
}
