package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

const rowColumns = `id, key_kind, key_hash, issuer, subject, parent, fork, began, base_seq, base_hash, last_seq, last_hash,
	at_seq, at_hash, state, complete, policy, checkpoint, due, used, ended, owner, fence`

func scanRow(row pgx.CollectableRow) (r journal.Row, err error) {
	var fork, base, last, at, checkpoint int64
	var key, issuer, subject, baseHash, lastHash, atHash, state []byte
	var began, due, used, ended *time.Time
	err = row.Scan(&r.ID, &r.Key.Kind, &key, &issuer, &subject, &r.Parent, &fork, &began, &base, &baseHash, &last, &lastHash,
		&at, &atHash, &state, &r.Complete, &r.Policy, &checkpoint, &due, &used, &ended, &r.Tenure.Lease, &r.Tenure.Fence)
	copy(r.Key.Hash[:], key)
	copy(r.Base.Hash[:], baseHash)
	copy(r.Last.Hash[:], lastHash)
	copy(r.At.Hash[:], atHash)
	r.Owner, r.State = journal.Principal{Issuer: string(issuer), Subject: string(subject)}, string(state)
	r.Fork, r.Base.Seq, r.Last.Seq, r.At.Seq, r.Checkpoint = uint64(fork), uint64(base), uint64(last), uint64(at), uint64(checkpoint)
	r.Began, r.Due, r.Used, r.Ended = fromStamp(began), fromStamp(due), fromStamp(used), fromStamp(ended)
	return r, err
}

func fromStamp(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro())
}

// rows asks for rows.
func (s *Store) rows(ctx context.Context, text string, args ...any) ([]journal.Row, error) {
	if s.isClosed() {
		return nil, journal.ErrClosed
	}
	rows, err := s.pool.Query(ctx, text, args...)
	if err != nil {
		return nil, advise(err)
	}
	all, err := pgx.CollectRows(rows, scanRow)
	return all, advise(err)
}

func (s *Store) row(ctx context.Context, text string, args ...any) (journal.Row, error) {
	rows, err := s.rows(ctx, text, args...)
	switch {
	case err != nil:
		return journal.Row{}, err
	case len(rows) == 0:
		return journal.Row{}, journal.ErrNone
	}
	return rows[0], nil
}

func (s *Store) isClosed() bool {
	return s.closed.Load()
}

// Find implements [journal.Store].
func (s *Store) Find(ctx context.Context, k journal.Key) (journal.Row, error) {
	return s.row(ctx, "SELECT "+rowColumns+" FROM fsm_proxy.runs WHERE key_hash = $1 AND key_kind = $2 AND key_kind <> '' ORDER BY no DESC LIMIT 1", k.Hash[:], k.Kind)
}

// Row implements [journal.Store].
func (s *Store) Row(ctx context.Context, run string) (journal.Row, error) {
	return s.row(ctx, "SELECT "+rowColumns+" FROM fsm_proxy.runs WHERE id = $1", run)
}

// List implements [journal.Store].
func (s *Store) List(ctx context.Context, q journal.Query) ([]journal.Row, error) {
	where, args := "id > $1", []any{q.After}
	and := func(text string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			text = strings.Replace(text, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		where += " AND " + text
	}
	if q.Prefix != "" {
		and("starts_with(id, ?)", q.Prefix)
	}
	if q.Owner != nil {
		and("issuer = ? AND subject = ?", []byte(q.Owner.Issuer), []byte(q.Owner.Subject))
	}
	if !q.DueBy.IsZero() {
		and("due <= ? AND ended IS NULL", q.DueBy)
	}
	if !q.UsedBefore.IsZero() {
		and("ended IS NULL AND (used < ? OR used IS NULL)", q.UsedBefore)
	}
	if !q.EndedBefore.IsZero() {
		and("ended < ?", q.EndedBefore)
	}
	args = append(args, q.Page())
	return s.rows(ctx, "SELECT "+rowColumns+" FROM fsm_proxy.runs WHERE "+where+fmt.Sprintf(" ORDER BY id LIMIT $%d", len(args)), args...)
}

// Records implements [journal.Store].
func (s *Store) Records(ctx context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	if s.isClosed() {
		return nil, journal.ErrClosed
	}
	rows, err := s.pool.Query(ctx, "SELECT e.seq, e.hash, e.bytes FROM fsm_proxy.runs r LEFT JOIN fsm_proxy.entries e ON e.run = r.no AND e.seq > $2 WHERE r.id = $1 ORDER BY e.seq LIMIT $3", run, int64(after), limit)
	if err != nil {
		return nil, err
	}
	there := false
	var page []journal.Record
	var seq *int64
	var hash, bytes []byte
	_, err = pgx.ForEachRow(rows, []any{&seq, &hash, &bytes}, func() error {
		there = true
		if seq != nil {
			page = append(page, journal.Record{Seq: uint64(*seq), Hash: journal.Hash(hash), Bytes: bytes})
		}
		bytes = nil // of the next one
		return nil
	})
	if err == nil && !there && limit > 0 {
		err = journal.ErrNone
	}
	return page, err
}

// Object implements [journal.Store].
func (s *Store) Object(ctx context.Context, kind, name string) (bytes []byte, err error) {
	if s.isClosed() {
		return nil, journal.ErrClosed
	}
	err = s.pool.QueryRow(ctx, "SELECT bytes FROM fsm_proxy.objects WHERE kind = $1 AND name = $2", kind, []byte(name)).Scan(&bytes)
	if errors.Is(err, pgx.ErrNoRows) {
		err = journal.ErrNone
	}
	return bytes, err
}

// Objects implements [journal.Store].
func (s *Store) Objects(ctx context.Context, run string) ([]journal.Object, error) {
	return s.objects(ctx, `SELECT kind, name, run, bytes FROM fsm_proxy.objects WHERE run = $1 ORDER BY kind COLLATE "C", name`, run)
}

// ObjectsOf implements [journal.Store].
func (s *Store) ObjectsOf(ctx context.Context, kind, after string, limit int) ([]journal.Object, error) {
	return s.objects(ctx, "SELECT kind, name, run, bytes FROM fsm_proxy.objects WHERE kind = $1 AND name > $2 ORDER BY name LIMIT $3", kind, []byte(after), limit)
}

func (s *Store) objects(ctx context.Context, query string, args ...any) ([]journal.Object, error) {
	if s.isClosed() {
		return nil, journal.ErrClosed
	}
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o journal.Object, err error) {
		var name []byte
		err = row.Scan(&o.Kind, &name, &o.Run, &o.Bytes)
		o.Name = string(name)
		return o, err
	})
}

// Size implements [journal.Store]: the bytes of the tables and their indexes.
func (s *Store) Size(ctx context.Context) (size int64, err error) {
	err = s.pool.QueryRow(ctx, "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'fsm_proxy' AND c.relkind = 'r'").Scan(&size)
	return size, err
}

// Ended implements [journal.Store].
func (s *Store) Ended(ctx context.Context, limit int) ([]string, error) {
	if s.isClosed() {
		return nil, journal.ErrClosed
	}
	rows, err := s.pool.Query(ctx, "SELECT id FROM fsm_proxy.runs WHERE ended IS NOT NULL ORDER BY ended, id LIMIT $1", limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Stock implements [journal.Store]. What PostgreSQL takes for nothing only its vacuum finds out: it is counted in.
func (s *Store) Stock(ctx context.Context) (stock journal.Stock, err error) {
	if stock.Used, err = s.Size(ctx); err == nil {
		err = s.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE ended IS NULL) FROM fsm_proxy.runs").Scan(&stock.Runs, &stock.Live)
	}
	return stock, err
}
