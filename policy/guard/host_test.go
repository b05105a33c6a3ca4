package guard

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The host is what everybody reads; what some read otherwise is an error.
func TestHost(t *testing.T) {
	for text, want := range map[string]string{
		"https://example.com":                  "example.com",
		"http://Example.COM/a?b#c":             "example.com",
		"https://a.b-c.example:8443/x":         "a.b-c.example",
		"https://example.com?@evil.example":    "example.com",
		"https://example.com#@evil.example/":   "example.com",
		"https://example.com/..//evil.example": "example.com",
		"http://127.0.0.1:80/":                 "127.0.0.1",
		"http://localhost/":                    "localhost",
		"https://xn--bcher-kva.example/":       "xn--bcher-kva.example",
		"":                                     "",
		"example.com":                          "",
		"//example.com/":                       "",
		"HTTPS://example.com":                  "",
		"ftp://example.com":                    "",
		"https:example.com":                    "",
		"https:/example.com":                   "",
		"https:///example.com":                 "",
		" https://example.com":                 "",
		"https://":                             "",
		"https://a@example.com":                "",
		"https://example.com@evil.example":     "",
		"https://example.com:443@evil.example": "",
		`https://example.com\@evil.example`:    "",
		`https://example.com\.evil.example/`:   "",
		"https://example.com%2eevil.example":   "",
		"https://example.com /":                "",
		"https://exa\tmple.com/":               "",
		"https://example.com/\n":               "",
		"https://example.com.":                 "",
		"https://.example.com":                 "",
		"https://a..b":                         "",
		"https://-a.example":                   "",
		"https://a_b.example":                  "",
		"https://b\u00fccher.example":          "",
		"https://example\u3002com":             "",
		"https://\uff45xample.com":             "",
		"https://[::1]/":                       "",
		"http://2130706433/":                   "",
		"http://127.1/":                        "",
		"http://0x7f.0.0.1/":                   "",
		"http://0177.0.0.1/":                   "",
		"http://127.0.0.0x1/":                  "",
		"http://1.2.3.4.5/":                    "",
		"http://example.com:/":                 "",
		"http://example.com:0/":                "",
		"http://example.com:99999/":            "",
		"http://example.com:080/":              "",
		"http://example.com:80:80/":            "",
		"https://" + strings.Repeat("a", 64):   "",
		"https://example.com\xff":              "",
	} {
		if got, err := host(text); got != want || (err == nil) != (want != "") {
			t.Errorf("host(%q): %q, %v", text, got, err)
		}
	}
}

// Whatever host says of a text, Go's own reader of URLs says, too.
func TestHostAgainstURL(t *testing.T) {
	part := rapid.SampledFrom([]string{"http://", "https://", "a", "B", "example.com", ".", "-", "@", ":", "80", "/", "?", "#", "\\", "%2e", "[", "]", "127.0.0.1", "1", "0x1", " ", "\t", "\u00e9", "x--"})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "http://", "https://"}).Draw(t, "scheme") + strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "parts"), "")
		got, err := host(text)
		if err != nil {
			return
		}
		u, parsed := url.Parse(text)
		if parsed != nil {
			if i := strings.IndexAny(text[8:], "/?#"); i < 0 || !strings.Contains(text[8+i:], "%") {
				t.Fatalf("host(%q) is %q, and url.Parse says %v", text, got, parsed)
			}
			return
		}
		if u.User != nil || strings.ToLower(u.Hostname()) != got {
			t.Fatalf("host(%q) is %q, and url.Parse reads %q", text, got, u.Hostname())
		}
	})
}
