package journaltest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// An object that is swapped is put where the store has what was expected; its change is made all the same.
func testSwaps(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	must(t, s, began("r", journal.Key{}))
	swap := func(name, was, is string) journal.Object { // "": nothing
		o := journal.Object{Kind: "k", Name: name, Swap: true}
		if was != "" {
			o.Was = []byte(was)
		}
		if is != "" {
			o.Bytes = []byte(is)
		}
		return o
	}
	last := journal.Point{}
	for _, x := range []struct {
		objects []journal.Object
		stale   string // of them
		left    string
	}{
		{[]journal.Object{swap("a", "1", "2"), swap("b", "", "1")}, "a", "b=1"},
		{[]journal.Object{swap("b", "", "2"), swap("c", "", ""), swap("a", "", "1")}, "b", "a=1 b=1"},
		{[]journal.Object{swap("a", "1", "2"), swap("b", "1", "")}, "", "a=2"},
		{[]journal.Object{swap("a", "1", ""), swap("b", "1", ""), swap("c", "3", "4")}, "a b c", "a=2"},
		{[]journal.Object{swap("a", "2", "2"), swap("a", "2", "3"), swap("a", "3", "4"), swap("a", "", "")}, "a", "a=4"},
		{[]journal.Object{swap("a", "4", "")}, "", ""},
	} {
		var next []journal.Record
		next, last = records("r", last, "x")
		each, err := s.Commit(ctx(), []journal.Change{{Run: "r", Records: next, Objects: x.objects}})
		if err != nil {
			t.Fatal(err)
		}
		var stale, left []string
		if each[0] != nil {
			for _, o := range journal.AsStale(each[0]).Objects {
				stale = append(stale, o.Name)
			}
		}
		slices.Sort(stale)
		equal(t, "what was not swapped", strings.Join(stale, " "), x.stale)
		all, err := s.ObjectsOf(ctx(), "k", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			left = append(left, o.Name+"="+string(o.Bytes))
		}
		equal(t, "what is there", strings.Join(left, " "), x.left)
	}
	equal(t, "the run", row(t, s, "r").Last, last)
	each, err := s.Commit(ctx(), []journal.Change{
		{Run: "none", Objects: []journal.Object{swap("a", "", "1")}},
		{Objects: []journal.Object{swap("b", "", "1")}},
		{Objects: []journal.Object{swap("b", "", "2")}},
		{Run: "r", Objects: []journal.Object{swap("b", "1", "3")}},
	})
	if err != nil || !errors.Is(each[0], journal.ErrNone) || each[1] != nil || journal.AsStale(each[2]) == nil || each[3] != nil {
		t.Error(each, err)
	}
	if text, err := s.Object(ctx(), "k", "b"); err != nil || string(text) != "3" {
		t.Errorf("%q, %v", text, err)
	}

	// What is put and swapped by changes that are committed at once is so in their order.
	put := func(text string) journal.Change {
		return journal.Change{Objects: []journal.Object{{Kind: "k", Name: "b", Bytes: []byte(text)}}}
	}
	each, err = s.Commit(ctx(), []journal.Change{
		{Objects: []journal.Object{swap("b", "3", "4")}},
		put("3"),
		{Objects: []journal.Object{swap("b", "3", "5")}},
		{Objects: []journal.Object{swap("b", "4", "6")}},
		put("3"),
	})
	if err != nil || each[0] != nil || each[1] != nil || each[2] != nil || journal.AsStale(each[3]) == nil || each[4] != nil {
		t.Error(each, err)
	}
	if text, err := s.Object(ctx(), "k", "b"); err != nil || string(text) != "3" {
		t.Errorf("%q, %v", text, err)
	}
}
