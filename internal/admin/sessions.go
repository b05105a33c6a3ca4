package admin

import (
	"errors"
	"net/http"
	"sort"
	"strconv"
)

// list is one page of a list. Next is what to give as after for the next one.
type list[T any] struct {
	Count int    `json:"count"` // of all pages
	Next  string `json:"next,omitempty"`
	Items []T    `json:"items"`
}

func (a *Admin) sessions(w http.ResponseWriter, r *http.Request) {
	serveList(w, r, a.Sessions(), func(s Session) string { return s.ID })
}

func (a *Admin) runs(w http.ResponseWriter, r *http.Request) {
	serveList(w, r, a.Runs(), func(run Run) string { return run.ID })
}

func (a *Admin) start(w http.ResponseWriter, _ *http.Request) {
	run, err := a.StartRun()
	if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	answer(w, run)
}

func (a *Admin) restart(w http.ResponseWriter, r *http.Request) {
	id, _ := runOf(r.URL.Path)
	if !a.RestartRun(id) {
		refuse(w, http.StatusNotFound, "there is no run "+printable(id)+": GET /v1/runs names those that there are")
		return
	}
	answer(w, Restarted{ID: id})
}

// serveList answers with the page that is asked for of all items, which are in the
// order of their ids.
func serveList[T any](w http.ResponseWriter, r *http.Request, all []T, id func(T) string) {
	p, err := pageOf(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	from := 0
	if p.after != "" {
		from = sort.Search(len(all), func(i int) bool { return id(all[i]) > p.after })
	}
	to := min(from+p.limit, len(all))
	for to > from && to < len(all) && id(all[to]) == id(all[to-1]) {
		to++ // the next page begins after that id
	}
	out := list[T]{Count: len(all), Items: append([]T{}, all[from:to]...)}
	if to < len(all) {
		out.Next = id(all[to-1])
	}
	answer(w, out)
}

// page says which part of a long list is wanted.
type page struct {
	limit int
	after string
}

const (
	pageSize    = 100
	maxPageSize = 1000
)

var errPage = errors.New("limit is a number from 1 to 1000, after the id of the last one that is known")

func pageOf(r *http.Request) (p page, err error) {
	p = page{limit: pageSize, after: r.URL.Query().Get("after")}
	if text := r.URL.Query().Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > maxPageSize {
			return p, errPage
		}
	}
	return p, nil
}
