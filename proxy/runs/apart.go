package runs

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Runs that are kept are there for operators whether or not somebody has used them since the start: what is not in
// memory is listed by its row, and read when something is to be done to it.

// isOwn reports whether an id is that of the run of this process: in the store there may be those of others.
func (g *Registry) isOwn(at runID) bool {
	return at.kind == Process && at == g.at(Process, g.cfg.Process)
}

// ofSession returns the run of a session that goes on.
func (g *Registry) ofSession(at runID) (*Run, *Missing) {
	for {
		r, why := g.restore(at)
		if r == nil {
			if why == nil {
				why = ErrNotFound
			}
			return nil, why
		}
		g.mu.Lock()
		there := g.apart[at] == r
		r.used.Store(int64(deadline.Now()))
		g.mu.Unlock()
		if there {
			return r, nil
		}
	}
}

// restsAfter is for how long a run is in memory that an operator has had read.
const restsAfter = time.Minute

// restApartLocked has those runs leave memory again that an operator has had read, and that nobody is on.
func (g *Registry) restApartLocked(now time.Duration) {
	for _, r := range g.apart {
		if now-time.Duration(r.used.Load()) > restsAfter && len(r.on()) == 0 && r.rests() {
			g.endLocked(r, unloaded, run.Remark{})
		}
	}
}

// ErrAmbiguous is for an id that several runs have, or that their ids begin with.
var ErrAmbiguous = &Missing{Code: policy.RunNotFound, Text: "Several runs have this id, or ids that begin so."}

// Like returns the run of an id, or whose id begins with a text, nil for none: one that is kept is read where nobody has
// it. The error is an [ErrAmbiguous], an [ErrEnded], or why it cannot be read.
func (g *Registry) Like(text string) (*Run, error) {
	for {
		r, err := g.like(text)
		if r == nil || r.kept == nil || g.touch(r) {
			return r, err
		}
	}
}

// touch has a run stay in memory for now. It reports false where it has left that just now.
func (g *Registry) touch(r *Run) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, there := g.all[r]; !there || r.ended.Load() {
		return false
	}
	r.used.Store(int64(deadline.Now()))
	return true
}

func (g *Registry) like(text string) (*Run, error) {
	r, row, err := g.find(text)
	switch {
	case err != nil:
		return nil, err
	case !row.Ended.IsZero():
		return nil, ErrEnded
	case r != nil || row.ID == "":
		return r, nil
	}
	at := runID{kindOf(row.Key.Kind), string(row.Key.Hash[:])}
	g.lookAgain(at)
	r, why := g.restore(at)
	switch {
	case why != nil:
		return nil, why
	case r == nil || r.Name != row.ID: // it has ended meanwhile
		return nil, ErrEnded
	}
	return r, nil
}

// find returns the run of an id, or whose id begins with a text, where it is in memory, and its row where the store was
// asked; neither: there is none.
func (g *Registry) find(text string) (r *Run, row journal.Row, err error) {
	switch all := g.Named(text); {
	case len(all) > 1:
		return nil, row, ErrAmbiguous
	case len(all) == 1:
		return all[0], row, nil
	case g.cfg.Store == nil || text == "":
		return nil, row, nil
	}
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	defer stop()
	rows, err := g.cfg.Store.Like(ctx, strings.ToUpper(text))
	switch {
	case err != nil:
		return nil, row, errStore
	case len(rows) == 0:
		return nil, row, nil
	case len(rows) > 1:
		return nil, row, ErrAmbiguous
	}
	if all := g.Named(rows[0].ID); len(all) == 1 {
		r = all[0]
	}
	return r, rows[0], nil
}

// Query says which runs are listed.
type Query struct {
	After   string // the last id of the page before
	Limit   int
	Subject string // whose they are; "": everybody's
	Issuer  string // who says that; "": anybody
}

func (q *Query) has(owner wire.Principal) bool {
	return (q.Subject == "" || q.Subject == owner.Subject) && (q.Issuer == "" || q.Issuer == owner.Issuer)
}

// List returns where runs stand, those that are kept and in nobody's memory as well, ordered by name: no fewer than are
// asked for behind the last one, if there are so many. whole tells that these are all that there are.
func (g *Registry) List(ctx context.Context, q Query) (infos []Info, whole bool, err error) {
	whole = true
	loaded := make(map[string]bool)
	for _, i := range g.Infos() {
		loaded[i.Name] = true
		if q.has(i.Owner) {
			infos = append(infos, i)
		}
	}
	if g.cfg.Store == nil {
		return infos, whole, nil
	}
	n := 0
	for i, err := range g.atRest(ctx, q) {
		if err != nil {
			return nil, false, err
		}
		if loaded[i.Name] {
			continue
		}
		if n++; n > q.Limit+1 {
			whole = false
			break
		}
		infos = append(infos, i)
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, whole && q.After == "", nil
}

// atRest are the runs of a query that are kept and have not ended.
func (g *Registry) atRest(ctx context.Context, q Query) iter.Seq2[Info, error] {
	rows := journal.Query{After: q.After, Limit: 1000}
	if q.Subject != "" && q.Issuer != "" {
		rows.Owner = &journal.Principal{Issuer: q.Issuer, Subject: q.Subject}
	}
	return func(yield func(Info, error) bool) {
		for r, err := range g.cfg.Store.Rows(ctx, rows) {
			owner := wire.Principal{Issuer: r.Owner.Issuer, Subject: r.Owner.Subject}
			if err == nil && (!r.Ended.IsZero() || !q.has(owner)) {
				continue
			}
			i := Info{State: r.State, Complete: r.Complete, Policy: r.Policy, Seq: r.Last.Seq, Name: r.ID, Key: kindOf(r.Key.Kind), Owner: owner,
				Age: time.Since(r.Began), Idle: time.Since(r.Used), AtRest: true, Lease: r.Tenure.Lease}
			if !yield(i, err) || err != nil {
				return
			}
		}
	}
}

// NameOf is what the run is called that is found by an id.
func (g *Registry) NameOf(k Kind, id string) string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if r := g.found[g.at(k, id)]; r != nil {
		return r.Name
	}
	return k.NameOf(id)
}

// Mine is a run as its owner is told of it.
type Mine struct {
	Handle   string // "": nobody has used it since the start, and its owner alone has it
	Name     string // for people; no secret
	State    string
	Complete bool
	Expires  time.Time // zero: never
	age      time.Duration
}

// maxMine is how many of its runs that nobody has used since the start an owner is told of.
const maxMine = 1000

// Mine are the runs of an owner that are found by handle, oldest first. The error is why those cannot be told that nobody
// has used since the start.
func (g *Registry) Mine(owner wire.Principal) (mine []Mine, err error) {
	loaded := make(map[string]bool)
	for _, r := range g.All() {
		if r.Key.Kind == Handle && r.Owner == owner && !r.Ended() {
			at, i := r.Where(), r.Info()
			loaded[r.Name] = true
			mine = append(mine, Mine{Handle: g.idOf(r), Name: r.Name, State: at.State(), Complete: at.At.Complete, Expires: g.expiry(r.born), age: i.Age})
		}
	}
	if g.cfg.Store != nil {
		ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
		defer stop()
		n := 0
		for i, err := range g.atRest(ctx, Query{Subject: owner.Subject, Issuer: owner.Issuer}) {
			if err != nil {
				return nil, err
			}
			if i.Key == Handle && !loaded[i.Name] && i.Owner == owner {
				if n++; n > maxMine {
					break
				}
				mine = append(mine, Mine{Name: i.Name, State: i.State, Complete: i.Complete, Expires: g.expiry(deadline.Now() - i.Age), age: i.Age})
			}
		}
	}
	slices.SortStableFunc(mine, func(a, b Mine) int { return cmp.Compare(b.age, a.age) })
	return mine, nil
}

// idOf is what finds a run, "" where nobody has said it since the start.
func (g *Registry) idOf(r *Run) string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return r.id
}
