package proxy_test

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// TestConfigMustBeWhole.
func TestConfigMustBeWhole(t *testing.T) {
	if _, err := proxy.New(proxy.Config{}); err == nil {
		t.Error("a proxy of nothing")
	}
}
