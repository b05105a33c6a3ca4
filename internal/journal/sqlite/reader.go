package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// micros is a time as it is kept, 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}

func headArgs(h *journal.Head) []any {
	return []any{int64(h.At.Seq), h.At.Hash.Bytes(), h.State, h.Complete, h.Policy, int64(h.Checkpoint), micros(h.Due), micros(h.Used), micros(h.Ended)}
}

// columns are those of a row, its last record among them.
const columns = `WITH tail AS MATERIALIZED (SELECT run, max(seq) AS seq, hash FROM entries WHERE place > ` + placed + ` GROUP BY run)
	SELECT id, key_kind, key_hash, issuer, subject, parent, fork, began, base_seq, base_hash,
	at_seq, at_hash, state, complete, policy, checkpoint, due, used, ended,
	coalesce(tail.seq, (SELECT seq FROM places WHERE run = no ORDER BY seq DESC LIMIT 1), base_seq),
	coalesce(tail.hash, (SELECT hash FROM places p JOIN entries USING (place) WHERE p.run = no ORDER BY p.seq DESC LIMIT 1), base_hash)
	FROM runs LEFT JOIN tail ON run = no `

// behind are the records of a run behind a number: those that are placed, and those of the tail.
const behind = `SELECT p.seq, hash, bytes FROM places p JOIN entries USING (place) WHERE p.run = ?1 AND p.seq > ?2
	UNION ALL SELECT seq, hash, bytes FROM entries WHERE place > ` + placed + ` AND run = ?1 AND seq > ?2
	ORDER BY 1 LIMIT ?3`

func scanRow(scan func(...any) error) (r journal.Row, err error) {
	var fork, base, at, checkpoint, last, began, due, used, ended int64
	var key, baseHash, atHash, lastHash []byte
	err = scan(&r.ID, &r.Key.Kind, &key, &r.Owner.Issuer, &r.Owner.Subject, &r.Parent, &fork, &began, &base, &baseHash,
		&at, &atHash, &r.State, &r.Complete, &r.Policy, &checkpoint, &due, &used, &ended, &last, &lastHash)
	copy(r.Key.Hash[:], key)
	copy(r.Base.Hash[:], baseHash)
	copy(r.At.Hash[:], atHash)
	copy(r.Last.Hash[:], lastHash)
	r.Fork, r.Base.Seq, r.At.Seq, r.Checkpoint, r.Last.Seq = uint64(fork), uint64(base), uint64(at), uint64(checkpoint), uint64(last)
	r.Began, r.Due, r.Used, r.Ended = fromMicros(began), fromMicros(due), fromMicros(used), fromMicros(ended)
	if errors.Is(err, sql.ErrNoRows) {
		err = journal.ErrNone
	}
	return r, err
}

// reading returns the database to read from. Who writes it reads nothing of a file that was taken away: what was written
// there is not confirmed by that.
func (s *Store) reading() (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == nil {
		return nil, journal.ErrClosed
	}
	return s.read, there(s.here)
}

// Find implements [journal.Store].
func (s *Store) Find(ctx context.Context, k journal.Key) (r journal.Row, err error) {
	if k.Kind == "" {
		return r, journal.ErrNone
	}
	db, err := s.reading()
	if err != nil {
		return r, err
	}
	return scanRow(db.QueryRowContext(ctx, columns+"WHERE key_hash = ? AND key_kind = ? AND key_kind <> '' ORDER BY no DESC LIMIT 1", k.Hash[:], k.Kind).Scan)
}

// Take implements [journal.Store]: no other process writes.
func (s *Store) Take(ctx context.Context, run string) (journal.Row, error) { return s.Row(ctx, run) }

// Row implements [journal.Store].
func (s *Store) Row(ctx context.Context, run string) (r journal.Row, err error) {
	db, err := s.reading()
	if err != nil {
		return r, err
	}
	return scanRow(db.QueryRowContext(ctx, columns+"WHERE id = ?", run).Scan)
}

// List implements [journal.Store].
func (s *Store) List(ctx context.Context, q journal.Query) (page []journal.Row, err error) {
	db, err := s.reading()
	if err != nil {
		return nil, err
	}
	where, args := "WHERE id > ?", []any{q.After}
	and := func(text string, values ...any) { where, args = where+" AND "+text, append(args, values...) }
	if q.Prefix != "" {
		and("substr(id, 1, ?) = ? AND id >= ?", len(q.Prefix), q.Prefix, q.Prefix)
	}
	if q.Owner != nil {
		and("issuer = ? AND subject = ?", q.Owner.Issuer, q.Owner.Subject)
	}
	if !q.DueBy.IsZero() {
		and("due <> 0 AND due <= ? AND ended = 0", micros(q.DueBy))
	}
	if !q.UsedBefore.IsZero() {
		and("ended = 0 AND used < ?", micros(q.UsedBefore))
	}
	if !q.EndedBefore.IsZero() {
		and("ended <> 0 AND ended < ?", micros(q.EndedBefore))
	}
	rows, err := db.QueryContext(ctx, columns+where+" ORDER BY id LIMIT ?", append(args, q.Page())...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scanRow(rows.Scan)
		if err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, rows.Err()
}

// Records implements [journal.Store].
func (s *Store) Records(ctx context.Context, run string, after uint64, limit int) (page []journal.Record, err error) {
	db, err := s.reading()
	if err != nil {
		return nil, err
	}
	var no int64
	if err := db.QueryRowContext(ctx, "SELECT no FROM runs WHERE id = ?", run).Scan(&no); errors.Is(err, sql.ErrNoRows) {
		return nil, journal.ErrNone
	} else if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, behind, no, int64(after), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var x journal.Record
		var seq int64
		var hash []byte
		if err := rows.Scan(&seq, &hash, &x.Bytes); err != nil {
			return nil, err
		}
		x.Seq = uint64(seq)
		copy(x.Hash[:], hash)
		page = append(page, x)
	}
	return page, rows.Err()
}

// Object implements [journal.Store].
func (s *Store) Object(ctx context.Context, kind, name string) (bytes []byte, err error) {
	db, err := s.reading()
	if err != nil {
		return nil, err
	}
	err = db.QueryRowContext(ctx, "SELECT bytes FROM objects WHERE kind = ? AND name = ?", kind, name).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		err = journal.ErrNone
	}
	return bytes, err
}

// Objects implements [journal.Store].
func (s *Store) Objects(ctx context.Context, run string) ([]journal.Object, error) {
	return s.objects(ctx, "SELECT kind, name, run, bytes FROM objects WHERE run = ? ORDER BY kind, name", run)
}

// ObjectsOf implements [journal.Store].
func (s *Store) ObjectsOf(ctx context.Context, kind, after string, limit int) ([]journal.Object, error) {
	return s.objects(ctx, "SELECT kind, name, run, bytes FROM objects WHERE kind = ? AND name > ? ORDER BY name LIMIT ?", kind, after, limit)
}

func (s *Store) objects(ctx context.Context, query string, args ...any) (all []journal.Object, err error) {
	db, err := s.reading()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o journal.Object
		if err := rows.Scan(&o.Kind, &o.Name, &o.Run, &o.Bytes); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

// Size implements [journal.Store]: the bytes of the file and of what is written ahead of it.
func (s *Store) Size(context.Context) (size int64, err error) {
	for _, path := range []string{s.path, s.path + "-wal"} {
		switch info, err := os.Stat(path); {
		case err == nil:
			size += info.Size()
		case !errors.Is(err, os.ErrNotExist):
			return 0, err
		}
	}
	return size, nil
}

// Ended implements [journal.Store].
func (s *Store) Ended(ctx context.Context, limit int) (ids []string, err error) {
	db, err := s.reading()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT id FROM runs WHERE ended <> 0 ORDER BY ended, id LIMIT ?", limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// Stock implements [journal.Store]. The file keeps its size when something is removed; what is written next goes there.
func (s *Store) Stock(ctx context.Context) (stock journal.Stock, err error) {
	db, err := s.reading()
	if err != nil {
		return stock, err
	}
	ended := 0
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM runs WHERE ended <> 0),
		(page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&stock.Runs, &ended, &stock.Used)
	stock.Live = stock.Runs - ended
	return stock, err
}
