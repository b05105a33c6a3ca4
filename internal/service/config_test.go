package service

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "1000": 1000, "4MiB": 4 << 20, "4 mib": 4 << 20, "32KiB": 32 << 10, "2GiB": 2 << 30, "7B": 7} {
		var s Size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%q: %d, %v", text, s, err)
		}
		var again Size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q is written %s, which reads %d, %v", text, &s, again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "x", "1.5MiB", "1MB", "MiB", "9999999999GiB"} {
		if err := new(Size).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
