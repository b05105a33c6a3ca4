package main

import (
	"math"
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// authenticator says who is asking, for streamhttp; nil: nobody is told apart.
type authenticator func(http.ResponseWriter, *http.Request) (wire.Principal, bool)

// authenticator opens what clients are let in by.
func (s *service) authenticator() (authenticator, error) {
	f := &s.flags.listen
	if f.bearerFile == "" {
		return nil, nil
	}
	file, err := openTokenFile("bearer-file", f.bearerFile)
	if err != nil {
		return nil, err
	}
	return auth.New(auth.Config{Bearer: file.get, Refused: s.tell.refused, Log: s.log}).Authenticate, nil
}

// sharePerPrincipal is how many sessions one principal may have; 0: half of them.
// Where all clients are one principal, there is nobody to keep room for.
func (f *runFlags) sharePerPrincipal() int {
	if f.limits.principalShare == 0 && f.listen.bearerFile != "" {
		return math.MaxInt
	}
	return f.limits.principalShare
}
