package strictyaml

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestReadDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "24h": 24 * time.Hour, "1h1m1s": 3661 * time.Second,
		"90m": 90 * time.Minute, "1h5s": 3605 * time.Second, "0s": 0, "007s": 7 * time.Second, "31536000s": 8760 * time.Hour,
	} {
		if d, ok := ReadDuration(text); !ok || time.Duration(d)*time.Second != want {
			t.Errorf("%q is %v, %v", text, d, ok)
		}
	}
	for _, text := range []string{"", "30", "s", "-1s", "+1s", "1.5h", "1ms", "500ms", "1m1h", "1s ", " 1s", "1 s", "1S", "1d", "1h1h", "1s\n", "\u0661s",
		"99999999999999999999h", "1_0s", "∞"} {
		if d, ok := ReadDuration(text); ok {
			t.Errorf("%q is %v", text, d)
		}
	}
}

// What is written of a duration is read as it, and is within the schema's pattern.
func TestDurationsAreReadAsWritten(t *testing.T) {
	pattern := regexp.MustCompile(DurationSchema().Pattern)
	rapid.Check(t, func(t *rapid.T) {
		h, m, s := rapid.IntRange(0, 48).Draw(t, "h"), rapid.IntRange(0, 59).Draw(t, "m"), rapid.IntRange(0, 59).Draw(t, "s")
		want := h*3600 + m*60 + s
		text := DurationText(want)
		if d, ok := ReadDuration(text); !ok || d != want || !pattern.MatchString(text) {
			t.Fatalf("%v is written %q, and read %v, %v", want, text, d, ok)
		}
		if d, ok := ReadDuration(fmt.Sprintf("%dh%dm%ds", h, m, s)); !ok || d != want {
			t.Fatalf("%v is read %v, %v", want, d, ok)
		}
	})
}

func FuzzReadDuration(f *testing.F) {
	for _, text := range []string{"30s", "1h30m", "", "1m1h", "9999999h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, ok := ReadDuration(text)
		if want, err := time.ParseDuration(text); ok && (err != nil || want != time.Duration(d)*time.Second || d < 0) {
			t.Errorf("%q is %v, and in Go %v, %v", text, d, want, err)
		}
	})
}
