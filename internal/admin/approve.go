package admin

import (
	"net/http"
	"slices"
	"strings"
)

// approvals lists those of all processes; of this one alone where another process asks.
func (a *Admin) approvals(w http.ResponseWriter, r *http.Request) {
	all, absent := a.Approvals(), []string(nil)
	if from, passed := a.sender(r); !passed && a.Elsewhere != nil {
		var others []Approval
		others, absent = a.Elsewhere(r.Context(), from)
		all = append(all, others...)
		slices.SortFunc(all, func(x, y Approval) int { return strings.Compare(x.ID, y.ID) })
	}
	serveList(w, r, all, len(absent) == 0, func(x Approval) string { return x.ID }, absent...)
}

// approval shows one approval that is wanted.
func (a *Admin) approval(w http.ResponseWriter, r *http.Request) error {
	x, ok := a.waiting(parameters(approvalPath, r.URL.Path)[0])
	if !ok {
		return errNoApproval
	}
	answer(w, x)
	return nil
}

var errNoApproval = &Refusal{Status: http.StatusNotFound, Code: NoApproval,
	Text: "no call waits for this approval: it was answered, its state was left, or nobody asks any more. GET /v1/approvals names those that do"}

func (a *Admin) waiting(id string) (Approval, bool) {
	all := a.Approvals()
	if i := slices.IndexFunc(all, func(x Approval) bool { return x.ID == id }); i >= 0 {
		return all[i], true
	}
	return Approval{}, false
}

// askedHere has f take an answer that another process has passed on, only if its approval is wanted here, or was answered here, which f
// says then: whatever else is wrong with it here, it may be wanted in a third one.
func (a *Admin) askedHere(pattern string, f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if from, passed := a.sender(r); passed {
			if !a.Asked(parameters(pattern, r.URL.Path)[0]) {
				_, _ = a.PassOn(w, r, Onward{Why: errNoApproval, From: from, Passed: true})
				return
			}
		}
		f(w, r)
	}
}

// approve answers approvals.
func (a *Admin) approve(pattern string, allow bool) func(w http.ResponseWriter, r *http.Request) error {
	return a.byOperator(func(r *http.Request, s Signal) (any, error) {
		return a.Approve(r.Context(), ApprovalAnswer{Signal: s, ID: parameters(pattern, r.URL.Path)[0], Allow: allow})
	})
}
