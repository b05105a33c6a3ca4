package client

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
)

// What is answered is said in words, also what is missing in it.
func TestWords(t *testing.T) {
	none, err := Words[Approvals]([]byte(`{"items":[],"absent":["process 7 on h"]}`))
	if want := "no call waits for an approval\nnot listed is what waits in process 7 on h: it did not answer in time\n"; err != nil || none != want {
		t.Errorf("%q, %v", none, err)
	}
	one, err := Words[Approvals]([]byte(`{"count":1,"items":[{"id":"x","run":"r","kind":"tool","name":"once","expires":"2026-11-28T10:00:00Z"}]}`))
	if want := "x  run r  tool once  until 2026-11-28T10:00:00Z\n"; err != nil || one != want {
		t.Errorf("%q, %v", one, err)
	}
	if all := releasedText(admin.Released{Runs: 3}); all != "given away: 3\n" {
		t.Error(all)
	}
	some := releasedText(admin.Released{Runs: 3, Stay: 2})
	for _, part := range []string{"given away: 3; 2 stay: ", "a call is under way", "waits for an approval", "the store", "shut", "runs accept"} {
		if !strings.Contains(some, part) {
			t.Errorf("%q lacks %q", some, part)
		}
	}
}
