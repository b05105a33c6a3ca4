package admin

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

var example = regexp.MustCompile("(?s)```json (\\w+)\n(.*?)```")

// The examples of docs/admin.md are what the handlers answer: no key more, none
// less.
func TestDocumentedAnswers(t *testing.T) {
	page, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]any{
		"policy": new(Policy), "sessions": new(list[Session]), "runs": new(list[Run]), "migrated": new(Migrated), "released": new(Released), "started": new(Started), "stands": new(Stands), "forked": new(Forked),
		"run": new(RunDetail), "signalled": new(Signalled), "refusal": new(Refusal),
		"journal_runs": new(JournalPage[journal.Row]), "journal_records": new(JournalPage[JournalRecord]), "journal_objects": new(JournalPage[JournalObject]),
		"level": new(logLevel), "probe": new(Probe), "error": new(refusal),
	}
	for _, found := range example.FindAllStringSubmatch(string(page), -1) {
		name, text := found[1], found[2]
		into, ours := answers[name]
		delete(answers, name)
		if !ours {
			t.Errorf("%s is no answer", name)
			continue
		}
		strict := json.NewDecoder(strings.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(into); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		back, err := json.MarshalIndent(into, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if flat(string(back)) != flat(text) {
			t.Errorf("%s is answered as\n%s\nand documented as\n%s", name, back, text)
		}
	}
	for name := range answers {
		t.Errorf("%s has no example", name)
	}
}

func flat(text string) string { return strings.Join(strings.Fields(text), "") }
