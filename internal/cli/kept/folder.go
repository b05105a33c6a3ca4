package kept

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// folder reads the stores of a folder, which has one for each run name, as though they were one.
type folder struct {
	stores []member
	homes  sync.Map // run id -> member, of runs that were looked up or listed
}

// member is one of them.
type member struct {
	url string
	journal.Reader
}

// says is an error of the store.
func (m member) says(err error) error {
	if err == nil || errors.Is(err, journal.ErrNone) {
		return err
	}
	return fmt.Errorf("%s: %w", m.url, err)
}

// twice is the error of a run that two stores have: one of them is a copy, and which is not known.
func twice(run string, a, b member) error {
	return fmt.Errorf("run %s is in %s and in %s, one of which is a copy: name one of them by --store", run, a.url, b.url)
}

// Row implements [journal.Reader].
func (f *folder) Row(ctx context.Context, run string) (found journal.Row, err error) {
	var home *member
	for i := range f.stores {
		m := &f.stores[i]
		r, err := m.Row(ctx, run)
		switch {
		case errors.Is(err, journal.ErrNone):
			continue
		case err != nil:
			return r, m.says(err)
		case home != nil:
			return r, twice(run, *home, *m)
		}
		found, home = r, m
	}
	if home == nil {
		return found, journal.ErrNone
	}
	f.homes.Store(run, *home)
	return found, nil
}

// List implements [journal.Reader].
func (f *folder) List(ctx context.Context, q journal.Query) (page []journal.Row, err error) {
	for _, m := range f.stores {
		rows, err := m.List(ctx, q)
		if err != nil {
			return nil, m.says(err)
		}
		for i := range rows {
			if other, there := f.homes.Swap(rows[i].ID, m); there && other.(member).url != m.url {
				return nil, twice(rows[i].ID, other.(member), m)
			}
		}
		page = append(page, rows...)
	}
	slices.SortFunc(page, func(a, b journal.Row) int { return strings.Compare(a.ID, b.ID) })
	return page[:min(len(page), q.Page())], nil
}

// home is the store that has a run.
func (f *folder) home(ctx context.Context, run string) (member, error) {
	if m, known := f.homes.Load(run); known {
		return m.(member), nil
	}
	if _, err := f.Row(ctx, run); err != nil {
		return member{}, err
	}
	m, _ := f.homes.Load(run)
	return m.(member), nil
}

// Records implements [journal.Reader].
func (f *folder) Records(ctx context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	m, err := f.home(ctx, run)
	if err != nil {
		return nil, err
	}
	records, err := m.Records(ctx, run, after, limit)
	return records, m.says(err)
}

// Object implements [journal.Reader].
func (f *folder) Object(ctx context.Context, kind, name string) ([]byte, error) {
	for _, m := range f.stores {
		if text, err := m.Object(ctx, kind, name); !errors.Is(err, journal.ErrNone) {
			return text, m.says(err)
		}
	}
	return nil, journal.ErrNone
}

// Objects implements [journal.Reader]. What several stores keep under one name is one, and an error where it is not the same.
func (f *folder) Objects(ctx context.Context, run string) (all []journal.Object, err error) {
	if run != "" {
		m, err := f.home(ctx, run)
		if err != nil {
			return nil, err
		}
		all, err = m.Objects(ctx, run)
		return all, m.says(err)
	}
	for _, m := range f.stores {
		objects, err := m.Objects(ctx, "")
		if err != nil {
			return nil, m.says(err)
		}
		for i := range objects {
			o := &objects[i]
			at, there := slices.BinarySearchFunc(all, o, func(a journal.Object, o *journal.Object) int {
				return cmp.Or(strings.Compare(a.Kind, o.Kind), strings.Compare(a.Name, o.Name))
			})
			switch {
			case !there:
				all = slices.Insert(all, at, *o)
			case !bytes.Equal(all[at].Bytes, o.Bytes):
				return nil, fmt.Errorf("%s has another %s of one name than a file before it: name one file by --store", m.url, o.Kind)
			}
		}
	}
	return all, nil
}
