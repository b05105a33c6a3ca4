package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// writer is the one connection that writes.
type writer struct {
	db   *sql.DB
	conn *sql.Conn
	runs map[string]*known // that were written lately
	rows map[int]*sql.Stmt // how so many records are inserted
	next int64             // the place of the next record; 0: it is to be looked up
	tail int64             // how many records are not placed
	most int64             // how many there may be

	begins, ends, undoes  *sql.Stmt // transactions
	run, last, head, step *sql.Stmt
	free, place, placed   *sql.Stmt
	object                *sql.Stmt
}

// known is what the writer knows of a run.
type known struct {
	no   int64
	last uint64 // its last record
	due  int64  // as its row has it
}

// maxKnown bounds what the writer knows: beyond it, it looks again.
const maxKnown = 1 << 16

// insertSizes are how many records one statement inserts, the largest first.
var insertSizes = [...]int{64, 16, 4, 1}

func openWriter(c *Config) (_ *writer, err error) {
	sync := "FULL"
	if c.Normal {
		sync = "NORMAL"
	}
	if f, err := os.OpenFile(c.Path, os.O_CREATE|os.O_RDWR, 0o600); err != nil { // SQLite would make it for everybody
		return nil, err
	} else if err := f.Close(); err != nil {
		return nil, err
	}
	w := &writer{runs: map[string]*known{}, rows: map[int]*sql.Stmt{}, most: cmp.Or(c.tail, maxTail)}
	w.db, err = sql.Open("sqlite", source(c.Path, "_pragma=journal_mode(WAL)", "_pragma=synchronous("+sync+")", "_pragma=fullfsync(1)", "_pragma=checkpoint_fullfsync(1)"))
	if err != nil {
		return nil, err
	}
	if w.conn, err = w.db.Conn(context.Background()); err == nil {
		err = w.ready()
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// migrate makes the schema of a new file, and brings an old one to it.
func (w *writer) migrate() error {
	ctx := context.Background()
	var tables int
	if err := w.conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	change := schema
	if tables > 0 {
		version, err := checkVersion(ctx, w.conn)
		if err != nil || version >= schemaVersion {
			return err
		}
		change = places + "DROP INDEX entries_run;"
	}
	return w.transact(func() error {
		_, err := w.conn.ExecContext(ctx, change+fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", fileID, schemaVersion))
		if err == nil {
			_, err = w.conn.ExecContext(ctx, "INSERT OR REPLACE INTO meta VALUES ('readable_by', ?)", strconv.Itoa(readableBy))
		}
		return err
	})
}

// ready has the file have its schema, and prepares the statements of each commit. What fails ends its transaction
// (OR ROLLBACK), which is to be given up anyway: so SQLite keeps no copy of what a statement alters, in case that it
// alone is undone.
func (w *writer) ready() (err error) {
	prepare := func(text string) *sql.Stmt {
		if err != nil {
			return nil
		}
		var s *sql.Stmt
		s, err = w.conn.PrepareContext(context.Background(), text)
		return s
	}
	w.begins, w.ends, w.undoes = prepare("BEGIN IMMEDIATE"), prepare("COMMIT"), prepare("ROLLBACK")
	if err == nil {
		err = w.migrate()
	}
	for _, n := range insertSizes {
		w.rows[n] = prepare("INSERT OR ROLLBACK INTO entries (place, run, seq, hash, bytes) VALUES (?, ?, ?, ?, ?)" + strings.Repeat(", (?, ?, ?, ?, ?)", n-1))
	}
	w.run = prepare("SELECT no, base_seq, due FROM runs WHERE id = ?")
	w.last = prepare("SELECT max(seq) FROM (SELECT max(seq) AS seq FROM places WHERE run = ?1 UNION ALL SELECT max(seq) FROM entries WHERE place > " + placed + " AND run = ?1)")
	w.place = prepare("INSERT OR IGNORE INTO places SELECT run, seq, place FROM entries WHERE place > " + placed + " ORDER BY run, seq") // one that somebody copied is none
	w.placed = prepare("UPDATE OR ROLLBACK meta SET value = ? WHERE name = 'placed'")
	const set = "UPDATE OR ROLLBACK runs SET at_seq = ?1, at_hash = ?2, state = ?3, complete = ?4, policy = ?5, checkpoint = ?6, used = ?8"
	w.head = prepare(set + ", due = ?7, ended = ?9 WHERE no = ?10 AND (ended = 0 OR ?9 <> 0)")
	w.step = prepare(set + " WHERE no = ?10 AND ended = 0")
	w.object = prepare("INSERT INTO objects (kind, name, run, bytes) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET run = excluded.run, bytes = excluded.bytes")
	w.free = prepare("SELECT max(coalesce(max(place), 0), " + placed + ") + 1 FROM entries")
	if err == nil {
		err = w.transact(w.settle)
	}
	return err
}

// lookUp finds the next place, where it is not known.
func (w *writer) lookUp() error {
	if w.next != 0 {
		return nil
	}
	return w.free.QueryRow().Scan(&w.next)
}

// settle places the tail.
func (w *writer) settle() error {
	err := w.lookUp()
	if err == nil {
		_, err = w.place.Exec()
	}
	if err == nil {
		_, err = w.placed.Exec(strconv.FormatInt(w.next-1, 10))
		w.tail = 0
	}
	return err
}

func (w *writer) close() (err error) {
	for _, s := range append(slices.Collect(maps.Values(w.rows)), w.begins, w.ends, w.undoes, w.run, w.last, w.head, w.step, w.object, w.free, w.place, w.placed) {
		if s != nil {
			err = errors.Join(err, s.Close()) // SQLite keeps the file open for one that is not
		}
	}
	if w.conn != nil {
		err = errors.Join(err, w.conn.Close())
	}
	return errors.Join(err, w.db.Close())
}

// transact does something in a transaction.
func (w *writer) transact(do func() error) error {
	ctx := context.Background() // what has begun is not broken off: it would be unknown whether it is there
	if _, err := w.begins.ExecContext(ctx); err != nil {
		return err
	}
	err := do()
	if err == nil {
		_, err = w.ends.ExecContext(ctx)
	}
	if err != nil {
		clear(w.runs)
		w.next = 0
		_, _ = w.undoes.ExecContext(ctx) // it says that there is nothing to roll back, where SQLite has done it
	}
	return err
}

// batch is what is written in one transaction: records wait until something else needs them to be there.
type batch struct {
	*writer
	args []any // of the records that wait: place, run, number, hash and bytes of each
}

func (w *writer) commit(changes []journal.Change) ([]error, error) {
	if len(w.runs) > maxKnown {
		clear(w.runs)
	}
	each := make([]error, len(changes))
	err := w.transact(func() error {
		if err := w.lookUp(); err != nil {
			return err
		}
		b := &batch{writer: w}
		for i := range changes {
			err := b.change(&changes[i])
			if err != nil && !errors.Is(err, journal.ErrConflict) && !errors.Is(err, journal.ErrNone) && journal.AsStale(err) == nil {
				return err
			}
			each[i] = err
		}
		err := b.flush()
		if err == nil && b.tail >= b.most {
			err = b.settle()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return each, nil
}

// change makes one change. Where it cannot be made it changes nothing.
func (b *batch) change(c *journal.Change) (err error) {
	var r *known
	switch {
	case c.Begin != nil:
		if r, err = b.begin(c); err != nil {
			return err
		}
	case c.Run != "":
		if r, err = b.known(c.Run); err != nil {
			return err
		}
	}
	if len(c.Records) > 0 && c.Records[0].Seq != r.last+1 {
		return journal.ErrConflict
	}
	if c.Head != nil && c.Begin == nil {
		if err := b.move(r, c.Head); err != nil {
			return err
		}
	}
	for i := range c.Records {
		x := &c.Records[i]
		b.args = append(b.args, b.next, r.no, int64(x.Seq), x.Hash[:], x.Bytes)
		r.last = x.Seq
		b.next++
		b.tail++
	}
	if c.Cut != 0 {
		if err := b.cut(r, c.Cut); err != nil {
			return err
		}
	}
	if c.Remove {
		if err := b.remove(c.Run, r); err != nil {
			return err
		}
	}
	return b.put(c.Objects)
}

// move has a run's row say where the run is. A statement that sets due or ended writes a page of each index that has
// them, even as they were.
func (b *batch) move(r *known, h *journal.Head) error {
	s, due := b.head, micros(h.Due)
	if due == r.due && h.Ended.IsZero() {
		s = b.step
	}
	done, err := s.Exec(append(headArgs(h), r.no)...)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return cmp.Or(err, journal.ErrConflict)
	}
	r.due = due
	return nil
}

// known looks a run up.
func (b *batch) known(id string) (*known, error) {
	if r := b.runs[id]; r != nil {
		return r, nil
	}
	var base int64
	var last sql.NullInt64
	r := &known{}
	if err := b.run.QueryRow(id).Scan(&r.no, &base, &r.due); errors.Is(err, sql.ErrNoRows) {
		return nil, journal.ErrNone
	} else if err != nil {
		return nil, err
	}
	if err := b.last.QueryRow(r.no).Scan(&last); err != nil {
		return nil, err
	}
	r.last = uint64(max(last.Int64, base))
	b.runs[id] = r
	return r, nil
}

// begin makes a run's row.
func (b *batch) begin(c *journal.Change) (*known, error) {
	x := c.Begin
	args := append([]any{x.ID, x.Key.Kind, x.Key.Hash[:], x.Owner.Issuer, x.Owner.Subject, x.Parent, int64(x.Fork), micros(x.Began), int64(x.Base.Seq), x.Base.Hash.Bytes()}, headArgs(c.Head)...)
	done, err := b.conn.ExecContext(context.Background(), `INSERT INTO runs (id, key_kind, key_hash, issuer, subject, parent, fork, began, base_seq, base_hash,
		at_seq, at_hash, state, complete, policy, checkpoint, due, used, ended) VALUES (?`+strings.Repeat(", ?", len(args)-1)+`) ON CONFLICT DO NOTHING`, args...)
	if err != nil {
		return nil, err
	}
	if n, err := done.RowsAffected(); err != nil {
		return nil, err
	} else if n == 0 {
		return nil, journal.ErrConflict
	}
	no, err := done.LastInsertId()
	r := &known{no: no, last: x.Base.Seq, due: micros(c.Head.Due)}
	b.runs[c.Run] = r
	return r, err
}

func (b *batch) cut(r *known, to uint64) error {
	const cut = "FROM places WHERE run = ?1 AND seq <= ?2"
	return b.gone([]string{
		"UPDATE runs SET (base_seq, base_hash) = (SELECT p.seq, hash FROM places p JOIN entries USING (place) WHERE p.run = ?1 AND p.seq <= ?2 ORDER BY p.seq DESC LIMIT 1) WHERE no = ?1 AND EXISTS (SELECT 1 " + cut + ")",
		"DELETE FROM entries WHERE place IN (SELECT place " + cut + ")", "DELETE " + cut,
	}, r.no, int64(to))
}

func (b *batch) remove(id string, r *known) error {
	delete(b.runs, id)
	return b.gone([]string{
		"DELETE FROM entries WHERE place IN (SELECT place FROM places WHERE run = ?1)", "DELETE FROM places WHERE run = ?1",
		"DELETE FROM objects WHERE run = ?2", "DELETE FROM runs WHERE no = ?1",
	}, r.no, id)
}

// gone does what takes records away, once all of them are there, and placed.
func (b *batch) gone(texts []string, args ...any) error {
	err := b.flush()
	if err == nil {
		err = b.settle()
	}
	for _, text := range texts {
		if err == nil {
			_, err = b.conn.ExecContext(context.Background(), text, args...)
		}
	}
	return err
}

// put puts and removes objects. The error may be a [journal.Stale].
func (b *batch) put(objects []journal.Object) (err error) {
	var stale []journal.Object
	for _, o := range objects {
		is, err := b.swaps(&o)
		if err != nil {
			return err
		}
		if o.Swap && !journal.SameBytes(is, o.Was) {
			stale = append(stale, o)
			continue
		}
		if o.Bytes == nil {
			_, err = b.conn.ExecContext(context.Background(), "DELETE FROM objects WHERE kind = ? AND name = ?", o.Kind, o.Name)
		} else {
			_, err = b.object.Exec(o.Kind, o.Name, o.Run, o.Bytes)
		}
		if err != nil {
			return err
		}
	}
	if stale != nil {
		return &journal.Stale{Objects: stale}
	}
	return nil
}

// swaps is what there is of an object that is to be swapped, nil for nothing.
func (b *batch) swaps(o *journal.Object) (is []byte, err error) {
	if o.Swap {
		err = b.conn.QueryRowContext(context.Background(), "SELECT bytes FROM objects WHERE kind = ? AND name = ?", o.Kind, o.Name).Scan(&is)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return is, err
}

// flush inserts the records that wait.
func (b *batch) flush() error {
	const each = 5
	for len(b.args) > 0 {
		for _, n := range insertSizes {
			if len(b.args) >= n*each {
				if _, err := b.rows[n].Exec(b.args[:n*each]...); err != nil {
					return err
				}
				b.args = b.args[n*each:]
				break
			}
		}
	}
	return nil
}
