package durable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const moving = `
version: 1
initial: a
registers: {n: counter}
everywhere: {tools: {look: stay, count: {set: {n: {add: 1}}}}}
states:
  a: {tools: {go: b}}
  b: {tools: {go: a, done: c}}
  c: {}
`

// rewritten is a store in which somebody has altered a row.
type rewritten struct {
	journal.Store
	row       func(*journal.Row) // nil: nobody has
	meanwhile func()             // is done once before records are read; nil: nothing is
}

func (s *rewritten) Records(ctx context.Context, id string, after uint64, limit int) ([]journal.Record, error) {
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		do()
	}
	return s.Store.Records(ctx, id, after, limit)
}

func (s *rewritten) alter(r journal.Row, err error) (journal.Row, error) {
	if s.row != nil {
		s.row(&r)
	}
	return r, err
}

func (s *rewritten) Take(ctx context.Context, id string) (journal.Row, error) {
	return s.alter(s.Store.Take(ctx, id))
}

func (s *rewritten) Row(ctx context.Context, id string) (journal.Row, error) {
	return s.alter(s.Store.Row(ctx, id))
}

func (s *rewritten) Find(ctx context.Context, k journal.Key) (journal.Row, error) {
	return s.alter(s.Store.Find(ctx, k))
}

// lived is a run of which anything may become, and where it is kept.
type lived struct {
	t      *rapid.T
	kept   *rewritten
	s      *durable.Store
	key    journal.Key
	secret []byte
	c      run.Config
	now    time.Time
	r      run.Run
	place  *durable.Run
	open   []*run.Call
	ended  bool
}

func begins(t *rapid.T, p *policy.Policy) *lived {
	l := &lived{t: t, kept: &rewritten{Store: memory.New(0)}, key: durable.KeyOf("header", "a"), now: time.Unix(1000, 0)}
	keep := rapid.SampledFrom([]int{0, 1, 3, 8}).Draw(t, "keep")
	if rapid.Bool().Draw(t, "keyed") {
		l.secret = []byte("a key that stands elsewhere")
	}
	l.s = durable.Open(durable.Config{Journal: l.kept, Key: l.secret, Keep: keep, Compile: func([]byte) (*policy.Policy, error) { return p, nil }, Log: hclog.NewNullLogger()})
	if err := l.s.Keep(p, []byte("p")); err != nil {
		t.Fatal(err)
	}
	l.c = run.Config{Policy: p, Lasts: true, Shared: &run.Shared{Checkpoint: l.s.Checkpoint()}}
	l.r, l.place = run.New(l.c, l.now), l.s.Begin("R", l.key, wire.Principal{Issuer: "i", Subject: "ann"}, l.now)
	l.write()
	return l
}

// write has all be durable that the run has made.
func (l *lived) write() {
	made := l.r.Made()
	if len(made) == 0 {
		return
	}
	ticket, err := l.place.Write(made, l.r.DueAhead(), l.now, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.s.KeepSession("all before it is written then", nil); err != nil {
		l.t.Fatal(err)
	}
	if <-ticket.Done(); ticket.Err() != nil {
		l.t.Fatal(ticket.Err())
	}
	for _, e := range made {
		if e.Pending() != nil {
			l.r.Durable(e.Pending(), l.now)
		}
	}
}

// calls has calls be sent, some of which come to no end until later.
func (l *lived) calls(name string) {
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true}}
	if a, _ := l.r.Enter(c, 0, l.now); a != run.Admitted || c.Verdict.Code != 0 {
		l.r.Decline(c, c.Verdict.Code, l.now)
		return
	}
	if _, ok := l.r.Begin(c, l.now); ok {
		l.open = append(l.open, c)
	}
}

func (l *lived) settles() {
	if len(l.open) == 0 {
		return
	}
	c := l.open[0]
	l.open = l.open[1:]
	end := run.End{Outcome: rapid.SampledFrom([]policy.Outcome{policy.Success, policy.Error, policy.Unknown}).Draw(l.t, "outcome")}
	if _, _, err := l.r.Settle(c, end, l.now); err != nil {
		l.t.Fatal(err)
	}
	l.r.Stay(c, end, l.now)
}

// again reads the run as another process would.
func (l *lived) again() {
	if l.ended {
		return
	}
	kept, _, err := l.s.Find(l.t.Context(), l.key)
	if err != nil {
		l.t.Fatal(err)
	}
	l.place, l.r, l.open = kept.Run, run.Replay(l.c, slices.Values(kept.Entries), l.now), nil
}

func (l *lived) finish(whileRead bool) {
	l.kept.meanwhile = func() {
		l.r.Finish(run.Remark{}, l.now)
		l.ended = true
		l.write()
	}
	if !whileRead {
		l.kept.meanwhile()
		l.kept.meanwhile = nil
	} else if _, _, err := l.s.Find(l.t.Context(), l.key); err != nil {
		l.t.Fatalf("it ended while it was read: %v", err)
	}
}

// found is what 'verify' says of the run, and what the proxy does.
func (l *lived) found() (fault *journal.Fault, ended bool, shut error) {
	row, err := l.kept.Row(l.t.Context(), "R")
	if err == nil {
		fault, err = durable.Verifier(l.secret)(&row, journal.All(l.t.Context(), l.kept, "R"))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	_, ended, shut = l.s.Find(l.t.Context(), l.key)
	return fault, ended, shut
}

// Whatever becomes of a run, its row and its entries agree; and whichever of what the row says is another thing, 'verify'
// names the run, and it is shut.
func TestRowsAgreeWithEntries(t *testing.T) {
	p, findings := policy.Parse("test.yaml", []byte(moving))
	if p == nil {
		t.Fatal(findings)
	}
	rapid.Check(t, func(t *rapid.T) {
		l := begins(t, p)
		defer l.s.Close(context.Background())
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"call", "call", "call", "settle", "settle", "settle", "later", "annotate", "again", "reset", "finish"}).Draw(t, "step") {
			case "call":
				l.calls(rapid.SampledFrom([]string{"go", "count", "look", "done"}).Draw(t, "name"))
			case "settle":
				l.settles()
			case "later":
				l.now = l.now.Add(time.Hour)
				l.r.Declined(l.now)
			case "annotate":
				l.r.Annotate(run.Remark{Who: "olga", Text: "x"}, l.now)
			case "again":
				l.again()
			case "reset":
				if !l.ended {
					l.r.RestartBy(run.Remark{Who: "olga"}, l.now)
				}
			case "finish":
				if l.r.Seq() > 1 && rapid.IntRange(0, 3).Draw(t, "for good") == 0 {
					l.finish(rapid.Bool().Draw(t, "while it is read"))
				}
			}
			l.write()
			if fault, ended, shut := l.found(); fault != nil || shut != nil || ended != l.ended {
				t.Fatalf("%v, %v; it has ended: %t, and has: %t", fault, shut, ended, l.ended)
			}
		}
		if l.ended && rapid.Bool().Draw(t, "forgotten while it is read") {
			l.kept.meanwhile = func() { <-l.place.Remove().Done() }
			if _, _, err := l.s.Find(t.Context(), l.key); !errors.Is(err, journal.ErrNone) {
				t.Fatal(err)
			}
			return
		}
		whatever := map[string]func(*journal.Row){
			"ended":      func(r *journal.Row) { r.Ended = l.now },
			"state":      func(r *journal.Row) { r.State += "x" },
			"complete":   func(r *journal.Row) { r.Complete = !r.Complete },
			"policy":     func(r *journal.Row) { r.Policy = "another" },
			"checkpoint": func(r *journal.Row) { r.Checkpoint = 0 },
			"later":      func(r *journal.Row) { r.Checkpoint++ },
			"none":       func(r *journal.Row) { r.At = journal.Point{} },
			"owner":      func(r *journal.Row) { r.Owner.Subject = "mallory" },
			"key":        func(r *journal.Row) { r.Key.Hash[3] ^= 1 },
		}
		what := rapid.SampledFrom([]string{"ended", "state", "complete", "policy", "checkpoint", "later", "none", "owner", "key"}).Draw(t, "what")
		row, err := l.kept.Row(t.Context(), "R")
		if err != nil {
			t.Fatal(err)
		}
		if l.kept.row = whatever[what]; l.ended && what == "ended" {
			l.kept.row = func(r *journal.Row) { r.Ended = time.Time{} }
		}
		if what == "checkpoint" && row.Checkpoint == 0 { // it is what it was
			return
		}
		fault, _, shut := l.found()
		if fault == nil {
			t.Errorf("%s: 'verify' does not see it", what)
		}
		if _, is := errors.AsType[*durable.Damaged](shut); !is && (!l.ended || what == "ended") { // one that has ended stays so
			t.Errorf("%s: the run is not shut: %v", what, shut)
		}
	})
}

// Who verifies a store reads a row, and then records, which may have become more: the row tells nothing of those. A record
// that is hashed as it has to be, and is no entry, is found.
func TestRecordsBehindTheRow(t *testing.T) {
	chain := journal.NewChain(nil)
	for last, want := range map[string]journal.Damage{
		`{"type":"ended","from":"a","to":{"state":"b","policy":"p"}}`:    "",
		`{"type":"finished","from":"b","to":{"state":"b","policy":"p"}}`: "",
		"x": journal.Edited,
	} {
		row, at := journal.Row{ID: "R"}, journal.Point{}
		var records []journal.Record
		for _, text := range []string{`{"type":"began","from":"a","to":{"state":"a","policy":"p"}}`, last} {
			at = chain.Next("R", at, []byte(text))
			records = append(records, journal.Record{Seq: at.Seq, Hash: at.Hash, Bytes: []byte(text)})
			if text != last || want != "" {
				row.Last = at
			}
			if text != last {
				row.Head = journal.Head{At: at, State: "a", Policy: "p"}
			}
		}
		fault, err := durable.Verifier(nil)(&row, func(yield func(journal.Record, error) bool) {
			_ = yield(records[0], nil) && yield(records[1], nil)
		})
		if err != nil || (fault == nil) != (want == "") || fault != nil && (fault.Damage != want || fault.Seq != 2) {
			t.Errorf("%s: %v, %v", last, fault, err)
		}
	}
}
