package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// FuzzReport feeds arbitrary bytes: of what parses, every finding has a text and a place
// within the file, and the same bytes give the same findings and pictures.
func FuzzReport(f *testing.F) {
	model.Seeds(f, "..")
	f.Fuzz(func(t *testing.T, src []byte) {
		p, _ := policy.Parse("f.yaml", src)
		if p == nil {
			return
		}
		again, _ := policy.Parse("f.yaml", src)
		found := Check(p)
		if same := Check(again); found.String() != same.String() {
			t.Fatalf("found first\n%v\nthen\n%v", found, same)
		}
		for _, x := range found {
			if x.Message == "" || x.Code == "" || strings.ContainsAny(x.Message, "\x00\n") || x.Line < 0 || x.Line > len(src)+1 || x.Column < 0 || x.Line == 0 && x.Code != "more" {
				t.Fatalf("finding %+v", x)
			}
		}
		checkDrawings(t, p, again)
	})
}

func checkDrawings(t *testing.T, p, again *policy.Policy) {
	if Text(p) != Text(again) || Mermaid(p) != Mermaid(again) || DOT(p) != DOT(again) || string(JSON(p)) != string(JSON(again)) {
		t.Fatal("two pictures of one policy differ")
	}
	if !json.Valid(JSON(p)) {
		t.Fatal("bad JSON")
	}
}
