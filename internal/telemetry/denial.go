package telemetry

import "net/http"

// Denial is an HTTP request that was refused before any session saw it.
type Denial struct {
	Reason  string // in a word
	Request *http.Request
}

// denied are the members of a denial. No header that may hold a secret is among
// them.
func (l *line) denied(d *Denial) {
	l.word("decision", "refuse")
	l.word("reason", d.Reason)
	l.text("remote", d.Request.RemoteAddr)
	l.text("http_method", d.Request.Method)
	l.text("host", d.Request.Host)
	l.text("origin", d.Request.Header.Get("Origin"))
}
