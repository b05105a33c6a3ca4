package streamhttp

import "fmt"

// Reason is why a request was refused before any session saw what it says.
type Reason uint8

// The reasons.
const (
	ReasonHost          Reason = iota // its Host is not served
	ReasonOrigin                      // its Origin is not
	ReasonBearerMissing               // it has no bearer token
	ReasonBearerWrong                 // it has one that is not accepted
	ReasonScope                       // it has one that does not reach as far as here
	ReasonCertificate                 // its certificate is not accepted
	ReasonUnverified                  // it has one that cannot be looked at: the issuer's keys are not known yet
	ReasonSession                     // it names a session that there is not
	ReasonNoSession                   // it names no session, and begins none
	ReasonNoRun                       // its initialize lacks what its run is found by
	ReasonCrowded                     // there are too many sessions, requests under way, or bytes of bodies, for another one
	ReasonMessage                     // it belongs to no session, and cannot be read, or lacks what it must have
	ReasonHeader                      // its header does not fit its body (modern era), or its session
	ReasonTooLarge                    // its body is larger than a message may be
	ReasonMedia                       // it is no JSON, or takes neither JSON nor event streams
	ReasonPath                        // nothing is served at its path
	ReasonVersion                     // it is of a revision that is not spoken
	ReasonMethod                      // its HTTP method is not served
	ReasonEnding                      // the server is ending
)

// reasons are a word for each reason, and words for an operator, with what to do.
var reasons = [...]struct{ word, text string }{
	ReasonHost:          {"host_not_allowed", "its Host is not served here; --allowed-host allows one"},
	ReasonOrigin:        {"origin_not_allowed", "its Origin is not served here; --allowed-origin allows one"},
	ReasonBearerMissing: {"bearer_missing", "it has no bearer token"},
	ReasonBearerWrong:   {"bearer_wrong", "its bearer token is not accepted"},
	ReasonScope:         {"scope_missing", "its access token has not the scope, or the audience, for this URL"},
	ReasonCertificate:   {"certificate_wrong", "it has no client certificate that is accepted"},
	ReasonUnverified:    {"keys_unavailable", "its access token cannot be verified yet: the issuer's keys have not come"},
	ReasonSession:       {"session_unknown", "there is no such session: it has ended, was begun at another process, or is somebody else's; clients begin a new one"},
	ReasonNoSession:     {"session_missing", "it names no session and is no initialize: its client has lost the Mcp-Session-Id, or speaks a revision that --protocol leaves out"},
	ReasonNoRun:         {"session_refused", "its initialize lacks what finds its run (--run-key); another line says what"},
	ReasonCrowded:       {"sessions_full", "there is no room for it: too many sessions, requests or bytes of bodies"},
	ReasonMessage:       {"message_unreadable", "its body is no message that can be read, or lacks what one must have; its client was told what"},
	ReasonHeader:        {"header_mismatch", "its header contradicts its body or its session"},
	ReasonTooLarge:      {"body_too_large", "its body is larger than a message may be; --max-message raises that"},
	ReasonMedia:         {"media_type", "its Content-Type, Content-Encoding or Accept is none that is served"},
	ReasonPath:          {"path_unknown", "nothing is served at its path; MCP is served at /mcp, or where --path says"},
	ReasonVersion:       {"version_unsupported", "it is of a revision that is not spoken here; --protocol says which are"},
	ReasonMethod:        {"method_not_allowed", "its HTTP method is none that is served: POST, and with a session GET and DELETE"},
	ReasonEnding:        {"ending", "the proxy is ending"},
}

// String is the reason in a word.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].word
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Text is the reason in words, for an operator.
func (r Reason) Text() string {
	if int(r) < len(reasons) {
		return reasons[r].text
	}
	return r.String()
}

// Authentication reports whether it was refused for who sends it, or from where.
func (r Reason) Authentication() bool { return r <= ReasonUnverified }
