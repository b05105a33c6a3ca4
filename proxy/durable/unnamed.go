package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Unnamed are the policies that no run names, but for runs that are gone, by kind and name, in their order. Who removes them has the
// journal alone: a policy is kept before the first run that names it. All records are read, unless each policy is found named before.
func Unnamed(ctx context.Context, j journal.Reader, gone map[string]bool) ([]journal.Object, error) {
	objects, err := j.Objects(ctx, "")
	if err != nil {
		return nil, err
	}
	named := map[string]bool{} // of each policy, by its digest
	for _, o := range objects {
		if o.Kind == policyObject {
			named[o.Name] = false
		}
	}
	left := len(named)
	name := func(digest string) {
		if was, kept := named[digest]; kept && !was {
			named[digest] = true
			left--
		}
	}
	// most policies are named by where runs stand: then no record is read
	for _, of := range []func(r *journal.Row) error{
		func(r *journal.Row) error { name(r.Policy); return nil },
		func(r *journal.Row) error { return namedBy(ctx, j, r.ID, name) },
	} {
		for r, err := range journal.Rows(ctx, j, journal.Query{}) {
			if left == 0 {
				return nil, nil
			}
			if err == nil && !gone[r.ID] {
				err = of(&r)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	var out []journal.Object
	for _, o := range objects {
		if o.Kind == policyObject && !named[o.Name] {
			out = append(out, journal.Object{Kind: o.Kind, Name: o.Name})
		}
	}
	return out, nil
}

// namedBy gives the digests of the policies that the records of a run name.
func namedBy(ctx context.Context, j journal.Reader, id string, name func(digest string)) error {
	for x, err := range journal.All(ctx, j, id) {
		if errors.Is(err, journal.ErrNone) { // it was removed since it was listed
			return nil
		}
		if err != nil {
			return err
		}
		digests, err := run.NamedPolicies(x.Bytes)
		if err != nil {
			return fmt.Errorf("no policy is removed: record %d of run %s is no entry, and may have named any: 'fsm-proxy verify' tells more", x.Seq, id)
		}
		for _, digest := range digests {
			name(digest)
		}
	}
	return nil
}
