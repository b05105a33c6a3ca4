package admin

import (
	"net/http"
	"slices"
)

func (a *Admin) approvals(w http.ResponseWriter, r *http.Request) {
	serveList(w, r, a.Approvals(), true, func(x Approval) string { return x.ID })
}

// approval shows one approval that is wanted.
func (a *Admin) approval(w http.ResponseWriter, r *http.Request) {
	id, all := parameters(approvalPath, r.URL.Path)[0], a.Approvals()
	i := slices.IndexFunc(all, func(x Approval) bool { return x.ID == id })
	if i < 0 {
		fail(w, &Refusal{Status: http.StatusNotFound, Code: "approval_not_found",
			Text: "no call waits for this approval: it was answered, its state was left, or nobody asks any more. GET /v1/approvals names those that do"})
		return
	}
	answer(w, all[i])
}

// approve answers approvals.
func (a *Admin) approve(pattern string, allow bool, room chan struct{}) http.HandlerFunc {
	return a.byOperator(room, func(r *http.Request, s Signal) (any, error) {
		return a.Approve(r.Context(), ApprovalAnswer{Signal: s, ID: parameters(pattern, r.URL.Path)[0], Allow: allow})
	})
}
