package mcptest

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TLS returns what a server needs to speak TLS on loopback, and clients that trust it, by the one protocol that each
// speaks: "HTTP/1.1", "HTTP/2.0".
func TLS(t *testing.T) (cfg *tls.Config, clients map[string]*http.Client) {
	t.Helper()
	lender := httptest.NewTLSServer(nil) // of a certificate, and a client that trusts it
	t.Cleanup(lender.Close)
	clients = map[string]*http.Client{}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: lender.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
		transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
		t.Cleanup(transport.CloseIdleConnections)
		clients[protocol] = &http.Client{Transport: transport}
	}
	return &tls.Config{Certificates: lender.TLS.Certificates}, clients
}
