package runs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// The same principals find a run before and after a restart, whoever has begun it, and however often somebody has come.
func TestWhoFindsARunOverRestarts(t *testing.T) {
	const unguessable = "abcdefghijklmnopqrstuvwxyz"
	nobody := wire.Principal{}
	header := runs.Key{Kind: runs.Header, Header: "X-Run"}
	path, handle := runs.Key{Kind: runs.Path}, runs.Key{Kind: runs.Handle}
	comes := func(p *process, id string, who wire.Principal) (*runs.Run, *runs.Missing) {
		return p.Find(bridge.Stateless, &observe.Peer{Principal: who, Run: id, Trusted: true, Header: func(string) []string { return []string{id} }}, id, true)
	}
	byOperator := func(b runs.Beginning) func(*testing.T, *process) string {
		return func(t *testing.T, p *process) string {
			b.By = run.Remark{Who: "admin|olga"}
			_, id, err := p.StartBy(b)
			if err != nil {
				t.Fatal(err)
			}
			if b.Value != "" {
				id = b.Value
			}
			return id
		}
	}
	byStart := func(who wire.Principal) func(*testing.T, *process) string {
		return func(t *testing.T, p *process) string {
			id, err := p.Start(bridge.Stateless, who)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	byComing := func(who wire.Principal) func(*testing.T, *process) string {
		return func(t *testing.T, p *process) string {
			if _, why := comes(p, unguessable, who); why != nil {
				t.Fatal(why)
			}
			return unguessable
		}
	}
	come := []wire.Principal{nobody, ann, bob, nobody, ann}
	first, anns, anonymous := []bool{true, true, false, false, true}, []bool{false, true, false, false, true}, []bool{true, false, false, true, false}
	for name, x := range map[string]struct {
		key    runs.Key
		begins func(*testing.T, *process) string
		want   []bool // who finds it, of those who come
	}{
		"header of an operator":         {header, byOperator(runs.Beginning{Key: "header", Value: "x"}), first},
		"header of an operator for ann": {header, byOperator(runs.Beginning{Key: "header", Value: "x", Owner: ann}), anns},
		"header of ann":                 {header, byComing(ann), anns},
		"header of nobody":              {header, byComing(nobody), anonymous},
		"path of an operator":           {path, byOperator(runs.Beginning{Key: "path"}), first},
		"path of an operator for ann":   {path, byOperator(runs.Beginning{Key: "path", Owner: ann}), anns},
		"path that is minted":           {path, byStart(nobody), first},
		"path that a client has taken":  {path, byComing(ann), anns},
		"path that nobody has taken":    {path, byComing(nobody), anonymous},
		"handle of an operator":         {handle, byOperator(runs.Beginning{Key: "handle"}), first},
		"handle of an operator for ann": {handle, byOperator(runs.Beginning{Key: "handle", Owner: ann}), anns},
		"handle of ann":                 {handle, byStart(ann), anns},
		"handle of nobody":              {handle, byStart(nobody), anonymous},
	} {
		for restarts := range len(come) + 2 { // before so many come: none, one of them, or each
			t.Run(fmt.Sprintf("%s, %d", name, restarts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, c := newDisk(), runs.Config{Keys: keyed(x.key), PathCreate: true}
					p := kept(t, d, c)
					id := x.begins(t, p)
					var got []bool
					of := p.Infos()[0].Name
					for i, who := range come {
						if restarts == i+1 || restarts > len(come) {
							p.ends()
							p = kept(t, d, c)
						}
						r, why := comes(p, id, who)
						if why == nil && r.Name != of {
							t.Error("there is another run")
						}
						got = append(got, why == nil)
					}
					if !slices.Equal(got, x.want) {
						t.Errorf("it is found by %v, want %v", got, x.want)
					}
					p.ends()
				})
			})
		}
	}
}

// A run is begun for a principal of whom all is said, or for nobody yet: by half of it nobody would find the run.
func TestOwnerOfWhomHalfIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, k := range []runs.Key{{Kind: runs.Principal}, {Kind: runs.Path}} {
			p := kept(t, newDisk(), runs.Config{Keys: keyed(k)})
			for _, owner := range []wire.Principal{{Subject: "ann"}, {Issuer: "tokens"}} {
				if r, _, err := p.StartBy(runs.Beginning{Key: k.Kind.String(), Owner: owner}); err == nil || !strings.Contains(err.Error(), "give issuer and subject") {
					t.Errorf("%v: a run of %+v has begun: %v, %v", k, owner, r != nil, err)
				}
			}
			p.Close()
		}
	})
}

// Who came to a run after it had begun is told of it before and after a restart, among their other runs.
func TestRunsOfWhoCameLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newDisk(), runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle})}
		p := kept(t, d, c)
		var want []string
		for i := range 6 {
			var b runs.Beginning
			b.Key = "handle"
			if i%2 == 0 {
				b.Owner = ann
			}
			r, id, err := p.StartBy(b)
			if err != nil {
				t.Fatal(err)
			}
			who := ann
			if i == 5 {
				who = bob
			} else {
				want = append(want, r.Name)
			}
			if _, why := find(p.Registry, id, who); why != nil {
				t.Fatal(why)
			}
		}
		slices.Sort(want)
		for _, when := range []string{"before", "after"} {
			mine, err := p.Mine(ann)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range mine {
				got = append(got, m.Name)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s a restart ann has %q, want %q", when, got, want)
			}
			var listed []string
			for after := ""; ; after = listed[len(listed)-1] { // for an operator, in pages
				infos, _, err := p.List(t.Context(), runs.Query{After: after, Limit: 2, Subject: ann.Subject, Issuer: ann.Issuer})
				if err != nil {
					t.Fatal(err)
				}
				if infos = slices.DeleteFunc(infos, func(i runs.Info) bool { return i.Name <= after }); len(infos) == 0 {
					break
				}
				for _, i := range infos[:min(2, len(infos))] {
					listed = append(listed, i.Name)
				}
			}
			if !slices.Equal(listed, want) {
				t.Errorf("%s a restart %q are listed, want %q", when, listed, want)
			}
			p.ends()
			p = kept(t, d, c)
		}
		p.ends()
	})
}

// A run that is released has left memory, and is for others to go on with, until who is to have it says that nobody has it.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kept(t, newDisk(), runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle})})
		defer p.ends()
		id, err := p.Start(bridge.Stateless, ann)
		if err != nil {
			t.Fatal(err)
		}
		r := p.All()[0]
		if err := p.Release(t.Context(), r); err != nil || len(p.All()) != 0 || !r.Lost() {
			t.Fatalf("it is here still: %v", err)
		}
		gone := func(why *runs.Missing) bool { return why != nil && why.At != nil }
		nobodyJoins(t, p.Registry, r, gone) // who has found it before looks for it again
		if why := p.End(r); !gone(why) {
			t.Errorf("its client ends it: %v", why)
		}
		for range 2 {
			_, why := find(p.Registry, id, ann)
			if why == nil || why.At == nil || why.At.Run != r.Name || why.At.By != (journal.Peer{}) {
				t.Fatalf("it is missing for another reason: %v", why)
			}
		}
		if again, err := p.Like(r.Name); again != nil || err == nil {
			t.Errorf("an operator has it: %v", err)
		}
		p.Outdate("another")
		if _, why := find(p.Registry, id, ann); why == nil {
			t.Error("it is found since another one was to be looked for")
		}
		p.Outdate(r.Name)
		if again, why := find(p.Registry, id, ann); why != nil || again.Name != r.Name || again == r {
			t.Errorf("it is not found again: %v", why)
		}
	})
}
