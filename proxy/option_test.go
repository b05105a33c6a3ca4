package proxy_test

import (
	"encoding"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// TestWordsOfTheCommandLine are read as they are written, and no others.
func TestWordsOfTheCommandLine(t *testing.T) {
	type word interface {
		encoding.TextMarshaler
		encoding.TextUnmarshaler
	}
	for _, tt := range []struct {
		option word
		words  string
	}{
		{new(refusal.Form), "error plain opaque"},
	} {
		for _, text := range strings.Fields(tt.words) {
			if err := tt.option.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if back, err := tt.option.MarshalText(); err != nil || string(back) != text {
				t.Errorf("%s is written %s, %v", text, back, err)
			}
		}
		if err := tt.option.UnmarshalText([]byte("Auto")); err == nil || !strings.Contains(err.Error(), strings.Fields(tt.words)[0]) {
			t.Errorf("got %v", err)
		}
	}
}

// TestConfigMustBeWhole.
func TestConfigMustBeWhole(t *testing.T) {
	if _, err := proxy.New(proxy.Config{}); err == nil {
		t.Error("a proxy of nothing")
	}
}
