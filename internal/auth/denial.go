package auth

import (
	"net/http"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
)

// denial is why a request is not let in. Its text is for the client: it tells
// nothing of the token.
type denial struct {
	reason streamhttp.Reason
	status int
	code   string // RFC 6750, section 3.1; "" where the client sent nothing that could be wrong
	text   string
}

func invalid(text string) *denial {
	return &denial{streamhttp.ReasonBearerWrong, http.StatusUnauthorized, "invalid_token", text}
}

var (
	missing  = &denial{streamhttp.ReasonBearerMissing, http.StatusUnauthorized, "", "a bearer token is needed"}
	repeated = &denial{streamhttp.ReasonBearerWrong, http.StatusBadRequest, "invalid_request", "there is more than one Authorization header"}
	tooLong  = invalid("the token is too long")
	unknown  = invalid("the token is not known here: a bearer token is needed that is")
)

// deny answers a request that is not let in.
func (g *Gate) deny(w http.ResponseWriter, r *http.Request, no *denial) {
	g.cfg.Refused(no.reason, no.status, r)
	switch {
	case no.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	case g.tokens():
		w.Header().Set("WWW-Authenticate", g.challenge(r, no))
	}
	answer(w, no.status, no.text)
}

// challenge is the value of WWW-Authenticate (RFC 6750, section 3).
func (g *Gate) challenge(r *http.Request, no *denial) string {
	var params []string
	param := func(name, value string) { params = append(params, name+`="`+value+`"`) }
	if no.code != "" {
		param("error", no.code)
		param("error_description", no.text)
	}
	if g.cfg.Issuer != nil {
		if scopes := g.cfg.Issuer.cfg.Scopes; len(scopes) > 0 {
			param("scope", strings.Join(scopes, " "))
		}
		param("resource_metadata", g.metadataURL(r))
	}
	return strings.TrimSuffix("Bearer "+strings.Join(params, ", "), " ")
}
