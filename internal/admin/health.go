package admin

import (
	"fmt"
	"net/http"
	"strings"
)

// Check is one thing that must hold. Run returns why it does not, within a second;
// it is called by several goroutines at once. Everybody who reaches the listener
// reads what it returns.
type Check struct {
	Name string
	Run  func() error
}

// Health answers probes. Nobody is asked who he is, and any Host will do: the
// kubelet and Prometheus call by the pod's address.
type Health struct {
	// Ready are the checks of /readyz: whether calls should be sent here.
	Ready []Check
	// Started are those of /startupz: whether the proxy has come up. What is
	// beyond the proxy is none of them: in a pod it may start after the proxy.
	Started []Check
	// Metrics answers /metrics; nil: there are none.
	Metrics http.Handler
}

// Handler returns the handler of the health listener. /livez says no more than
// that the process answers: a proxy that waits for its upstream is not helped by
// being killed.
func (h *Health) Handler() http.Handler {
	r := newRoutes()
	r.get("/livez", probe(nil))
	r.get("/readyz", probe(h.Ready))
	r.get("/startupz", probe(h.Started))
	if h.Metrics != nil {
		r.get("/metrics", h.Metrics.ServeHTTP)
	}
	return r
}

// probe answers 200 where all checks hold, else 503, and says of each.
func probe(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var said strings.Builder
		status := http.StatusOK
		for _, c := range checks {
			if err := c.Run(); err != nil {
				status = http.StatusServiceUnavailable
				fmt.Fprintf(&said, "[-] %s: %s\n", c.Name, oneLine(err))
			} else {
				fmt.Fprintf(&said, "[+] %s\n", c.Name)
			}
		}
		if status == http.StatusOK {
			said.WriteString("ok\n")
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(said.String()))
	}
}

// oneLine is an error without line breaks, as short as a probe's log wants it.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}
