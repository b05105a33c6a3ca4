package wire

import (
	"strings"
	"testing"
)

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

const headedSchema = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"region"},
	"limit":{"type":"integer","x-mcp-header":"Limit"},
	"where":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}}},
	"x-mcp-header":{"type":"string","default":{"x-mcp-header":"no schema"}}}}`

func TestParamHeaders(t *testing.T) {
	found, err := ParamHeaders([]byte(headedSchema))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range found {
		got = append(got, h.Name+"="+strings.Join(h.Path, "."))
	}
	if want := "Mcp-Param-Region=region Mcp-Param-Limit=limit Mcp-Param-Dry-Run=where.dry"; strings.Join(got, " ") != want {
		t.Errorf("found %v, want %s", got, want)
	}
	if none, err := ParamHeaders([]byte(`{"type":"object","properties":{"a":{"description":"\u0061"}}}`)); none != nil || err != nil {
		t.Errorf("found %v, %v in a schema without any", none, err)
	}
}

// An annotation that clients must not follow makes the whole tool invalid.
func TestParamHeadersInvalid(t *testing.T) {
	for name, schema := range map[string]string{
		"empty":        `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`,
		"no text":      `{"properties":{"a":{"type":"string","x-mcp-header":7}}}`,
		"a space":      `{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`,
		"a line":       `{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nHost: b"}}}`,
		"a number":     `{"properties":{"a":{"type":"number","x-mcp-header":"a"}}}`,
		"no type":      `{"properties":{"a":{"x-mcp-header":"a"}}}`,
		"twice":        `{"properties":{"a":{"type":"string","x-mcp-header":"a"},"b":{"type":"string","x-mcp-header":"A"}}}`,
		"the root":     `{"type":"string","x-mcp-header":"a"}`,
		"items":        `{"properties":{"a":{"items":{"type":"string","x-mcp-header":"a"}}}}`,
		"a branch":     `{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"a"}}}]}`,
		"a definition": `{"$defs":{"a":{"type":"string","x-mcp-header":"a"}}}`,
		"a pattern":    `{"patternProperties":{".*":{"type":"string","x-mcp-header":"a"}}}`,
		"in escapes":   `{"properties":{"a":{"type":"array","items":{"x\u002dmcp-header":"a"}}}}`,
	} {
		if found, err := ParamHeaders([]byte(schema)); err == nil {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

func TestParamFault(t *testing.T) {
	headers, err := ParamHeaders([]byte(headedSchema))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, sent, want string }{
		{`{}`, "", ""},
		{`{"region":null,"where":7}`, "", ""},
		{`{"region":"eu","limit":42,"where":{"dry":true}}`, "Region=eu Limit=42 Dry-Run=true", ""},
		{`{"limit":42}`, "Limit=42.0", ""},
		{`{"limit":42.0}`, "Limit=42", ""},
		{`{"region":"é"}`, "Region==?base64?w6k=?=", ""},
		{`{"region":""}`, "Region=", ""},
		{`{"region":["eu"]}`, "", ""}, // no text: what is wrong with it, the server says
		{`{"region":"eu"}`, "", "Mcp-Param-Region is missing, which repeats the argument region"},
		{`{"region":"eu"}`, "Region=us", "Mcp-Param-Region does not repeat the argument region"},
		{`{"region":"eu"}`, "Region=EU", "Mcp-Param-Region does not repeat the argument region"},
		{`{"region":"eu"}`, "Region=eu Region=us", "there is more than one Mcp-Param-Region"},
		{`{"region":"é"}`, "Region=é", "Mcp-Param-Region is neither visible ASCII nor Base64 as it should be"},
		{`{}`, "Region=eu", "Mcp-Param-Region does not repeat the argument region"},
		{`{"limit":42}`, "Limit=43", "Mcp-Param-Limit does not repeat the argument limit"},
		{`{"limit":42}`, "Limit=4.2e1", "Mcp-Param-Limit does not repeat the argument limit"},
		{`{"limit":42}`, "Limit=0x2a", "Mcp-Param-Limit does not repeat the argument limit"},
		{`{"limit":9007199254740993}`, "Limit=9007199254740992", "Mcp-Param-Limit does not repeat the argument limit"},
		{`{"limit":"42"}`, "Limit=42.0", "Mcp-Param-Limit does not repeat the argument limit"},
		{`{"where":{"dry":true}}`, "Dry-Run=false", "Mcp-Param-Dry-Run does not repeat the argument where.dry"},
	} {
		values := func(name string) (all []string) {
			for item := range strings.FieldsSeq(c.sent) {
				if key, value, _ := strings.Cut(item, "="); HeaderParam+key == name {
					all = append(all, value)
				}
			}
			return all
		}
		if got := ParamFault(headers, []byte(c.arguments), values); got != c.want {
			t.Errorf("%s with %q: %q, want %q", c.arguments, c.sent, got, c.want)
		}
	}
}

func TestParamValue(t *testing.T) {
	headers, err := ParamHeaders([]byte(headedSchema))
	if err != nil {
		t.Fatal(err)
	}
	arguments := []byte(`{"region":" é","limit":4.2e1,"where":{"dry":false}}`)
	for i, want := range []string{"=?base64?IMOp?=", "42", "false"} {
		if value, ok := headers[i].Value(arguments); value != want || !ok {
			t.Errorf("%s: %q, %t, want %q", headers[i].Name, value, ok, want)
		}
	}
	for i, raw := range []string{`{"region":{}}`, `{"limit":0.5}`, `{"where":{"dry":null}}`} {
		if value, ok := headers[i].Value([]byte(raw)); ok {
			t.Errorf("%s of %s: %q", headers[i].Name, raw, value)
		}
	}
}
