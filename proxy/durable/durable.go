// Package durable keeps runs in a journal: entries as the records of a chain, where a run stands as its row, and the
// policies that either names.
package durable

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json/v2"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Config is what a Store works with.
type Config struct {
	Journal journal.Store
	Key     []byte        // that records are hashed by; nil: without one
	Timeout time.Duration // for how long a call waits until it is durable that it has begun, or ended; 0: 10s
	Keep    int           // how many entries of a run are kept before its last checkpoint; 0: all
	Bounds  Bounds        // of what is kept
	Record  run.Recording // of calls' arguments
	// Compile makes a policy of what [Store.Keep] was given.
	Compile func(source []byte) (*policy.Policy, error)
	Wrote   func(journal.Wrote) // is told of each commit; nil: nobody is
	Log     hclog.Logger
}

// Store is where a proxy keeps its runs. It is safe for concurrent use.
type Store struct {
	cfg    Config
	chain  journal.Chain
	write  *journal.Committer
	limits *limit.Principals
	shared journal.Shared // nil: the journal is one that a process has alone
	size   atomic.Int64
	left   atomic.Uint64 // how many facts were left out

	takeovers atomic.Uint64
	lost      atomic.Int64   // the last lease that was lost; 0: none was
	rereading [16]sync.Mutex // each guards the reading of what some principals have taken of limits

	sessions sessions
	stock    stock

	mu       sync.Mutex                // guards what follows
	reread   map[string]time.Time      // when it was read last what a principal has taken, since a call was refused
	policies map[string]*policy.Policy // by digest
	enforced string                    // the digest of the policy that this process enforces; "": none yet
}

// Open returns a Store over a journal, which it closes.
func Open(c Config) *Store {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	s := &Store{cfg: c, chain: journal.NewChain(c.Key), limits: limit.NewPrincipals(0), sessions: newSessions(), stock: stock{crowded: make(chan struct{}, 1)}, policies: make(map[string]*policy.Policy)}
	if s.shared, _ = c.Journal.(journal.Shared); s.Shared() {
		s.limits.Share()
	}
	s.write = journal.NewCommitter(journal.CommitterConfig{Store: c.Journal, Wrote: c.Wrote, Health: func(err error) {
		if err != nil {
			c.Log.Error("the store cannot be written: what would move a run is refused until it can", "error", err)
			return
		}
		c.Log.Info("the store can be written again")
	}})
	return s
}

// Close writes what waits to be written, and closes the journal.
func (s *Store) Close(ctx context.Context) error {
	_ = s.SaveLimits(time.Now()) // or more is counted than was taken
	return errors.Join(s.write.Close(ctx), s.cfg.Journal.Close())
}

// Down is why nothing can be written now, nil where it can.
func (s *Store) Down() error {
	_, err := s.write.Waiting()
	if err == nil && s.shared != nil && !s.shared.Trusts(s.shared.Lease()) {
		err = errLapsed
	}
	return err
}

// Waiting is how many changes wait to be written.
func (s *Store) Waiting() int {
	n, _ := s.write.Waiting()
	return n
}

// Room reports whether there is room for a fact that changes nothing. Where there is none it is left out, and counted.
func (s *Store) Room() bool {
	ok := s.write.Room()
	if !ok {
		s.left.Add(1)
	}
	return ok
}

// LeftOut is how many facts that change nothing were left out.
func (s *Store) LeftOut() uint64 { return s.left.Load() }

// Size is how many bytes the store takes, or took when that could be found out last.
func (s *Store) Size() int64 {
	ctx, stop := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer stop()
	if size, err := s.cfg.Journal.Size(ctx); err == nil {
		s.size.Store(size)
	}
	return s.size.Load()
}

// Recording is what is kept of the arguments of calls.
func (s *Store) Recording() *run.Recording { return &s.cfg.Record }

// Timeout is for how long a call waits.
func (s *Store) Timeout() time.Duration { return s.cfg.Timeout }

// often is after how many entries there is a checkpoint where all are kept: so many a run is read of at the most, and few
// more.
const often = 10_000

// Checkpoint is after how many entries of a run there is a checkpoint.
func (s *Store) Checkpoint() int { return cmp.Or(s.cfg.Keep, often) }

// The kinds of what is kept beside records.
const (
	policyObject = "policy" // by its digest
	ownerObject  = "owner"  // of a run, by its id, that is somebody's who came after it had begun, or is to be
)

// Keep keeps a policy that is about to come into force, before any run that names it. source is what Compile reads.
func (s *Store) Keep(p *policy.Policy, source []byte) error {
	if err := s.enforce(p); err != nil {
		return err
	}
	s.mu.Lock()
	s.policies[p.Digest()] = p
	s.mu.Unlock()
	_, err := s.write.Submit(journal.Change{Objects: []journal.Object{{Kind: policyObject, Name: p.Digest(), Bytes: source}}}, journal.Must)
	return err
}

// policy finds a policy that was kept.
func (s *Store) policy(ctx context.Context, digest string) (*policy.Policy, error) {
	s.mu.Lock()
	p := s.policies[digest]
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := readPolicy(ctx, s.cfg.Journal, s.cfg.Compile, digest)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.policies[digest]; kept != nil {
		return kept, nil
	}
	s.policies[digest] = p
	return p, nil
}

// KeyOf is how a journal knows what finds a run: by its hash alone.
func KeyOf(kind, id string) journal.Key {
	return journal.Key{Kind: kind, Hash: sha256.Sum256([]byte(kind + "\x00" + id))}
}

// Run is a run's place in the journal. It is not safe for concurrent use: its entries are in order.
type Run struct {
	s     *Store
	id    string         // never another: it may be asked for at any time
	under journal.Tenure // likewise
	row   journal.Row
	fresh bool              // it is not written yet
	free  bool              // it is the first principal's who comes
	whose string            // as it began: see [whose]
	tasks map[uint64][]byte // see [Run.Tasks]

	last    *journal.Ticket // of what was handed over last; nil: nothing was
	dropped bool            // somebody else writes it from now on
	doubted atomic.Bool     // see [Run.Doubt]
}

// Begin returns the place of a run that begins, of which nothing is written yet.
func (s *Store) Begin(id string, key journal.Key, owner wire.Principal, now time.Time) *Run {
	row := journal.Row{ID: id, Key: key, Owner: journal.Principal{Issuer: owner.Issuer, Subject: owner.Subject}, Began: now}
	row.Tenure = journal.Beginning(s.cfg.Journal)
	return &Run{s: s, id: id, under: row.Tenure, fresh: true, whose: whose(&row), row: row}
}

// ID is what the journal calls the run.
func (r *Run) ID() string { return r.id }

// Owner is whose it is.
func (r *Run) Owner() wire.Principal {
	return wire.Principal{Issuer: r.row.Owner.Issuer, Subject: r.row.Owner.Subject}
}

// Began is when it began.
func (r *Run) Began() time.Time { return r.row.Began }

// owner is what is kept of whose a run is that began as nobody's.
type owner struct {
	Issuer  string `json:",omitzero"`
	Subject string `json:",omitzero"`
	Free    bool   `json:"free,omitzero"` // it is the first principal's who comes
}

func (r *Run) object(o owner) (journal.Object, error) {
	text, err := json.Marshal(&o)
	return journal.Object{Kind: ownerObject, Name: r.id, Run: r.id, Bytes: text}, err
}

// SetFree has it kept with the beginning of the run that it is the first principal's who comes.
func (r *Run) SetFree() { r.free = true }

// IsFree reports whether it is.
func (r *Run) IsFree() bool { return r.free }

// Own keeps whose the run is that was the first principal's who comes. The ticket tells when it is durable.
func (r *Run) Own(by wire.Principal) (*journal.Ticket, error) {
	o, err := r.object(owner{Issuer: by.Issuer, Subject: by.Subject})
	if err != nil {
		return nil, err
	}
	t, err := r.s.write.Submit(journal.Change{Run: r.id, Tenure: r.under, Objects: []journal.Object{o}}, journal.Must)
	if err == nil {
		r.row.Owner, r.free = journal.Principal{Issuer: by.Issuer, Subject: by.Subject}, false
	}
	return t, err
}

// owned reads whose a run has become since it began, or is to be.
func (r *Run) owned(ctx context.Context) (err error) {
	if r.row.Owner == (journal.Principal{}) {
		r.row.Owner, r.free, err = ownerOf(ctx, r.s.cfg.Journal, r.id)
	}
	return err
}

// ownerOf reads whose the run of an id has become since it began: nobody's, where that is not kept.
func ownerOf(ctx context.Context, j journal.Reader, id string) (by journal.Principal, free bool, err error) {
	text, err := j.Object(ctx, ownerObject, id)
	if errors.Is(err, journal.ErrNone) {
		return by, false, nil
	}
	var o owner
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return journal.Principal{Issuer: o.Issuer, Subject: o.Subject}, o.Free, err
}

// useful is how exactly a row tells when its run was used last.
const useful = time.Minute

// Write hands over what a run has made, which stands there then, and is moved by the clock of its state when that is
// due. The ticket tells when it is durable, and then is called before, as [journal.Change] has it.
func (r *Run) Write(entries []run.Entry, due time.Time, now time.Time, then func()) (*journal.Ticket, error) {
	c := journal.Change{Run: r.row.ID, Tenure: r.under, Then: then, Records: make([]journal.Record, 0, len(entries))}
	if r.dropped {
		return nil, journal.ErrConflict
	}
	when, head, at, checkpoint, ended := journal.Soon, r.fresh || r.row.Ended.IsZero() && now.Sub(r.row.Used) > useful, r.row.Last, r.row.Checkpoint, r.row.Ended
	for i := range entries {
		e := &entries[i]
		text, err := r.text(e, at.Seq+1)
		if err != nil {
			return nil, err
		}
		at = r.s.chain.Next(r.row.ID, at, text)
		r.over(e, &c)
		c.Records = append(c.Records, journal.Record{Seq: at.Seq, Hash: at.Hash, Bytes: text})
		if e.Pending() != nil || e.Type == run.Began || e.Type == run.Forked || e.Type == run.Finished {
			when = journal.Must
		}
		if head = head || e.From != e.To || e.Type == run.Finished; e.Type == run.Finished {
			ended = now
		}
		if e.Type == run.Checkpoint { // what goes for it goes at once with it
			c.Cut = r.s.before(at.Seq, checkpoint)
			when, head, checkpoint = journal.Must, true, at.Seq
		}
	}
	row := r.row
	row.Last = at
	if last := &entries[len(entries)-1]; head {
		row.Head = journal.Head{At: at, State: last.To.State(), Complete: last.To.At.Complete, Policy: last.To.Policy.Digest(), Checkpoint: checkpoint, Due: due, Used: now, Ended: ended}
		h := row.Head
		c.Head = &h
	}
	if r.fresh {
		begin := row
		c.Begin, c.Cut = &begin, 0
		if r.free {
			o, err := r.object(owner{Free: true})
			if err != nil {
				return nil, err
			}
			c.Objects = append(c.Objects, o)
		}
	}
	t, err := r.s.submit(c, when, limitsOf(entries), entries, now)
	if err != nil {
		return t, err
	}
	if r.fresh {
		r.s.entered()
	}
	r.row, r.fresh, r.last = row, false, t
	return t, nil
}

// Written reports whether all that was handed over is written, or never can be.
func (r *Run) Written() bool { return r.last == nil || r.last.IsDone() }

// Last is the ticket of what was handed over last, nil for nothing.
func (r *Run) Last() *journal.Ticket { return r.last }

// before is up to which record none is kept any more, of a run that has a checkpoint, and had another one before, 0 for
// none; 0: all are. What is kept begins with a checkpoint: of each entry behind it, it can be told what the run was then.
func (s *Store) before(checkpoint, last uint64) uint64 {
	if keep := uint64(s.cfg.Keep); keep > 0 && checkpoint-1 > keep {
		return min(checkpoint-1-keep, max(last, 1)-1)
	}
	return 0
}

// Drop has nothing more be written of the run by this place of it. The ticket is that of what was handed over last, nil
// for nothing.
func (r *Run) Drop() *journal.Ticket {
	r.dropped = true
	return r.last
}

// Remove has nothing kept of the run any more. The ticket tells when it is gone; nil: the store is closed.
func (r *Run) Remove() *journal.Ticket {
	t, err := r.s.write.Submit(journal.Change{Run: r.id, Tenure: r.under, Remove: true}, journal.Must)
	if err != nil {
		return nil
	}
	return t
}

// text is an entry as it is kept: what a record says of itself, and then what the entry does.
func (r *Run) text(e *run.Entry, seq uint64) ([]byte, error) {
	to := append(make([]byte, 0, 512), `{"run":"`...)
	to = append(append(to, r.row.ID...), `","seq":`...)
	to = strconv.AppendUint(to, seq, 10)
	if key := r.s.chain.KeyID(); key != "" {
		to = append(append(append(to, `,"key":"`...), key...), '"')
	}
	if e.Type == run.Began || e.Type == run.Forked || e.Type == run.Checkpoint { // from which a run is read
		to = append(append(append(to, `,"whose":"`...), r.whose...), '"')
	}
	at := len(to)
	to, err := e.AppendJSON(to)
	if err == nil {
		to[at] = ',' // in place of the brace
	}
	return to, err
}

// Loaded is a run as it is kept.
type Loaded struct {
	*Run
	Entries []run.Entry
}

// Damaged is the error of a run that cannot be gone on with: what is kept of it is not what was written, or cannot be
// read.
type Damaged struct {
	Run string
	Err error
}

// Error says which run is shut, and why. It wraps nothing: damage is no [journal.ErrNone], whatever is missing.
func (d *Damaged) Error() string { return fmt.Sprintf("run %s is shut: %v", d.Run, d.Err) }

// IsDamaged reports whether an error is a [Damaged].
func IsDamaged(err error) bool {
	_, ok := errors.AsType[*Damaged](err)
	return ok
}

// Find reads the run of a key that has not ended, or is an [journal.ErrNone], or a [journal.Elsewhere]. ended tells that it
// is there, and has. From then on this process writes it.
func (s *Store) Find(ctx context.Context, key journal.Key) (l *Loaded, ended bool, err error) {
	row, err := s.cfg.Journal.Find(ctx, key)
	for err == nil {
		l, ended, err = s.found(ctx, row)
		if !IsDamaged(err) {
			return l, ended, err
		}
		again, none := s.cfg.Journal.Find(ctx, key)
		if row.Tenure = again.Tenure; none == nil && again == row { // but that it was taken
			return nil, false, err
		}
		row, err = again, none // it was written, or removed, while it was read
	}
	return nil, false, err
}

// found reads the run of a row.
func (s *Store) found(ctx context.Context, row journal.Row) (l *Loaded, ended bool, err error) {
	if !row.Ended.IsZero() {
		if err := s.hasEnded(ctx, &row); err != nil {
			return nil, false, err
		}
		l = &Loaded{Run: &Run{s: s, id: row.ID, under: row.Tenure, row: row}}
		return l, true, l.owned(ctx)
	}
	before := row.Tenure.Lease
	if row, err = s.cfg.Journal.Take(ctx, row.ID); err == nil {
		if before != 0 && before != row.Tenure.Lease {
			s.takeovers.Add(1)
		}
		l, err = s.load(ctx, &row)
	}
	return l, false, err
}

// hasEnded looks at whether a run has ended of which its row says so: who believed that of one that goes on would begin
// another. Most often the record that the row tells of is its end; else the run is read.
func (s *Store) hasEnded(ctx context.Context, row *journal.Row) error {
	records, err := s.cfg.Journal.Records(ctx, row.ID, max(row.At.Seq, 2)-2, 2)
	if err == nil && len(records) == 2 && s.chain.Next(row.ID, journal.Point{Seq: records[0].Seq, Hash: records[0].Hash}, records[1].Bytes) == row.At {
		if e, err := readSays(records[1].Bytes); err == nil && e.is(run.Finished) {
			return nil
		}
	}
	if err == nil {
		_, err = s.load(ctx, row)
	}
	return err
}

// load reads a run from its last checkpoint on: what is kept of before it is history, which [Verifier] looks at, and
// nothing hangs on.
func (s *Store) load(ctx context.Context, row *journal.Row) (*Loaded, error) {
	base, err := s.origin(ctx, row)
	if err != nil {
		return nil, err
	}
	l := &Loaded{Run: &Run{s: s, id: row.ID, under: row.Tenure, whose: whose(row), row: *row}}
	if err := s.verified(ctx, row, base, math.MaxUint64, func(e *run.Entry) { l.Entries = append(l.Entries, *e) }); err != nil {
		return nil, err
	}
	if err := errors.Join(l.owned(ctx), l.readTasks(ctx)); err != nil {
		return nil, err
	}
	if first := base.Seq + 1; first > 1 && l.Entries[0].Type != run.Checkpoint {
		return nil, &Damaged{row.ID, fmt.Errorf("record %d is no checkpoint, and those before it are not read", first)}
	}
	return l, nil
}

// verified gives the entries of a run behind a base to add, in their order, as long as they are what was written, and its row
// agrees with those up to a number. The error is a [Damaged], or the store's.
func (s *Store) verified(ctx context.Context, row *journal.Row, base journal.Point, until uint64, add func(*run.Entry)) error {
	var unread error
	fault, err := verify(s.chain, row, base, until, func(yield func(journal.Record, error) bool) {
		for x, err := range journal.Behind(ctx, s.cfg.Journal, row.ID, base.Seq) {
			if !yield(x, err) {
				return
			}
			if unread != nil {
				continue
			}
			e, err := s.entry(ctx, x.Bytes)
			if err != nil {
				unread = fmt.Errorf("record %d: %w", x.Seq, err)
				continue
			}
			e.Seq = x.Seq
			add(&e)
		}
	})
	switch {
	case err != nil:
		return err
	case fault != nil:
		return &Damaged{row.ID, fault}
	case unread != nil:
		return &Damaged{row.ID, unread}
	}
	return nil
}

// origin is the point before a run's last checkpoint: what is read of the run is behind it.
func (s *Store) origin(ctx context.Context, row *journal.Row) (journal.Point, error) {
	if row.Checkpoint <= row.Base.Seq+1 {
		return row.Base, nil
	}
	records, err := s.cfg.Journal.Records(ctx, row.ID, row.Checkpoint-2, 1)
	if err != nil {
		return journal.Point{}, err
	}
	if len(records) != 1 || records[0].Seq != row.Checkpoint-1 {
		return journal.Point{}, &Damaged{row.ID, &journal.Fault{Run: row.ID, Seq: row.Checkpoint, Damage: journal.Gap, Why: "the one before it is missing"}}
	}
	return journal.Point{Seq: records[0].Seq, Hash: records[0].Hash}, nil
}

func (s *Store) entry(ctx context.Context, text []byte) (run.Entry, error) {
	return readEntry(ctx, text, s.policy)
}

// Due returns the keys of the runs whose state's clock is due by a time, whether or not anybody has them.
func (s *Store) Due(ctx context.Context, by time.Time) (keys []journal.Key, err error) {
	for r, err := range journal.Rows(ctx, s.cfg.Journal, journal.Query{DueBy: by}) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, r.Key)
	}
	return keys, nil
}

// Rows are the rows of the runs that are kept, by their ids. One whose owner came after it had begun has it.
func (s *Store) Rows(ctx context.Context, q journal.Query) iter.Seq2[journal.Row, error] {
	return func(yield func(journal.Row, error) bool) {
		came, err := s.cameTo(ctx, &q)
		if err != nil {
			yield(journal.Row{}, err)
			return
		}
		give := func(before string) bool { // "": all
			for len(came) > 0 && (before == "" || came[0].ID < before) {
				r := came[0]
				if came = came[1:]; !yield(r, nil) {
					return false
				}
			}
			return true
		}
		for r, err := range journal.Rows(ctx, s.cfg.Journal, q) {
			if err == nil && q.Owner == nil && (r.Key.Kind == "path" || r.Key.Kind == "handle" || r.Key.Kind == "header") { // which may begin before anybody owns them
				of := Run{s: s, id: r.ID, row: r}
				err = of.owned(ctx)
				r = of.row
			}
			if err == nil && !give(r.ID) || !yield(r, err) {
				return
			}
		}
		give("")
	}
}

// cameTo are the rows of a query's owner who came after the runs had begun, by their ids: no query finds those.
func (s *Store) cameTo(ctx context.Context, q *journal.Query) (rows []journal.Row, err error) {
	if q.Owner == nil {
		return nil, nil
	}
	for x, err := range s.objects(ctx, ownerObject, q.After) {
		if err != nil {
			return nil, err
		}
		var o owner
		if err := json.Unmarshal(x.Bytes, &o); err != nil || *q.Owner != (journal.Principal{Issuer: o.Issuer, Subject: o.Subject}) {
			continue
		}
		r, err := s.cfg.Journal.Row(ctx, x.Name)
		if errors.Is(err, journal.ErrNone) { // it is kept no longer just now
			continue
		}
		if err != nil {
			return nil, err
		}
		if r.Owner = *q.Owner; q.Has(&r) {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// Like returns the row of a run, or some of those whose ids begin so, at most two.
func (s *Store) Like(ctx context.Context, id string) ([]journal.Row, error) {
	r, err := s.cfg.Journal.Row(ctx, id)
	if errors.Is(err, journal.ErrNone) {
		return s.cfg.Journal.List(ctx, journal.Query{Prefix: id, Limit: 2})
	}
	return []journal.Row{r}, err
}

// Forget has nothing kept any more of runs that have ended before a time, or that nobody has used since another, zero
// for none. held reports whether a run of a key is in memory: such a one is kept. It returns how many it was.
func (s *Store) Forget(ctx context.Context, endedBefore, usedBefore time.Time, held func(journal.Key) bool) (n int, err error) {
	for _, q := range []journal.Query{{EndedBefore: endedBefore}, {UsedBefore: usedBefore}} {
		if q.EndedBefore.IsZero() && q.UsedBefore.IsZero() {
			continue
		}
		for r, err := range journal.Rows(ctx, s.cfg.Journal, q) {
			if err != nil {
				return n, err
			}
			live := r.Ended.IsZero()
			if live && held(r.Key) {
				continue
			}
			if r, err = s.cfg.Journal.Take(ctx, r.ID); err != nil {
				continue
			}
			used := live && r.Used.After(usedBefore) // meanwhile
			if !used {
				_, err = s.write.Submit(journal.Change{Run: r.ID, Tenure: r.Tenure, Remove: true}, journal.Later)
			}
			if used || err != nil {
				_ = s.Release(ctx, &Run{id: r.ID, under: r.Tenure}) // or it is free when the lease is
			} else {
				n++
			}
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
