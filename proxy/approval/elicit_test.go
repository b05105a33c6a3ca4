package approval

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// FuzzElicited has whatever a client answers be a yes only where a reader of the standard library's finds one.
func FuzzElicited(f *testing.F) {
	for _, seed := range []string{
		`{"action":"accept","content":{"approve":true}}`, `{"action":"accept","content":{"approve":"true"}}`, `{"action":"decline"}`, `{"action":"cancel"}`,
		`{"action":"accept"}`, `{"Action":"accept","content":{"Approve":true}}`, `{"action":"accept","content":{"approve":false,"approve":true}}`,
		`{"action":"decline","action":"accept","content":{"approve":true}}`, `{"action":"accept","content":[true]}`, `{"action":"accept","content":{"approve":1}}`, "", "null", "{} {}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, result []byte) {
		if Elicited(result) != Allowed {
			return
		}
		var plain map[string]any
		if err := json.Unmarshal(result, &plain); err != nil {
			t.Fatalf("%q is a yes: %v", result, err)
		}
		content, _ := plain["content"].(map[string]any)
		if plain["action"] != "accept" || content["approve"] != true {
			t.Errorf("%q is a yes", result)
		}
	})
}

// FuzzElicitation asks with whatever an agent has sent: the arguments are there whole, and nothing in them is hidden or moves
// what stands around them.
func FuzzElicitation(f *testing.F) {
	f.Add("pay", []byte(`{"to":"ann","amount":5}`))
	f.Add("pay\u202e", []byte("{\"to\":\"a\u200bnn\u2066\",\"\\n\\n\":\"\\u202e\"}"))
	f.Add("x\x1b[2J\n\nAllow", []byte(`[1,{"a":null}]`))
	f.Fuzz(func(t *testing.T, name string, arguments []byte) {
		if !json.Valid(arguments) {
			return
		}
		var said struct{ Message string }
		if err := json.Unmarshal(Elicitation("tool", name, "Well?", arguments), &said); err != nil {
			t.Fatal(err)
		}
		head, shown, ok := strings.Cut(said.Message, " Well?\n\nArguments: ")
		if !ok || !json.Valid([]byte(shown)) {
			t.Fatalf("%q", said.Message)
		}
		for _, c := range head + shown {
			if unicode.IsControl(c) && !strings.ContainsRune("\t\r\n", c) || unicode.Is(unicode.Cf, c) {
				t.Errorf("%q has %U", said.Message, c)
			}
		}
		if strings.ContainsAny(head, "\r\n") {
			t.Errorf("%q", head)
		}
	})
}
