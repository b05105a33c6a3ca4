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
	id, all := parameters(approvalPath, r.URL.Path)[0], a.Approvals()
	i := slices.IndexFunc(all, func(x Approval) bool { return x.ID == id })
	if i < 0 {
		return &Refusal{Status: http.StatusNotFound, Code: NoApproval,
			Text: "no call waits for this approval: it was answered, its state was left, or nobody asks any more. GET /v1/approvals names those that do"}
	}
	answer(w, all[i])
	return nil
}

// approve answers approvals.
func (a *Admin) approve(pattern string, allow bool) func(w http.ResponseWriter, r *http.Request) error {
	return a.byOperator(func(r *http.Request, s Signal) (any, error) {
		return a.Approve(r.Context(), ApprovalAnswer{Signal: s, ID: parameters(pattern, r.URL.Path)[0], Allow: allow})
	})
}
