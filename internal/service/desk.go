package service

import (
	"errors"
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
)

// desk answers what operators have asked another process, which has found out who they are.
type desk struct {
	serve func(w http.ResponseWriter, r *http.Request, from string)
}

// operatorIssuer is who says who an operator is.
const operatorIssuer = "admin"

// operatorPassenger is an operator as another process is told of them; from "": nobody is known.
func operatorPassenger(from, remote string) peers.Passenger {
	p := peers.Passenger{Remote: remote, Door: doorOperators}
	if from != "" {
		p.Who = &asker.Who{Issuer: operatorIssuer, Subject: from}
	}
	return p
}

// operatorOf is the name of an operator of whom another process tells; "": it is none.
func operatorOf(who *asker.Who) string {
	if who == nil || who.Issuer != operatorIssuer {
		return ""
	}
	return who.Subject
}

// passOnOperator has an operator's request served by the process that has its run, or the call that waits for an approval.
func (s *service) passOnOperator(w http.ResponseWriter, r *http.Request, on admin.Onward) (again bool, err error) {
	at, elsewhere := errors.AsType[*journal.Elsewhere](on.Why)
	if no, refused := errors.AsType[*admin.Refusal](on.Why); refused && no.Code == admin.NoApproval {
		at, elsewhere = &journal.Elsewhere{Anywhere: true}, true
	}
	switch {
	case !elsewhere:
		return false, on.Why
	case on.Passed:
		w.Header().Set(httpserver.HeaderNotHere, httpserver.Elsewhere)
		w.WriteHeader(http.StatusMisdirectedRequest)
		return false, nil
	}
	again, no := s.carry(w, r, errand{at: at, free: at.Run != "", body: on.Body, who: operatorPassenger(on.From, r.RemoteAddr), since: on.Since,
		repeats: func() bool { return looks(r) }, about: "the call that waits", sole: true}) // which asks anew elsewhere by another id
	switch {
	case no != nil:
		return false, no.refusal()
	case at.Anywhere && again: // nobody has it
		return false, on.Why
	}
	return again, nil
}

// looks reports whether a request changes nothing.
func looks(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// refusal is what an operator is told.
func (u *unserved) refusal() *admin.Refusal {
	no := &admin.Refusal{Status: http.StatusServiceUnavailable, Code: u.code.String(), Text: u.text}
	if u.code == policy.OutcomeUnknown { // it must not be sent again by itself
		no.Status = http.StatusBadGateway
	}
	return no
}

// errUnshared is for who wants runs to go on in another process, where there is none.
func errUnshared() *admin.Refusal {
	return &admin.Refusal{Status: http.StatusConflict, Code: policy.NotAvailable.String(),
		Text: "no other process shares this one's store, so none can go on with its runs: that needs --store postgres://… and --peer-listen"}
}

// releaseRun gives a run away.
func (s *service) releaseRun(v admin.Verb) (admin.Stands, error) {
	if s.replica.peers == nil {
		return admin.Stands{}, errUnshared()
	}
	return s.operate((*operator.Desk).Release)(v)
}

// releaseRuns gives away all that can be.
func (s *service) releaseRuns(v admin.Verb) (admin.Released, error) {
	if s.replica.peers == nil {
		return admin.Released{}, errUnshared()
	}
	released, stay, err := s.relay.Operators().ReleaseAll(operatorVerb(&v))
	if err != nil {
		return admin.Released{}, adminRefusal(err)
	}
	return admin.Released{Runs: released, Stay: stay}, nil
}
