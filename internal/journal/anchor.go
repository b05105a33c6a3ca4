package journal

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"
)

// Anchors are points of runs' journals that are kept where who writes the store does not write: with them a journal
// that was cut, or wholly written anew, is found.
type Anchors map[string][]Point

// anchored is a line of a file of anchors.
type anchored struct {
	Run   string `json:"run"`
	Point `json:",embed"`
	At    time.Time `json:"at"` // when it was read from the store
}

// WriteAnchors writes a line of JSON for each run of a store: its last record. Files of them may stand one behind the
// other.
func WriteAnchors(ctx context.Context, s Reader, at time.Time, w io.Writer) error {
	for r, err := range Rows(ctx, s, Query{}) {
		if err == nil {
			err = line(w, anchored{r.ID, r.Last, at.UTC()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadAnchors reads what [WriteAnchors] has written.
func ReadAnchors(r io.Reader) (Anchors, error) {
	out := Anchors{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		var x anchored
		err := json.Unmarshal(lines.Bytes(), &x, json.RejectUnknownMembers(true))
		if err == nil && (x.Run == "" || x.Hash.IsZero() != (x.Seq == 0)) {
			err = errors.New("it has no run, or no hash of 32 bytes")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d is no anchor: %w", n, err)
		}
		out[x.Run] = append(out[x.Run], x.Point)
	}
	return out, lines.Err()
}

// Rows are all rows that a query asks for, page by page.
func Rows(ctx context.Context, s Reader, q Query) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			page, err := s.List(ctx, q)
			if err != nil {
				yield(Row{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				q.After = r.ID
			}
			if len(page) < q.Page() {
				return
			}
		}
	}
}

// Verify verifies the journal of a run, as [Chain.Verify] does.
type Verify func(r *Row, records iter.Seq2[Record, error], anchors ...Point) (*Fault, error)

// VerifyAll verifies the journals of all runs of a store, or of some alone, and yields each with its fault, nil where there is
// none. A run that has anchors and is not there is a fault as well. The error is the store's. What is written meanwhile is no fault.
func VerifyAll(ctx context.Context, s Reader, anchors Anchors, verify Verify, some ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		left, rows := maps.Clone(anchors), Rows(ctx, s, Query{})
		if len(some) > 0 {
			maps.DeleteFunc(left, func(id string, _ []Point) bool { return !slices.Contains(some, id) })
			rows = rowsOf(ctx, s, some)
		}
		for r, err := range rows {
			if err != nil {
				yield("", err)
				return
			}
			fault, err := verifyOne(ctx, s, r, verify, anchors[r.ID])
			if errors.Is(err, ErrNone) { // it was removed since it was listed
				continue
			}
			if err == nil && fault != nil {
				err = fault
			}
			if !yield(r.ID, err) {
				return
			}
			delete(left, r.ID)
		}
		for _, id := range slices.Sorted(maps.Keys(left)) {
			if !yield(id, &Fault{id, 0, Gone, "an anchor knows the run, and the store does not"}) {
				return
			}
		}
	}
}

// rowsOf are the rows of some runs, less those that are not there.
func rowsOf(ctx context.Context, s Reader, runs []string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, id := range runs {
			r, err := s.Row(ctx, id)
			if !errors.Is(err, ErrNone) && !yield(r, err) {
				return
			}
		}
	}
}

// verifyOne verifies the journal of a run by its row. What was cut off since the row was read is no fault. The error is an [ErrNone]
// for a run that is there no longer.
func verifyOne(ctx context.Context, s Reader, r Row, verify Verify, anchors []Point) (fault *Fault, err error) {
	err = Whole(ctx, s, r, func(r *Row, records iter.Seq2[Record, error]) (err error) {
		fault, err = verify(r, records, anchors...)
		return err
	})
	return fault, err
}
