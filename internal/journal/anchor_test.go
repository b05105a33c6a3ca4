package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// What is anchored now is found later to have been cut, written anew or removed; what has only gone on is well.
func TestAnchors(t *testing.T) {
	commit := func(s journal.Store, changes ...journal.Change) {
		t.Helper()
		each, err := s.Commit(context.Background(), changes)
		if err = errors.Join(append(each, err)...); err != nil {
			t.Fatal(err)
		}
	}
	begun := func(s journal.Store, n int, texts ...string) {
		for i := range n {
			r := &run{id: fmt.Sprintf("r%03d", i)}
			commit(s, r.begin())
			for _, text := range texts {
				commit(s, r.next(text))
			}
		}
	}
	before := memory.New(0)
	begun(before, 250, "1", "2")
	var file bytes.Buffer
	for range 2 { // one file behind the other
		if err := journal.WriteAnchors(context.Background(), before, time.Unix(1000, 0), &file); err != nil {
			t.Fatal(err)
		}
	}
	anchors, err := journal.ReadAnchors(&file)
	if err != nil || len(anchors) != 250 || len(anchors["r000"]) != 2 {
		t.Fatal(len(anchors), err)
	}
	damages := func(s journal.Store) string {
		found := map[journal.Damage]int{}
		for id, err := range journal.VerifyAll(context.Background(), s, anchors, chain.Verify) {
			fault, is := errors.AsType[*journal.Fault](err)
			if err != nil && (!is || fault.Run != id) {
				t.Fatal(id, err)
			}
			if is {
				found[fault.Damage]++
			}
		}
		return fmt.Sprint(found)
	}
	for want, after := range map[string]func(s journal.Store){
		"map[]":             func(s journal.Store) { begun(s, 250, "1", "2") },
		"map[ ]":            func(s journal.Store) { begun(s, 251, "1", "2", "3") },
		"map[cut tail:250]": func(s journal.Store) { begun(s, 250, "1") },
		"map[edited:250]":   func(s journal.Store) { begun(s, 250, "1", "other", "3") },
		"map[gone:50]":      func(s journal.Store) { begun(s, 200, "1", "2") },
	} {
		s := memory.New(0)
		after(s)
		if got := damages(s); got != strings.ReplaceAll(want, " ]", "]") {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, text := range []string{"x", "{}", `{"run":"a","seq":1,"hash":"ff"}`, `{"run":"","seq":1,"hash":"` + strings.Repeat("ff", 32) + `"}`, `{"run":"a","seq":-1}`} {
		if _, err := journal.ReadAnchors(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "line 1 is no anchor") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
