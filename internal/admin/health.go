package admin

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// Check is one thing that must hold. Run returns why it does not, within a second;
// it is called by several goroutines at once. Everybody who reaches the listener
// reads what it returns.
type Check struct {
	Name string
	Run  func() error
}

// Health answers probes. Nobody is asked who he is.
type Health struct {
	// Ready are the checks of /readyz: whether calls should be sent here.
	Ready []Check
	// Started are those of /startupz: whether the proxy has come up. What is
	// beyond the proxy is none of them: in a pod it may start after the proxy.
	Started []Check
	// Metrics answers /metrics; nil: there are none.
	Metrics http.Handler
	// Local says that the listener is a loopback one: then the Host must be a loopback
	// name, so that no web page gets in by a name of its own that leads here. Else any
	// will do: the kubelet and Prometheus call by the pod's address.
	Local bool
}

// Handler returns the handler of the health listener. /livez says no more than
// that the process answers: a proxy that waits for its upstream is not helped by
// being killed.
func (h *Health) Handler() http.Handler {
	r := routes{}
	r.get("/livez", probe(nil))
	r.get("/readyz", probe(h.Ready))
	r.get("/startupz", probe(h.Started))
	if h.Metrics != nil {
		r.get("/metrics", h.Metrics.ServeHTTP)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.Local && !httpserver.LoopbackHost(req.Host) {
			refuse(w, http.StatusForbidden, otherHost)
			return
		}
		r.ServeHTTP(w, req)
	})
}

// Probe is what a probe is answered.
type Probe struct {
	OK     bool      `json:"ok"` // all checks hold
	Checks []Checked `json:"checks"`
}

// Checked is whether a check holds.
type Checked struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"` // why it does not
}

// probe answers 200 where all checks hold, else 503, and says of each: in lines of text,
// or as JSON to those who accept that by name.
func probe(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		said := Probe{OK: true, Checks: []Checked{}}
		for _, c := range checks {
			done := Checked{Name: c.Name, OK: true}
			if err := c.Run(); err != nil {
				said.OK, done.OK, done.Error = false, false, oneLine(err)
			}
			said.Checks = append(said.Checks, done)
		}
		status := http.StatusOK
		if !said.OK {
			status = http.StatusServiceUnavailable
		}
		w.Header().Set("Vary", "Accept")
		if acceptsJSON(r) {
			write(w, status, said)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(said.text()))
	}
}

// text has a line for each check.
func (p Probe) text() string {
	var lines strings.Builder
	for _, c := range p.Checks {
		if c.OK {
			fmt.Fprintf(&lines, "[+] %s\n", c.Name)
		} else {
			fmt.Fprintf(&lines, "[-] %s: %s\n", c.Name, c.Error)
		}
	}
	if p.OK {
		lines.WriteString("ok\n")
	}
	return lines.String()
}

// acceptsJSON reports whether a request names JSON among what it accepts.
func acceptsJSON(r *http.Request) bool {
	for _, value := range r.Header["Accept"] {
		for item := range strings.SplitSeq(value, ",") {
			kind, params, err := mime.ParseMediaType(item)
			if q, weighed := params["q"]; err == nil && kind == "application/json" && !(weighed && strings.Trim(q, "0.") == "") {
				return true
			}
		}
	}
	return false
}

// oneLine is an error without line breaks, as short as a probe's log wants it.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}
