package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Reader reads what a [Store] keeps of runs, whoever writes it. It is not safe for concurrent use.
type Reader struct {
	Journal journal.Reader
	// Compile makes a policy of what [Store.Keep] was given.
	Compile  func(source []byte) (*policy.Policy, error)
	policies map[string]*policy.Policy // that were read, by digest
}

// Policy returns a policy by its digest.
func (r *Reader) Policy(ctx context.Context, digest string) (*policy.Policy, error) {
	if p := r.policies[digest]; p != nil {
		return p, nil
	}
	p, err := readPolicy(ctx, r.Journal, r.Compile, digest)
	if err != nil {
		return nil, err
	}
	if r.policies == nil {
		r.policies = make(map[string]*policy.Policy)
	}
	r.policies[digest] = p
	return p, nil
}

// readPolicy reads a policy that an entry names. Where it is missing the store is damaged: that is no [journal.ErrNone].
func readPolicy(ctx context.Context, j journal.Reader, compile func(source []byte) (*policy.Policy, error), digest string) (*policy.Policy, error) {
	source, err := j.Object(ctx, policyObject, digest)
	if errors.Is(err, journal.ErrNone) {
		return nil, fmt.Errorf("policy %s is missing from the store: restore it from a backup", digest)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", digest, err)
	}
	p, err := compile(source)
	switch {
	case err != nil:
		return nil, fmt.Errorf("policy %s cannot be read by this version: %w", digest, err)
	case p.Digest() != digest:
		return nil, fmt.Errorf("policy %s in the store is another one: its digest is %s", digest, p.Digest())
	}
	return p, nil
}

// Needs are the policies by which a record is read, by kind and name, as [journal.Exporter] wants them. One that cannot be
// read needs none.
func Needs(record []byte) (policies []journal.Object) {
	digests, _ := run.NamedPolicies(record)
	for _, digest := range digests {
		policies = append(policies, journal.Object{Kind: policyObject, Name: digest})
	}
	return policies
}

// Verifier verifies as the function [Verifier] does, and that the policies by which records are read are kept as they were.
func (r *Reader) Verifier(ctx context.Context, key []byte) journal.Verify {
	verify := Verifier(key)
	return func(row *journal.Row, records iter.Seq2[journal.Record, error], anchors ...journal.Point) (*journal.Fault, error) {
		var named []string
		first := map[string]uint64{} // the record that names it
		fault, err := verify(row, func(yield func(journal.Record, error) bool) {
			for x, err := range records {
				digests, _ := run.NamedPolicies(x.Bytes)
				for _, digest := range digests {
					if _, known := first[digest]; !known {
						named, first[digest] = append(named, digest), x.Seq
					}
				}
				if !yield(x, err) {
					return
				}
			}
		}, anchors...)
		for _, digest := range named {
			if fault != nil || err != nil {
				break
			}
			fault, err = r.missing(ctx, digest)
			if fault != nil {
				fault.Run, fault.Seq = row.ID, first[digest]
			}
		}
		return fault, err
	}
}

// missing is that a policy is not kept as it was. The error is the store's.
func (r *Reader) missing(ctx context.Context, digest string) (*journal.Fault, error) {
	_, why := r.Policy(ctx, digest)
	if why == nil {
		return nil, nil
	}
	if _, err := r.Journal.Object(ctx, policyObject, digest); err != nil && !errors.Is(err, journal.ErrNone) {
		return nil, err
	}
	return &journal.Fault{Damage: journal.NoPolicy, Why: why.Error()}, nil
}

// Owner is whose a run is by its row, or has become since.
func (r *Reader) Owner(ctx context.Context, row *journal.Row) (owner journal.Principal, err error) {
	if row.Owner != (journal.Principal{}) {
		return row.Owner, nil
	}
	owner, _, err = ownerOf(ctx, r.Journal, row.ID)
	return owner, err
}

// Entries are what the records of a run say, up to its row's last. What cannot be read is an error, and the last.
func (r *Reader) Entries(ctx context.Context, row *journal.Row, records iter.Seq2[journal.Record, error]) iter.Seq2[run.Entry, error] {
	return func(yield func(run.Entry, error) bool) {
		for x, err := range records {
			var e run.Entry
			if err == nil && x.Seq > row.Last.Seq { // written since
				return
			}
			if err == nil {
				e, err = r.entry(ctx, x.Bytes)
				if e.Seq = x.Seq; err != nil {
					err = fmt.Errorf("record %d: %w", x.Seq, err)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (r *Reader) entry(ctx context.Context, text []byte) (run.Entry, error) {
	return readEntry(ctx, text, r.Policy)
}

// readEntry reads an entry whose policies are found by their digests.
func readEntry(ctx context.Context, text []byte, find func(ctx context.Context, digest string) (*policy.Policy, error)) (run.Entry, error) {
	var missing error
	e, err := run.ReadEntry(text, func(digest string) *policy.Policy {
		p, err := find(ctx, digest)
		missing = err
		return p
	})
	return e, cmp.Or(missing, err)
}

// Shown is what operators may see of a journal: runs, what is of them, and the policies that they go by. What is kept of
// sessions and of tasks is their clients' alone.
func Shown(j journal.Reader) journal.Reader { return shown{j} }

type shown struct{ journal.Reader }

// Object implements [journal.Reader].
func (s shown) Object(ctx context.Context, kind, name string) ([]byte, error) {
	if kind != policyObject && kind != ownerObject {
		return nil, journal.ErrNone
	}
	return s.Reader.Object(ctx, kind, name)
}

// Objects implements [journal.Reader].
func (s shown) Objects(ctx context.Context, of string) (out []journal.Object, err error) {
	all, err := s.Reader.Objects(ctx, of)
	for _, o := range all {
		if o.Kind == policyObject || o.Run != "" && o.Kind != sessionObject && o.Kind != taskObject {
			out = append(out, o)
		}
	}
	return out, err
}
