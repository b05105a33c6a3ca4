// Package journal keeps runs where a restart does not take them: what became of each as a chain of records, and a row
// that says where it stands. What a record says is for those to know who write it.
//
// A [Store] is where they are kept: there are several, and one suite of tests for all (journaltest). A [Committer]
// writes to one.
package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Record is one entry of a run as it is kept.
type Record struct {
	Seq   uint64 // from 1, without gaps
	Hash  Hash   // of it and all before it: see [Chain.Next]
	Bytes []byte // a JSON object, the bytes that were hashed
}

// Point is a place in a run's journal: behind the record of that number, 0 for before the first.
type Point struct {
	Seq  uint64 `json:"seq"`
	Hash Hash   `json:"hash"` // of that record; zero for 0
}

// Key is how requests find a run. What they bring is not kept, only its hash.
type Key struct {
	Kind string `json:"key_kind,omitzero"` // such as "principal"; "" for runs that are found by none
	Hash Hash   `json:"key_hash,omitzero"`
}

// Principal is whose a run is; the zero Principal is nobody who is known.
type Principal struct {
	Issuer  string `json:"issuer,omitzero"`
	Subject string `json:"subject,omitzero"`
}

// Row is what is known of a run without its records.
type Row struct {
	ID     string    `json:"id"`     // 1 to 64 letters, digits, - and _
	Key    Key       `json:",embed"` // at most one run of a key has not ended
	Owner  Principal `json:",embed"`
	Parent string    `json:"parent,omitzero"` // the run that it was forked of, at its Fork; "" for none
	Fork   uint64    `json:"fork,omitzero"`
	Began  time.Time `json:"began,omitzero"`
	Base   Point     `json:"base,omitzero"` // before the first record that is kept still
	Last   Point     `json:"last,omitzero"` // the last record
	Tenure Tenure    `json:"-"`             // by whom it is written
	Head   `json:",embed"`
}

// Head is where a run stands. It is written with those records that change it: others may follow it.
type Head struct {
	At         Point     `json:"at,omitzero"` // the last record that it tells of
	State      string    `json:"state"`
	Complete   bool      `json:"complete,omitzero"`
	Policy     string    `json:"policy"`              // its digest
	Checkpoint uint64    `json:"checkpoint,omitzero"` // the number of the last record that says all that a run remembers; 0: from the beginning on
	Due        time.Time `json:"due,omitzero"`        // when the clock of the state moves the run; zero: it has none
	Used       time.Time `json:"used,omitzero"`       // when somebody used the run last, as of At
	Ended      time.Time `json:"ended,omitzero"`      // zero: it has not
}

// Object is something that is kept beside records, by a kind and a name, and can be replaced. One with a run goes with it.
type Object struct {
	Kind, Name string
	Run        string // "" for one that is of no run
	Bytes      []byte // nil in a Change: it is removed

	// Swap has a Change put or remove it only where the store has Was of it, nil for that it is not there. It is of no run then.
	Swap bool
	Was  []byte
}

// Stale is what became of a change that was made, but for some objects that were to be swapped: others have put them since.
type Stale struct {
	Objects []Object // as the change has them
}

func (s *Stale) Error() string {
	return fmt.Sprintf("%d objects are not as they were expected", len(s.Objects))
}

// AsStale is an error as a [Stale], nil if it is none.
func AsStale(err error) *Stale {
	s, _ := errors.AsType[*Stale](err)
	return s
}

// Change is what is written at once: wholly, or not at all.
type Change struct {
	Run     string   // "": it is about objects alone
	Tenure  Tenure   // by which the run is written, as its row had it when it was taken; its Begin has the lease alone
	Begin   *Row     // the run is new, and its records follow Base; its Last and Head are not read
	Records []Record // that follow the run's last; the first of them has the number after that
	Head    *Head    // nil: it stands as it stood; one that has ended does not begin again
	Cut     uint64   // records up to this one are kept no longer; 0: all are. It is at most the Checkpoint
	Remove  bool     // the run is kept no longer, nor its objects
	Objects []Object
	Then    func() // is called once, when the change is durable, before anybody hears of that; it must not block. nil: nobody is told so
	// Swapped is called once, and before anybody hears what became of the change, for each object that was to be swapped, whether it
	// was; it must not block. A change is made whether or not all were. nil: nobody is told so.
	Swapped func(o *Object, ok bool)
}

// Why something cannot be done. Errors of stores are one of these, or mean that the store cannot be used now: what was
// to be written may be written or not.
var (
	ErrNone     = errors.New("it is not in the store")
	ErrConflict = errors.New("the store has other records than were expected")
	ErrClosed   = errors.New("the store is closed")
	ErrTooNew   = errors.New("a newer version has written the store")
)

// Held is the error of a store that another process has.
type Held struct {
	By string // that process, or one of several that share the store
	Do string // what to do, for who opens the store to keep it
}

func (h *Held) Error() string { return "the store is in use by " + h.By }

// Query says which runs are listed.
type Query struct {
	After       string // the last id of the page before
	Prefix      string // of ids
	Owner       *Principal
	DueBy       time.Time // only what is due then; zero: all
	UsedBefore  time.Time // only what has not ended and was used last before this
	EndedBefore time.Time // only what has ended before this
	Limit       int       // 0: 100
}

// Page is how many rows a query asks for.
func (q *Query) Page() int {
	if q.Limit <= 0 {
		return 100
	}
	return q.Limit
}

// Has reports whether a row is one of those that are asked for.
func (q *Query) Has(r *Row) bool {
	switch {
	case r.ID <= q.After, len(r.ID) < len(q.Prefix) || r.ID[:len(q.Prefix)] != q.Prefix:
	case q.Owner != nil && *q.Owner != r.Owner:
	case !q.DueBy.IsZero() && (r.Due.IsZero() || r.Due.After(q.DueBy) || !r.Ended.IsZero()):
	case !q.UsedBefore.IsZero() && (!r.Ended.IsZero() || !r.Used.Before(q.UsedBefore)):
	case !q.EndedBefore.IsZero() && (r.Ended.IsZero() || !r.Ended.Before(q.EndedBefore)):
	default:
		return true
	}
	return false
}

// Stock is how much a store keeps.
type Stock struct {
	Runs, Live int   // all, and those of them that have not ended
	Used       int64 // bytes that it takes less those that it takes for nothing: what is written next goes there
}

// Reader reads what is kept of runs. It is safe for concurrent use.
type Reader interface {
	// Row returns a run's row, or [ErrNone].
	Row(ctx context.Context, run string) (Row, error)
	// List returns a page of rows, in the order of their ids.
	List(ctx context.Context, q Query) ([]Row, error)
	// Records returns at most so many records of a run behind a number, in their order.
	Records(ctx context.Context, run string, after uint64, limit int) ([]Record, error)
	// Object returns the bytes of an object, or [ErrNone].
	Object(ctx context.Context, kind, name string) ([]byte, error)
	// Objects returns those of a run, "" for those of none, in the order of kind and name.
	Objects(ctx context.Context, run string) ([]Object, error)
}

// Store is where runs are kept. It is safe for concurrent use. Times are kept to the microsecond.
type Store interface {
	Reader
	// Commit makes changes in their order, and returns what became of each: nil, a [Stale], [ErrConflict] or [ErrNone]. When
	// it returns, those that are nil, or a Stale, are durable. err means that of none it is known.
	Commit(ctx context.Context, changes []Change) (each []error, err error)
	// Find returns the run of a key that began last, or [ErrNone]: an earlier one has ended.
	Find(ctx context.Context, k Key) (Row, error)
	// Take has this process write a run that was there when it opened the store, and returns its row, or [ErrNone]: what
	// another one writes of it is an [ErrConflict] from then on.
	Take(ctx context.Context, run string) (Row, error)
	// ObjectsOf returns at most so many of a kind behind a name, in the order of their names.
	ObjectsOf(ctx context.Context, kind, after string, limit int) ([]Object, error)
	// Ended returns the ids of at most so many runs that have ended, those first that ended first.
	Ended(ctx context.Context, limit int) ([]string, error)
	// Size is how many bytes the store takes.
	Size(ctx context.Context) (int64, error)
	// Stock counts what is kept.
	Stock(ctx context.Context) (Stock, error)
	Close() error
}

// All are all records of a run, in their order.
func All(ctx context.Context, s Reader, run string) iter.Seq2[Record, error] {
	return Behind(ctx, s, run, 0)
}

// Behind are the records of a run behind a number, in their order.
func Behind(ctx context.Context, s Reader, run string, after uint64) iter.Seq2[Record, error] {
	const page = 1000
	return func(yield func(Record, error) bool) {
		for {
			records, err := s.Records(ctx, run, after, page)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, x := range records {
				if !yield(x, nil) {
					return
				}
				after = x.Seq
			}
			if len(records) < page {
				return
			}
		}
	}
}

// Removed is for a run that was removed while it was read: an [ErrNone].
func Removed(id string) error {
	return fmt.Errorf("run %s was removed while it was read: %w; 'fsm-proxy runs ls' names those that there are", id, ErrNone)
}

// Whole has a run be read by its row: read is given that, and all records, those too that were written since. Where some behind the
// base of which the row knows were cut off meanwhile it is called again, with the row as it is then: what it has made before is
// void. What is missing then is missing in the store. The error is read's, or an [ErrNone] for a run that was removed meanwhile.
func Whole(ctx context.Context, s Reader, r Row, read func(r *Row, records iter.Seq2[Record, error]) error) error {
	for {
		at, hole := r.Base.Seq, false
		err := read(&r, func(yield func(Record, error) bool) {
			for x, err := range All(ctx, s, r.ID) {
				hole = hole || x.Seq != at+1
				if at = x.Seq; !yield(x, err) {
					return
				}
			}
		})
		if err == nil && !hole && at >= r.Last.Seq {
			return nil
		}
		now, missing := s.Row(ctx, r.ID)
		switch {
		case errors.Is(missing, ErrNone):
			return Removed(r.ID)
		case missing != nil:
			return missing
		case now.Base == r.Base:
			return err
		}
		r = now
	}
}

// CheckAll checks changes, as [Change.Check] does.
func CheckAll(changes []Change) error {
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// Check says what is wrong with a change whatever is in the store: a mistake of who writes it.
func (c *Change) Check() error {
	switch {
	case c.Run == "" && (c.Begin != nil || len(c.Records) > 0 || c.Head != nil || c.Cut != 0 || c.Remove):
		return errors.New("journal: a change of no run has what is a run's")
	case c.Begin != nil && c.Begin.ID != c.Run:
		return fmt.Errorf("journal: run %q begins as %q", c.Run, c.Begin.ID)
	case c.Begin != nil && (c.Head == nil || c.Remove || c.Cut != 0):
		return fmt.Errorf("journal: run %s begins without a head, or ends with it", c.Run)
	case c.Begin != nil && len(c.Records) > 0 && c.Records[0].Seq != c.Begin.Base.Seq+1:
		return fmt.Errorf("journal: the records of run %s do not follow where it begins", c.Run)
	case c.Remove && (len(c.Records) > 0 || c.Head != nil || c.Cut != 0):
		return fmt.Errorf("journal: run %s is removed and written", c.Run)
	}
	for i := range c.Records {
		if c.Records[i].Seq != c.Records[0].Seq+uint64(i) || c.Records[i].Seq == 0 {
			return fmt.Errorf("journal: records of run %s are not numbered one by one", c.Run)
		}
	}
	for i := range c.Objects {
		if o := &c.Objects[i]; o.Kind == "" || o.Run != "" && o.Run != c.Run {
			return fmt.Errorf("journal: an object %s/%s of run %q in a change of %q", o.Kind, o.Name, o.Run, c.Run)
		} else if o.Swap && o.Run != "" {
			return fmt.Errorf("journal: an object %s/%s of run %q is swapped", o.Kind, o.Name, o.Run)
		}
	}
	return nil
}
