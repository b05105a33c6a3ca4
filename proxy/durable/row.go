package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"iter"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// What a run's row says is in no hash, and its entries say it as well. The two must agree: what would begin a run anew, or
// have it be somebody else's, is written by who has the key, or by nobody.

// says is what an entry says that the row does. It needs no policy to be read.
type says struct {
	Type string `json:"type"`
	From string `json:"from"`
	To   struct {
		State    string `json:"state"`
		Policy   string `json:"policy"`
		Complete bool   `json:"complete"`
	} `json:"to"`
	Whose string `json:"whose"` // of the first one and of checkpoints: see [whose]; "": it is of a version that did not say it
}

func (e *says) is(t run.Type) bool { return e.Type == t.String() }

func readSays(text []byte) (e says, err error) {
	err = json.Unmarshal(text, &e, jsontext.AllowDuplicateNames(true))
	return e, err
}

// whose is the hash of what finds a run and whose it began as, for an entry that says so.
func whose(r *journal.Row) string {
	text := fmt.Appendf(nil, "fsm-proxy run\n%d %s %x %d %s %s", len(r.Key.Kind), r.Key.Kind, r.Key.Hash[:], len(r.Owner.Issuer), r.Owner.Issuer, r.Owner.Subject)
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

// agreement is whether a run's row and its entries agree. It is told of the entries in their order, all from the first one
// that is kept or from the last checkpoint on.
type agreement struct {
	row   *journal.Row
	until uint64 // entries behind this one were written since the row was read

	any         bool
	at          *says          // the entry that the row tells of
	checkpoint  uint64         // the number of the last one; 0: there is none
	ended, late uint64         // likewise of one that ends the run, and of one behind At that the row was to be written with
	fault       *journal.Fault // of an entry by itself
}

func (a *agreement) say(seq uint64, d journal.Damage, why string, args ...any) *journal.Fault {
	return &journal.Fault{Run: a.row.ID, Seq: seq, Damage: d, Why: fmt.Sprintf(why, args...)}
}

func (a *agreement) add(x *journal.Record) {
	if a.fault != nil || x.Seq > a.until {
		return
	}
	e, err := readSays(x.Bytes)
	switch {
	case err != nil:
		a.fault = a.say(x.Seq, journal.Edited, "it is no entry: %v", err)
		return
	case e.Whose != "" && e.Whose != whose(a.row):
		a.fault = a.say(x.Seq, journal.OtherHead, "the row has another key or owner than the run had then")
		return
	case e.is(run.Checkpoint):
		a.checkpoint = x.Seq
	case e.is(run.Finished):
		a.ended = x.Seq
	}
	if a.any = true; x.Seq == a.row.At.Seq {
		a.at = &e
	}
	if x.Seq > a.row.At.Seq && (e.From != e.To.State || e.is(run.Checkpoint) || e.is(run.Finished)) {
		a.late = x.Seq
	}
}

// found is the first thing in which they do not agree, nil where they do.
func (a *agreement) found() *journal.Fault {
	r, at := a.row, a.row.At.Seq
	other := func(why string, args ...any) *journal.Fault { return a.say(at, journal.OtherHead, why, args...) }
	switch {
	case a.fault != nil:
		return a.fault
	case !a.any:
		return a.say(r.Base.Seq, journal.CutTail, "the run has no records, and begins with one")
	case r.Base.Seq > 0 && a.checkpoint == 0:
		return a.say(r.Base.Seq+1, journal.Gap, "those before it are missing, and no checkpoint says what they come to")
	case a.at == nil:
		return other("the row tells of this record, which is not there")
	case r.State != a.at.To.State:
		return other("the row has the state %q, and the record %q", r.State, a.at.To.State)
	case r.Complete != a.at.To.Complete:
		return other("the row has it that the run is complete: %t, and the record: %t", r.Complete, a.at.To.Complete)
	case r.Policy != a.at.To.Policy:
		return other("the row has the policy %s, and the record %s", r.Policy, a.at.To.Policy)
	case r.Checkpoint != a.checkpoint:
		return other("the row has it that the last checkpoint is %d, and that is %d", r.Checkpoint, a.checkpoint)
	case !r.Ended.IsZero() && a.ended == 0:
		return other("the row has it that the run has ended, and no record says so")
	case r.Ended.IsZero() && a.ended != 0:
		return other("record %d ends the run, and the row has it that it goes on", a.ended)
	case a.late != 0:
		return other("the row tells of this record, and record %d has moved the run since", a.late)
	}
	return nil
}

// verify looks through the records of a run as [journal.Chain.Verify] does, from its base or from its last checkpoint on,
// and at whether the row agrees with those up to a number.
func verify(chain journal.Chain, row *journal.Row, base journal.Point, until uint64, records iter.Seq2[journal.Record, error], anchors ...journal.Point) (*journal.Fault, error) {
	from, a := *row, agreement{row: row, until: until}
	from.Base = base
	fault, err := chain.Verify(&from, func(yield func(journal.Record, error) bool) {
		for x, err := range records {
			if err == nil {
				a.add(&x)
			}
			if !yield(x, err) {
				return
			}
		}
	}, anchors...)
	if fault == nil && err == nil {
		fault = a.found()
	}
	return fault, err
}

// Verifier verifies runs by a key, for [journal.VerifyAll]: their records, and that their rows agree with them.
func Verifier(key []byte) journal.Verify {
	chain := journal.NewChain(key)
	return func(row *journal.Row, records iter.Seq2[journal.Record, error], anchors ...journal.Point) (*journal.Fault, error) {
		return verify(chain, row, row.Base, row.Last.Seq, records, anchors...)
	}
}
