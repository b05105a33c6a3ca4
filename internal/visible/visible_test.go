package visible

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestJSON(t *testing.T) {
	for _, c := range []struct{ what, text, want string }{
		{"ASCII", `{"a":"b c"}`, `{"a":"b c"}`},
		{"line breaks between members", "{\n\t\"a\": 1\r\n}", "{\n\t\"a\": 1\r\n}"},
		{"letters and signs of other scripts", `"Grüße 東京 ناز é 👍 – €"`, `"Grüße 東京 ناز é 👍 – €"`},
		{"what is escaped already", `"\u202e\u0000"`, `"\u202e\u0000"`},
		{"right to left", "\"rm \u202etxt.exe\"", `"rm \u202etxt.exe"`},
		{"isolates", "\"\u2066a\u2069\"", `"\u2066a\u2069"`},
		{"no width", "\"a\u200bb\u200dc\ufeffd\u2060e\u00adf\"", `"a\u200bb\u200dc\ufeffd\u2060e\u00adf"`},
		{"delete and C1", "\"a\u007fb\u0085c\u009bd\"", `"a\u007fb\u0085c\u009bd"`},
		{"lines and paragraphs", "\"a\u2028b\u2029c\"", `"a\u2028b\u2029c"`},
		{"spaces that are none of ASCII", "\"a\u00a0b\u2003c\u3000d\"", `"a\u00a0b\u2003c\u3000d"`},
		{"letters without a form", "\"a\u3164b\u115fc\uffa0d\u2800e\"", `"a\u3164b\u115fc\uffa0d\u2800e"`},
		{"variation selectors", "\"a\ufe0fb\U000e0101c\"", `"a\ufe0fb\udb40\udd01c"`},
		{"tags", "\"a\U000e0041\U000e007f\"", `"a\udb40\udc41\udb40\udc7f"`},
		{"private use", "\"a\ue000\U000f0000\"", `"a\ue000\udb80\udc00"`},
		{"in a key", "{\"a\u200b\":1}", `{"a\u200b":1}`},
		{"a byte that is no UTF-8", "\"a\xff\"", `"a\ufffd"`},
	} {
		if got := string(JSON([]byte(c.text))); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// Every character: what is shown means what it meant, and what a terminal or a page may act on is never in it as it is.
func TestEveryCharacter(t *testing.T) {
	for r := rune(' '); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		quoted, err := json.Marshal(string(r))
		if err != nil {
			t.Fatal(err)
		}
		shown := JSON(quoted)
		var meant string
		if err := json.Unmarshal(shown, &meant); err != nil || meant != string(r) {
			t.Fatalf("%U is shown as %s: %v", r, shown, err)
		}
		if !strconv.IsPrint(r) && strings.ContainsRune(string(shown), r) {
			t.Fatalf("%U is shown as it is", r)
		}
	}
}
