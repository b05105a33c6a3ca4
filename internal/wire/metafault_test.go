package wire

import (
	"strings"
	"testing"
)

func TestMetaFault(t *testing.T) {
	both, sessions, alone := Spoken{Legacy: true, Modern: true}, Spoken{Legacy: true}, Spoken{Modern: true}
	version, capabilities := `"`+MetaVersion+`":"2026-07-28"`, `"`+MetaCapabilities+`":{}`
	for name, tt := range map[string]struct {
		spoken Spoken
		params string
		code   int
		data   string
	}{
		"nothing is wrong":         {both, `{"_meta":{` + version + `,` + capabilities + `}}`, 0, ""},
		"no params":                {both, `{}`, CodeInvalidParams, ""},
		"no version":               {both, `{"_meta":{` + capabilities + `}}`, CodeInvalidParams, ""},
		"a version that is none":   {both, `{"_meta":{"` + MetaVersion + `":1,` + capabilities + `}}`, CodeInvalidParams, ""},
		"no capabilities":          {both, `{"_meta":{` + version + `}}`, CodeInvalidParams, ""},
		"capabilities in an array": {both, `{"_meta":{` + version + `,"` + MetaCapabilities + `":[]}}`, CodeInvalidParams, ""},
		"an empty version": {both, `{"_meta":{"` + MetaVersion + `":""}}`, CodeUnsupportedVersion,
			`{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":""}`},
		"a version of tomorrow, and nothing else": {alone, `{"_meta":{"` + MetaVersion + `":"2027-01-01"}}`, CodeUnsupportedVersion,
			`{"supported":["2026-07-28"],"requested":"2027-01-01"}`},
		"where only sessions are spoken": {sessions, `{"_meta":{` + version + `}}`, CodeUnsupportedVersion,
			`{"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2026-07-28"}`},
		"a long version": {alone, `{"_meta":{"` + MetaVersion + `":"` + strings.Repeat("a", 1000) + `"}}`, CodeUnsupportedVersion,
			`{"supported":["2026-07-28"],"requested":"` + strings.Repeat("a", 128) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+tt.params+`}`), FromClient)
			if err != nil {
				t.Fatal(err)
			}
			f := tt.spoken.MetaFault(m)
			if f == nil {
				f = new(Fault)
			}
			if f.Code != tt.code || string(f.Data) != tt.data || (f.Text == "") != (f.Code == 0) {
				t.Errorf("%d %s %s", f.Code, f.Text, f.Data)
			}
		})
	}
}
