package service

import "testing"

// Any way to tell who is asking lets the proxy listen beyond loopback.
func TestListeningBeyondLoopback(t *testing.T) {
	for _, l := range []Listen{{Tokens: "t"}, {ClientCA: "c"}, {OIDC: OIDC{Issuer: "i"}}} {
		l.Address, l.Path = "0.0.0.0:0", "/mcp"
		if loopback, err := l.check(); loopback || err != nil {
			t.Errorf("%+v: %v, %v", l, loopback, err)
		}
	}
}
