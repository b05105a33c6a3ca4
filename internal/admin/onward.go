package admin

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"
)

// Onward is a request about a run, or a call that waits in one, that is not here: another process may have it.
type Onward struct {
	Why    error // what was said of it here
	Body   []byte
	From   string    // the operator who sends it; "": nobody is known
	Since  time.Time // when it came
	Passed bool      // another process has passed it on: it is passed on no further
}

// passedBy is the key, in the context of a request that another process has passed on, of the operator who sends it.
type passedBy struct{}

// Passed returns what answers requests about runs that another process has passed on. That one has looked at their Host
// and Origin, and has found out which operator sends them; from is "" where nobody is known. What those may do who come
// here themselves, they may, too.
func (a *Admin) Passed() func(w http.ResponseWriter, r *http.Request, from string) {
	routes := routes{}
	a.ofRuns(routes)
	return func(w http.ResponseWriter, r *http.Request, from string) {
		routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), passedBy{}, from)))
	}
}

// sender says which operator sends a request, by its token or as another process has found out; "": nobody is known.
func (a *Admin) sender(r *http.Request) (from string, passed bool) {
	if from, passed = r.Context().Value(passedBy{}).(string); !passed && a.Who != nil {
		from, _ = a.Who(r)
	}
	return from, passed
}

// wherever has f answer a request about a run, or the process that has the run, where the error of f says that it is not
// here. So many at once as there is room for; nil: any number.
func (a *Admin) wherever(room chan struct{}, f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		on := Onward{Since: time.Now()}
		on.From, on.Passed = a.sender(r)
		var err error
		if on.Body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignalBody)); err != nil {
			refuse(w, http.StatusBadRequest, "the body cannot be read: send one of at most 16 KiB")
			return
		}
		if room != nil {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			default:
				w.Header().Set("Retry-After", "5")
				refuse(w, http.StatusServiceUnavailable, "too much that operators sent waits for the turns of its runs: try again when some of it is through")
				return
			}
		}
		for again := true; again; {
			r.Body = io.NopCloser(bytes.NewReader(on.Body))
			again = false
			if on.Why = f(w, r); on.Why == nil {
				return
			}
			if err = on.Why; a.PassOn != nil {
				again, err = a.PassOn(w, r, on)
			}
		}
		if err != nil {
			fail(w, err)
		}
	}
}
