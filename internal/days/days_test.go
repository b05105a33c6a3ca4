package days_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/days"
)

func TestParse(t *testing.T) {
	pattern := regexp.MustCompile(days.Pattern)
	for text, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "0d": 0, "1d12h": 36 * time.Hour, "2d1h30m5s": 49*time.Hour + 30*time.Minute + 5*time.Second,
		"90m": 90 * time.Minute, "1.5h": 90 * time.Minute, "106751d": 106751 * 24 * time.Hour, "7d0.5s": 168*time.Hour + 500*time.Millisecond,
	} {
		if got, err := days.Parse(text); got != want || err != nil || !pattern.MatchString(text) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "1.5d", "1h1d", "1d1d", "d1h", "-1d", "+1d", "1d-1h", "1d+1h", "1d 1h", " 1d", "1D", "106752d", "106751d24h", "99999999999999999999d", "30", "1d5", "1dd"} {
		if got, err := days.Parse(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestValue(t *testing.T) {
	d := 36 * time.Hour
	v := (*days.Value)(&d)
	if v.String() != "36h0m0s" || v.Type() != "duration" {
		t.Error(v.String(), v.Type())
	}
	if err := v.Set("30d"); err != nil || d != 720*time.Hour {
		t.Error(d, err)
	}
	if err := v.Set("1 day"); err == nil || d != 720*time.Hour {
		t.Error(d, err)
	}
}
