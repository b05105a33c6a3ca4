package journal_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// written are the records of a run, as who writes them writes them.
func written(c journal.Chain, id string, n int) (r journal.Row, all []journal.Record) {
	r.ID = id
	for i := range n {
		key := ""
		if id := c.KeyID(); id != "" {
			key = fmt.Sprintf(`,"key":%q`, id)
		}
		b := fmt.Appendf(nil, `{"run":%q,"seq":%d%s,"what":"fact %d"}`, id, i+1, key, i*i)
		r.Last = c.Next(id, r.Last, b)
		all = append(all, journal.Record{Seq: r.Last.Seq, Hash: r.Last.Hash, Bytes: b})
	}
	r.At = r.Last
	return r, all
}

func each(all []journal.Record) func(func(journal.Record, error) bool) {
	return func(yield func(journal.Record, error) bool) {
		for _, x := range all {
			if !yield(x, nil) {
				return
			}
		}
	}
}

func damage(t rapid.TB, c journal.Chain, r journal.Row, all []journal.Record, anchors ...journal.Point) (journal.Damage, uint64) {
	t.Helper()
	f, err := c.Verify(&r, each(all), anchors...)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		return "", 0
	}
	return f.Damage, f.Seq
}

// rehash hashes records anew, as somebody does who has no key, or another one.
func rehash(c journal.Chain, r *journal.Row, all []journal.Record) {
	r.Last = r.Base
	for i := range all {
		r.Last = c.Next(r.ID, r.Last, all[i].Bytes)
		all[i].Hash = r.Last.Hash
	}
	r.At = r.Last
}

// Each kind of damage alone is found, at its place, and called by its name.
func TestDamageIsNamed(t *testing.T) {
	plain, secret, other := journal.NewChain(nil), journal.NewChain([]byte("a key of 32 bytes, or of any size")), journal.NewChain([]byte("another key"))
	type journalOf struct {
		row journal.Row
		all []journal.Record
	}
	for _, c := range []struct {
		what    string
		by      journal.Chain
		verify  journal.Chain
		tamper  func(j *journalOf)
		anchors []uint64
		want    journal.Damage
		at      uint64
	}{
		{what: "nothing", by: plain, verify: plain},
		{what: "nothing, by a key", by: secret, verify: secret, anchors: []uint64{1, 4, 9}},
		{what: "a byte", by: plain, verify: plain, tamper: func(j *journalOf) { j.all[3].Bytes[len(j.all[3].Bytes)-3] ^= 1 }, want: journal.Edited, at: 4},
		{what: "a hash", by: plain, verify: plain, tamper: func(j *journalOf) { j.all[3].Hash[0] ^= 1 }, want: journal.Edited, at: 4},
		{what: "the last one's bytes", by: secret, verify: secret, tamper: func(j *journalOf) { j.all[8].Bytes = []byte("{}") }, want: journal.Edited, at: 9},
		{what: "two that changed places", by: plain, verify: plain, tamper: func(j *journalOf) {
			j.all[2].Hash, j.all[5].Hash = j.all[5].Hash, j.all[2].Hash
			j.all[2].Bytes, j.all[5].Bytes = j.all[5].Bytes, j.all[2].Bytes
		}, want: journal.Reordered, at: 3},
		{what: "one that is there twice", by: plain, verify: plain, tamper: func(j *journalOf) { j.all = slices.Insert(j.all, 4, j.all[3]) }, want: journal.Duplicated, at: 4},
		{what: "one less", by: plain, verify: plain, tamper: func(j *journalOf) { j.all = slices.Delete(j.all, 4, 5) }, want: journal.Gap, at: 6},
		{what: "the first less", by: plain, verify: plain, tamper: func(j *journalOf) { j.all = j.all[1:] }, want: journal.Gap, at: 2},
		{what: "the end", by: plain, verify: plain, tamper: func(j *journalOf) { j.all = j.all[:6] }, want: journal.CutTail, at: 6},
		{what: "all of it", by: plain, verify: plain, tamper: func(j *journalOf) { j.all = nil }, want: journal.CutTail},
		{what: "the end, and the row", by: plain, verify: plain, tamper: func(j *journalOf) {
			j.all = j.all[:6]
			j.row.Last = journal.Point{Seq: 6, Hash: j.all[5].Hash}
			j.row.At = j.row.Last
		}},
		{what: "the end, and the row, with an anchor", by: plain, verify: plain, tamper: func(j *journalOf) {
			j.all = j.all[:6]
			j.row.Last = journal.Point{Seq: 6, Hash: j.all[5].Hash}
			j.row.At = j.row.Last
		}, anchors: []uint64{8}, want: journal.CutTail, at: 6},
		{what: "the row", by: plain, verify: plain, tamper: func(j *journalOf) { j.row.At.Hash[7] ^= 1 }, want: journal.OtherHead, at: 9},
		{what: "an older row", by: plain, verify: plain, tamper: func(j *journalOf) { j.row.At = journal.Point{Seq: 5, Hash: j.all[4].Hash} }},
		{what: "written anew", by: plain, verify: plain, tamper: func(j *journalOf) {
			j.all[2].Bytes = []byte(`{"run":"r","seq":3}`)
			rehash(plain, &j.row, j.all)
		}},
		{what: "written anew, with an anchor", by: plain, verify: plain, tamper: func(j *journalOf) {
			j.all[2].Bytes = []byte(`{"run":"r","seq":3}`)
			rehash(plain, &j.row, j.all)
		}, anchors: []uint64{7}, want: journal.Edited, at: 7},
		{what: "written anew before what is kept, with an anchor", by: plain, verify: plain, tamper: func(j *journalOf) {
			j.row.Base = journal.Point{Seq: 4, Hash: journal.Hash{1}}
			j.all = j.all[4:]
			rehash(plain, &j.row, j.all)
		}, anchors: []uint64{4}, want: journal.Edited, at: 4},
		{what: "written anew without the key", by: secret, verify: secret, tamper: func(j *journalOf) { rehash(plain, &j.row, j.all) }, want: journal.NotByKey, at: 1},
		{what: "written anew without the key from a place on", by: secret, verify: secret, tamper: func(j *journalOf) {
			at := journal.Point{Seq: 4, Hash: j.all[3].Hash}
			for i := 4; i < len(j.all); i++ {
				at = plain.Next("r", at, j.all[i].Bytes)
				j.all[i].Hash = at.Hash
			}
			j.row.At, j.row.Last = at, at
		}, want: journal.NotByKey, at: 5},
		{what: "another key", by: secret, verify: other, want: journal.OtherKey, at: 1},
		{what: "no key", by: secret, verify: plain, want: journal.KeyWanted, at: 1},
		{what: "a key for what has none", by: plain, verify: secret, want: journal.NotByKey, at: 1},
		{what: "a record of another run", by: plain, verify: plain, tamper: func(j *journalOf) {
			_, others := written(plain, "s", 9)
			j.all[4] = others[4]
		}, want: journal.Reordered, at: 5},
	} {
		row, all := written(c.by, "r", 9)
		j := &journalOf{row, all}
		var anchors []journal.Point
		for _, n := range c.anchors {
			anchors = append(anchors, journal.Point{Seq: n, Hash: all[n-1].Hash})
		}
		if c.tamper != nil {
			c.tamper(j)
		}
		if got, at := damage(t, c.verify, j.row, j.all, anchors...); got != c.want || at != c.at {
			t.Errorf("%s: %q at %d, want %q at %d", c.what, got, at, c.want, c.at)
		}
	}
}

// Whatever mix of changes is made to a journal without its key: it is found.
func TestAnyDamageIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := journal.NewChain([]byte("the key"))
		row, all := written(key, "r", rapid.IntRange(1, 20).Draw(t, "records"))
		base := rapid.IntRange(0, len(all)-1).Draw(t, "kept from")
		if base > 0 {
			row.Base = journal.Point{Seq: uint64(base), Hash: all[base-1].Hash}
			all = all[base:]
		}
		if got, at := damage(t, key, row, all); got != "" {
			t.Fatalf("%s at %d", got, at)
		}
		was := fmt.Sprint(all)
		all = slices.Clone(all)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			if len(all) == 0 {
				break
			}
			i := rapid.IntRange(0, len(all)-1).Draw(t, "at")
			k := rapid.IntRange(0, len(all)-1).Draw(t, "and")
			switch rapid.SampledFrom([]string{"edit", "hash", "delete", "swap", "swap whole", "twice", "cut", "rehash"}).Draw(t, "what") {
			case "edit":
				all[i].Bytes = rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
			case "hash":
				all[i].Hash[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			case "delete":
				all = slices.Delete(all, i, i+1)
			case "swap":
				all[i].Bytes, all[k].Bytes = all[k].Bytes, all[i].Bytes
				all[i].Hash, all[k].Hash = all[k].Hash, all[i].Hash
			case "swap whole":
				all[i], all[k] = all[k], all[i]
			case "twice":
				all = slices.Insert(all, i, all[k])
			case "cut":
				all = all[:i]
			case "rehash":
				at := row.Base
				for n := range all {
					at = journal.NewChain(nil).Next("r", at, all[n].Bytes)
					all[n].Hash = at.Hash
				}
			}
		}
		got, _ := damage(t, key, row, all)
		if changed := fmt.Sprint(all) != was; changed != (got != "") {
			t.Fatalf("changed: %t, found: %q", changed, got)
		}
	})
}
