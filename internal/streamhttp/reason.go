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
	ReasonSession                     // it names no session that there is, or none at all
	ReasonCrowded                     // there are too many sessions, requests under way, or bytes of bodies, for another one
	ReasonMessage                     // it belongs to no session, and cannot be read
	ReasonHeader                      // its header does not fit its body (modern era), or its session
	ReasonTooLarge                    // its body is larger than a message may be
	ReasonMedia                       // it is no JSON, or takes neither JSON nor event streams
)

var reasonTexts = [...]string{"host_not_allowed", "origin_not_allowed", "bearer_missing", "bearer_wrong",
	"scope_missing", "certificate_wrong", "keys_unavailable",
	"session_unknown", "sessions_full", "message_unreadable", "header_mismatch",
	"body_too_large", "media_type"}

// String is the reason in a word.
func (r Reason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Authentication reports whether it was refused for who sends it, or from where.
func (r Reason) Authentication() bool { return r <= ReasonUnverified }
