package admin

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"net"
	"net/http"
	"strconv"
)

// run shows one run.
func (a *Admin) run(w http.ResponseWriter, r *http.Request) error {
	run, err := a.Run(parameters(runPath, r.URL.Path)[0])
	if err == nil {
		answer(w, run)
	}
	return err
}

// maxSignals is how many signals may wait at once for the turns of their runs: each has a connection, and others
// are to be answered meanwhile.
const maxSignals = 8

// signals sends signals.
func (a *Admin) signals() func(w http.ResponseWriter, r *http.Request) error {
	return a.byOperator(func(r *http.Request, s Signal) (any, error) {
		values := parameters(signalPath, r.URL.Path)
		s.Run, s.Name = values[0], values[1]
		return a.Signal(r.Context(), s)
	})
}

// byOperator has do take what an operator says. What nobody has a token for is refused at each address, a socket's
// too: there the shell of an agent may be let in like its user.
func (a *Admin) byOperator(do func(r *http.Request, s Signal) (any, error)) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var s Signal
		var ok bool
		if s.From, s.Remote, ok = a.operator(w, r); !ok {
			return nil
		}
		if fault := s.read(w, r); fault != "" {
			refuse(w, http.StatusBadRequest, fault)
			return nil
		}
		done, err := do(r, s)
		if err == nil {
			answer(w, done)
		}
		return err
	}
}

// operator says who sends a request, and from which address. It reports false where nobody knows, and has answered then.
func (a *Admin) operator(w http.ResponseWriter, r *http.Request) (who, remote string, ok bool) {
	who, passed := a.sender(r)
	if who == "" && (passed || a.Who == nil) {
		refuse(w, http.StatusForbidden, "signals, approvals and what is done to runs need an operator with a token, at this address too, since an agent's shell may reach it: "+
			"start fsm-proxy with --admin-tokens FILE, or --admin-bearer-file FILE")
		return "", "", false
	}
	if who == "" { // the token was withdrawn just now
		refuse(w, http.StatusUnauthorized, "a bearer token is needed")
		return "", "", false
	}
	if _, _, err := net.SplitHostPort(r.RemoteAddr); err == nil { // a socket's have none
		remote = r.RemoteAddr
	}
	return who, remote, true
}

// The bounds of what comes with a signal or an answer, in bytes. A note may be written in escapes.
const (
	maxNote       = 1024
	maxSignalBody = 16 << 10
)

const signalForm = `send {"note": "why", "seq": 12}, either of them or neither`

// read takes what comes with a signal or an answer, and says what is wrong with it. A seq that cannot be read is never taken for
// none: who gives one wants nothing done where the run has moved.
func (s *Signal) read(w http.ResponseWriter, r *http.Request) (fault string) {
	var given struct {
		Note jsontext.Value `json:"note"`
		Seq  jsontext.Value `json:"seq"`
	}
	if fault := readBody(w, r, &given, signalForm); fault != "" {
		return fault
	}
	if given.Note != nil && (given.Note.Kind() != '"' || json.Unmarshal(given.Note, &s.Note) != nil) {
		return "note is no text: " + signalForm
	}
	if len(s.Note) > maxNote {
		return "note is longer than " + strconv.Itoa(maxNote) + " bytes"
	}
	if given.Seq != nil {
		seq, err := strconv.ParseUint(string(given.Seq), 10, 64)
		if err != nil {
			return "seq is no whole number: give that of GET /v1/runs/ID"
		}
		s.Seq = &seq
	}
	return ""
}

// fail answers with a refusal.
func fail(w http.ResponseWriter, err error) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		if r.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
		write(w, r.Status, r)
		return
	}
	refuse(w, http.StatusInternalServerError, err.Error())
}
