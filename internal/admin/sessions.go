package admin

import (
	"cmp"
	"net/http"
	"slices"
)

// list is one page of a list. Next is what to give as after for the next one.
type list[T any] struct {
	Count int    `json:"count"` // of all pages
	Next  string `json:"next,omitempty"`
	Items []T    `json:"items"`
}

func (a *Admin) sessions(w http.ResponseWriter, r *http.Request) {
	serveList(w, r, a.Sessions(), func(s Session) Session { return s })
}

func (a *Admin) runs(w http.ResponseWriter, r *http.Request) {
	serveList(w, r, a.Sessions(), func(s Session) Run { return s.Run })
}

// serveList answers with the page that is asked for of all sessions, each shown
// as what is asked for of it.
func serveList[T any](w http.ResponseWriter, r *http.Request, all []Session, show func(Session) T) {
	p, err := pageOf(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	from := 0
	if p.after != "" {
		i, found := slices.BinarySearchFunc(all, p.after, func(s Session, id string) int { return cmp.Compare(s.ID, id) })
		if from = i; found {
			from++
		}
	}
	out := list[T]{Count: len(all), Items: []T{}}
	for _, s := range all[from:min(from+p.limit, len(all))] {
		out.Items = append(out.Items, show(s))
		out.Next = s.ID
	}
	if from+p.limit >= len(all) {
		out.Next = ""
	}
	answer(w, out)
}
