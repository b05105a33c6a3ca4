package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// known is what this process knows of a run that it writes.
type known struct {
	no    int64  // by which the database knows it; 0: its beginning is under way
	last  uint64 // its last record
	ended bool
	by    journal.Tenure
}

// maxKnown bounds what is known: beyond it, it is looked up again.
const maxKnown = 1 << 16

// batch is what is sent at once: its statements are one transaction.
type batch struct {
	*Store
	pgx.Batch
	each    []error
	of      [][]*group      // what each statement writes
	begun   map[string]bool // runs that begin
	plain   []*group        // that are not a statement yet
	plainOf map[string]*group
	joins   bool // plans is for one of the statements
	swaps   []swap
}

// swap is an object that a change swaps. Those of a batch are its last statements, but for one that another change puts later, in the
// order of their names: else processes that swap the same ones could wait for each other.
type swap struct {
	i  int // the change
	id string
	by journal.Tenure
	o  journal.Object
}

// group is what a batch writes of a run, one change after the other.
type group struct {
	no       int64 // of the run, which the statement returns if the group is made; 0: the statement returns anything then
	id       string
	by       journal.Tenure
	expected uint64 // the last record before
	records  []journal.Record
	head     *journal.Head
	changes  []int
	begins   bool            // it begins, which may fail for its key
	swap     *journal.Object // nil: it swaps none
}

// commit makes changes. Neither statement nor transaction waits for more than one answer, so that poolers work and nothing
// is locked while nobody looks.
func (s *Store) commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if len(s.runs) > maxKnown {
		clear(s.runs)
	}
	if err := s.lookUp(ctx, changes); err != nil {
		return nil, err
	}
	b := &batch{Store: s, each: make([]error, len(changes)), plainOf: map[string]*group{}, begun: map[string]bool{}}
	for i := range changes {
		if b.begun[changes[i].Run] { // whether it has is known first
			if err := b.send(ctx); err != nil {
				return nil, err
			}
		}
		b.add(i, &changes[i])
	}
	return b.each, b.send(ctx)
}

// lookUp finds the runs of changes that are not known, or not under the tenure of the change.
func (s *Store) lookUp(ctx context.Context, changes []journal.Change) error {
	var ids []string
	for i := range changes {
		id, r := changes[i].Run, s.runs[changes[i].Run]
		if id != "" && (r == nil || changes[i].Begin != nil || r.by != changes[i].Tenure) && !slices.Contains(ids, id) {
			ids = append(ids, id)
			delete(s.runs, id)
		}
	}
	if ids == nil {
		return nil
	}
	rows, err := s.pool.Query(ctx, "SELECT id, no, last_seq, ended IS NOT NULL, owner, fence FROM fsm_proxy.runs WHERE id = ANY($1)", ids)
	if err != nil {
		return err
	}
	var id string
	var r known
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&id, &r.no, &last, &r.ended, &r.by.Lease, &r.by.Fence}, func() error {
		r.last = uint64(last)
		it := r
		s.runs[id] = &it
		return nil
	})
	return err
}

// add adds a change to the batch.
func (b *batch) add(i int, c *journal.Change) {
	r := b.runs[c.Run]
	switch {
	case c.Run == "":
		b.objects(i, c, journal.Tenure{Lease: b.Lease()})
		return
	case c.Begin != nil && r != nil:
		b.each[i] = journal.ErrConflict
		return
	case c.Begin != nil && !b.had(c.Tenure.Lease):
		b.refuse(i)
		return
	case c.Begin != nil:
		b.begin(i, c)
		return
	case r == nil:
		b.each[i] = journal.ErrNone
		return
	case r.by != c.Tenure || !b.had(c.Tenure.Lease):
		b.refuse(i)
		return
	case len(c.Records) > 0 && c.Records[0].Seq != r.last+1, c.Head != nil && c.Head.Ended.IsZero() && r.ended:
		b.each[i] = journal.ErrConflict
		return
	case c.Remove:
		b.flush()
		b.swapAll() // which look the run up
		b.statement(i, c.Run, removal, c.Run, c.Tenure.Lease, c.Tenure.Fence)
		delete(b.runs, c.Run)
		return
	}
	b.append(i, c, r)
	if c.Objects != nil {
		b.objects(i, c, c.Tenure)
	}
	if c.Cut != 0 {
		b.flush()
		b.statement(i, c.Run, cut, c.Run, c.Tenure.Lease, c.Tenure.Fence, int64(c.Cut), int64(r.last))
	}
}

// refuse refuses a change by which somebody writes who does not, or no longer.
func (b *batch) refuse(i int) {
	if b.each[i] == nil {
		b.each[i] = journal.ErrConflict
		b.fenced.Add(1)
	}
}

// stale notes that an object was not swapped, of a change that is made else.
func (b *batch) stale(i int, o *journal.Object) {
	s := journal.AsStale(b.each[i])
	if s == nil {
		s = &journal.Stale{}
	}
	if s.Objects = append(s.Objects, *o); len(s.Objects) == 1 && b.each[i] == nil {
		b.each[i] = s
	}
}

// append adds records and a head to what is written of a run.
func (b *batch) append(i int, c *journal.Change, r *known) {
	g := b.plainOf[c.Run]
	if g == nil {
		g = &group{no: r.no, id: c.Run, by: r.by, expected: r.last}
		b.plainOf[c.Run], b.plain = g, append(b.plain, g)
	}
	g.changes = append(g.changes, i)
	g.records = append(g.records, c.Records...)
	if c.Head != nil {
		g.head, r.ended = c.Head, !c.Head.Ended.IsZero()
	}
	if n := len(c.Records); n > 0 {
		r.last = c.Records[n-1].Seq
	}
}

// statement queues a statement that returns a row if it makes a change, and else nothing.
func (b *batch) statement(i int, id, text string, args ...any) {
	b.Queue(text, args...)
	b.of, b.joins = append(b.of, []*group{{id: id, begins: text == begin, changes: []int{i}}}), b.joins || text != begin
}

const (
	// plans has the statements of a batch that join go by indexes, by one plan each: what a new database knows of its
	// tables is that they are empty. Nothing is worth compiling here. It is said with each such batch, since poolers keep
	// nothing of a session.
	plans = "SELECT set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true)"

	removal = `WITH gone AS (DELETE FROM fsm_proxy.runs WHERE id = $1 AND owner = $2 AND fence = $3 RETURNING no, id),
		e AS (DELETE FROM fsm_proxy.entries USING gone WHERE run = gone.no),
		o AS (DELETE FROM fsm_proxy.objects USING gone WHERE run = gone.id)
		SELECT no FROM gone`

	// cut and putObjects come behind a write of their run in one transaction, which has its row from then on: it is this
	// process's, or, as they look it up, it is not.
	cut = `WITH base AS (SELECT e.run, e.seq, e.hash FROM fsm_proxy.entries e JOIN fsm_proxy.runs r ON r.no = e.run WHERE r.id = $1 AND r.last_seq = $5 AND e.seq <= $4 ORDER BY e.seq DESC LIMIT 1),
		based AS (UPDATE fsm_proxy.runs SET base_seq = base.seq, base_hash = base.hash FROM base WHERE no = base.run AND owner = $2 AND fence = $3 RETURNING no),
		d AS (DELETE FROM fsm_proxy.entries USING based WHERE run = based.no AND seq <= $4)
		SELECT no FROM fsm_proxy.runs WHERE id = $1 AND owner = $2 AND fence = $3 AND last_seq = $5`

	// begin begins a run by a lease that has a row, which cannot be ended meanwhile.
	begin = `WITH own AS (SELECT no FROM fsm_proxy.leases WHERE no = $1 FOR KEY SHARE),
		new AS (INSERT INTO fsm_proxy.runs (owner, fence, id, key_kind, key_hash, issuer, subject, parent, fork, began, last_seq, last_hash,
			at_seq, at_hash, state, complete, policy, checkpoint, due, used, ended, base_seq, base_hash)
			SELECT no, 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22 FROM own ON CONFLICT DO NOTHING RETURNING no),
		e AS (INSERT INTO fsm_proxy.entries SELECT new.no, r.seq, r.hash, r.bytes FROM new, unnest($23::bigint[], $24::bytea[], $25::bytea[]) r (seq, hash, bytes))
		SELECT no FROM new`

	write = `WITH w AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::boolean[], $8::bigint[], $9::bytea[], $10::bytea[], $11::boolean[],
				$12::text[], $13::bigint[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[])
			w (no, owner, fence, expected, last_seq, last_hash, moves, at_seq, at_hash, state, complete, policy, checkpoint, due, used, ended)),
		moved AS (UPDATE fsm_proxy.runs r SET (at_seq, at_hash, state, complete, policy, checkpoint, due, used, ended, last_seq, last_hash) =
				(w.at_seq, w.at_hash, w.state, w.complete, w.policy, w.checkpoint, w.due, w.used, w.ended, w.last_seq, coalesce(w.last_hash, r.last_hash))
			FROM w WHERE w.moves AND r.no = w.no AND r.owner = w.owner AND r.fence = w.fence AND r.last_seq = w.expected RETURNING r.no),
		stayed AS (UPDATE fsm_proxy.runs r SET last_seq = w.last_seq, last_hash = coalesce(w.last_hash, r.last_hash)
			FROM w WHERE NOT w.moves AND r.no = w.no AND r.owner = w.owner AND r.fence = w.fence AND r.last_seq = w.expected RETURNING r.no),
		written AS (SELECT * FROM moved UNION ALL SELECT * FROM stayed),
		e AS (INSERT INTO fsm_proxy.entries SELECT x.no, x.seq, x.hash, x.bytes
			FROM unnest($17::bigint[], $18::bigint[], $19::bytea[], $20::bytea[]) x (no, seq, hash, bytes) JOIN written ON written.no = x.no)
		SELECT no FROM written`

	// moveOne and stayOne do for one record what write does for several, in less time: they find one row by a
	// unique index, whatever is known of the tables, and need no plans.
	moveOne = `WITH written AS (UPDATE fsm_proxy.runs SET last_seq = $5, last_hash = $6, at_seq = $8, at_hash = $9, state = $10, complete = $11, policy = $12, checkpoint = $13,
			due = $14, used = $15, ended = $16` + ofOne

	stayOne = `WITH written AS (UPDATE fsm_proxy.runs SET last_seq = $5, last_hash = $6` + ofOne

	ofOne = ` WHERE no = $1 AND owner = $2 AND fence = $3 AND last_seq = $4 RETURNING no)
		INSERT INTO fsm_proxy.entries SELECT no, $5, $6, $7 FROM written RETURNING run`

	putObjects = `WITH given AS (SELECT * FROM unnest($4::text[], $5::bytea[], $6::text[], $7::bytea[]) g (kind, name, run, bytes)
			WHERE CASE WHEN $1 = '' THEN EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE no = $2 FOR KEY SHARE)
				ELSE EXISTS (SELECT 1 FROM fsm_proxy.runs WHERE id = $1 AND owner = $2 AND fence = $3) END),
		gone AS (DELETE FROM fsm_proxy.objects o USING given g WHERE g.bytes IS NULL AND o.kind = g.kind AND o.name = g.name),
		put AS (INSERT INTO fsm_proxy.objects SELECT kind, name, run, bytes FROM given WHERE bytes IS NOT NULL
			ON CONFLICT (kind, name) DO UPDATE SET run = excluded.run, bytes = excluded.bytes)
		SELECT 0::bigint WHERE EXISTS (SELECT 1 FROM given)`

	// swapObject returns a row if the object was as it is expected: whoever waits for another's swap looks at what that has left.
	swapObject = `WITH own AS (SELECT 1 WHERE CASE WHEN $1 = '' THEN EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE no = $2 FOR KEY SHARE)
				ELSE EXISTS (SELECT 1 FROM fsm_proxy.runs WHERE id = $1 AND owner = $2 AND fence = $3) END),
		put AS (INSERT INTO fsm_proxy.objects (kind, name, run, bytes) SELECT $4::text, $5::bytea, '', $6::bytea FROM own WHERE $6::bytea IS NOT NULL AND $7::bytea IS NULL
			ON CONFLICT (kind, name) DO NOTHING RETURNING 1),
		moved AS (UPDATE fsm_proxy.objects SET bytes = $6 FROM own WHERE $6::bytea IS NOT NULL AND kind = $4 AND name = $5 AND bytes = $7 RETURNING 1),
		gone AS (DELETE FROM fsm_proxy.objects USING own WHERE $6::bytea IS NULL AND kind = $4 AND name = $5 AND bytes = $7 RETURNING 1)
		SELECT 0::bigint FROM put UNION ALL SELECT 0::bigint FROM moved UNION ALL SELECT 0::bigint FROM gone
		UNION ALL SELECT 0::bigint FROM own WHERE $6::bytea IS NULL AND $7::bytea IS NULL AND NOT EXISTS (SELECT 1 FROM fsm_proxy.objects WHERE kind = $4 AND name = $5)`
)

// begin adds a run's beginning.
func (b *batch) begin(i int, c *journal.Change) {
	b.flush()
	x := c.Begin
	last := x.Base
	if n := len(c.Records); n > 0 {
		last = journal.Point{Seq: c.Records[n-1].Seq, Hash: c.Records[n-1].Hash}
	}
	args := []any{c.Tenure.Lease, x.ID, x.Key.Kind, x.Key.Hash[:], []byte(x.Owner.Issuer), []byte(x.Owner.Subject), x.Parent, int64(x.Fork), stamp(x.Began), int64(last.Seq), last.Hash.Bytes()}
	h := c.Head
	args = append(args, int64(h.At.Seq), h.At.Hash.Bytes(), []byte(h.State), h.Complete, h.Policy, int64(h.Checkpoint), stamp(h.Due), stamp(h.Used), stamp(h.Ended), int64(x.Base.Seq), x.Base.Hash.Bytes())
	seqs, hashes, bytes := columns(c.Records)
	b.statement(i, c.Run, begin, append(args, seqs, hashes, bytes)...)
	by := journal.Tenure{Lease: c.Tenure.Lease, Fence: 1}
	b.runs[c.Run], b.begun[c.Run] = &known{last: last.Seq, ended: !h.Ended.IsZero(), by: by}, true
	if c.Objects != nil {
		b.objects(i, c, by)
	}
}

// columns are the members of records, one array each.
func columns(all []journal.Record) (seqs []int64, hashes, bytes [][]byte) {
	for i := range all {
		seqs, hashes, bytes = append(seqs, int64(all[i].Seq)), append(hashes, all[i].Hash[:]), append(bytes, notNil(all[i].Bytes))
	}
	return seqs, hashes, bytes
}

// notNil is bytes that are not NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// stamp is a time as it is kept, NULL for the zero time.
func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// objects adds what is put and removed beside records, of a run by a tenure, and else by a lease.
func (b *batch) objects(i int, c *journal.Change, by journal.Tenure) {
	var kinds, runs []string
	var names, bytes [][]byte
	for _, o := range c.Objects {
		if o.Swap {
			b.swaps = append(b.swaps, swap{i, c.Run, by, o})
			continue
		}
		kinds, names, runs, bytes = append(kinds, o.Kind), append(names, []byte(o.Name)), append(runs, o.Run), append(bytes, o.Bytes)
	}
	if kinds == nil {
		return
	}
	b.flush()
	if slices.ContainsFunc(b.swaps, func(x swap) bool { return x.i != i && puts(c, &x.o) }) { // which come before
		b.swapAll()
	}
	b.statement(i, "", putObjects, c.Run, by.Lease, by.Fence, kinds, names, runs, bytes)
}

// puts reports whether a change puts or removes an object without swapping it.
func puts(c *journal.Change, o *journal.Object) bool {
	return slices.ContainsFunc(c.Objects, func(x journal.Object) bool { return !x.Swap && x.Kind == o.Kind && x.Name == o.Name })
}

// swapAll makes statements of what is to be swapped.
func (b *batch) swapAll() {
	slices.SortStableFunc(b.swaps, func(x, y swap) int {
		return cmp.Or(strings.Compare(x.o.Kind, y.o.Kind), strings.Compare(x.o.Name, y.o.Name))
	})
	for i := range b.swaps {
		x := &b.swaps[i]
		b.statement(x.i, "", swapObject, x.id, x.by.Lease, x.by.Fence, x.o.Kind, []byte(x.o.Name), x.o.Bytes, x.o.Was)
		b.of[len(b.of)-1][0].swap = &x.o
	}
	b.swaps = nil
}

// flush makes one statement of what is to be written of runs.
func (b *batch) flush() {
	if b.plain == nil {
		return
	}
	plain := b.plain
	b.plain, b.plainOf = nil, map[string]*group{}
	if len(plain) == 1 && len(plain[0].records) == 1 {
		b.one(plain[0])
		return
	}
	var nos, owners, fences, expected, last, at, checkpoint, runs, seqs []int64
	var lastHash, atHash, states, hashes, bytes [][]byte
	var moves, complete []bool
	var policies []string
	var due, used, ended []*time.Time
	for _, g := range plain {
		nos, owners, fences, expected = append(nos, g.no), append(owners, g.by.Lease), append(fences, g.by.Fence), append(expected, int64(g.expected))
		if n := len(g.records); n > 0 {
			last, lastHash = append(last, int64(g.records[n-1].Seq)), append(lastHash, g.records[n-1].Hash[:])
		} else {
			last, lastHash = append(last, int64(g.expected)), append(lastHash, nil)
		}
		h := g.head
		if moves = append(moves, h != nil); h == nil {
			h = &journal.Head{}
		}
		at, atHash, states, complete, policies = append(at, int64(h.At.Seq)), append(atHash, h.At.Hash.Bytes()), append(states, []byte(h.State)), append(complete, h.Complete), append(policies, h.Policy)
		checkpoint, due, used, ended = append(checkpoint, int64(h.Checkpoint)), append(due, stamp(h.Due)), append(used, stamp(h.Used)), append(ended, stamp(h.Ended))
		s, hs, bs := columns(g.records)
		seqs, hashes, bytes = append(seqs, s...), append(hashes, hs...), append(bytes, bs...)
		for range s {
			runs = append(runs, g.no)
		}
	}
	b.Queue(write, nos, owners, fences, expected, last, lastHash, moves, at, atHash, states, complete, policies, checkpoint, due, used, ended, runs, seqs, hashes, bytes)
	b.of, b.joins = append(b.of, plain), true
}

// one makes a statement of the one record of a run.
func (b *batch) one(g *group) {
	x := &g.records[0]
	args := []any{g.no, g.by.Lease, g.by.Fence, int64(g.expected), int64(x.Seq), x.Hash[:], notNil(x.Bytes)}
	text := stayOne
	if h := g.head; h != nil {
		text = moveOne
		args = append(args, int64(h.At.Seq), h.At.Hash.Bytes(), []byte(h.State), h.Complete, h.Policy, int64(h.Checkpoint), stamp(h.Due), stamp(h.Used), stamp(h.Ended))
	}
	b.Queue(text, args...)
	b.of = append(b.of, []*group{g})
}

// send sends the batch, which is one transaction, and reads what became of each statement.
func (b *batch) send(ctx context.Context) (err error) {
	b.flush()
	b.swapAll()
	defer func() {
		if err != nil {
			clear(b.runs)
		}
		b.Batch, b.of, b.begun, b.joins = pgx.Batch{}, nil, map[string]bool{}, false
	}()
	if len(b.QueuedQueries) == 1 && !b.joins { // it is sooner by itself
		q := b.QueuedQueries[0]
		rows, err := b.pool.Query(ctx, q.SQL, q.Arguments...)
		return b.made(b.of[0], rows, err)
	}
	if len(b.QueuedQueries) == 0 {
		return nil
	}
	send := &b.Batch
	if b.joins {
		send = &pgx.Batch{}
		send.Queue(plans)
		send.QueuedQueries = append(send.QueuedQueries, b.QueuedQueries...)
	}
	results := b.pool.SendBatch(ctx, send)
	defer func() { err = errors.Join(err, results.Close()) }()
	if b.joins {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, of := range b.of {
		rows, err := results.Query()
		if err := b.made(of, rows, err); err != nil {
			return err
		}
	}
	return nil
}

// made reads what of its groups a statement has made.
func (b *batch) made(of []*group, rows pgx.Rows, err error) error {
	if err != nil {
		return err
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, g := range of {
		switch {
		case g.swap != nil:
			if len(made) == 0 {
				b.stale(g.changes[0], g.swap)
			}
		case len(made) == 0 || g.no != 0 && !slices.Contains(made, g.no):
			for _, i := range g.changes {
				if g.begins {
					b.each[i] = journal.ErrConflict
				}
				b.refuse(i)
			}
			delete(b.runs, g.id)
		case g.no == 0 && b.runs[g.id] != nil:
			b.runs[g.id].no = made[0] // it has begun
		}
	}
	return nil
}
