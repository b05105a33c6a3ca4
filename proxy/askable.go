package proxy

import "github.com/fsm-proxy/fsm-proxy/policy"

// askables are the capabilities of a client by which an upstream may ask it.
var askables = [...]string{"sampling", "elicitation", "roots"}

// askableBy is the capability that a request of the upstream's needs; empty: it is
// none by which a client is asked.
func askableBy(method string) string {
	switch method {
	case "sampling/createMessage":
		return "sampling"
	case "elicitation/create":
		return "elicitation"
	case "roots/list":
		return "roots"
	}
	return ""
}

// permits reports whether an upstream may ask by a capability.
func permits(may policy.UpstreamMay, capability string) bool {
	switch capability {
	case "sampling":
		return may.Sampling
	case "elicitation":
		return may.Elicitation
	case "roots":
		return may.Roots
	}
	return false
}
