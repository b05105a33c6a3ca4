package surface

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// TestNotes are what a result says of its run, as an object and at the end of its content.
func TestNotes(t *testing.T) {
	at := Note{State: "a", ValidNextActions: []string{"x", "y"}}
	complete, restarted := at, at
	complete.Complete, restarted.Restarted = true, true
	for _, tt := range []struct {
		note         Note
		object, text string
	}{
		{at, `{"state":"a","valid_next_actions":["x","y"]}`, "State is now 'a'. Allowed now: x, y."},
		{complete, `{"state":"a","complete":true,"valid_next_actions":["x","y"]}`, "The run is complete. Begin anew."},
		{restarted, `{"state":"a","restarted":true,"valid_next_actions":["x","y"]}`, "The run was completed and begins again. State is now 'a'. Allowed now: x, y."},
		{Note{State: "a", ValidNextActions: []string{}}, `{"state":"a","valid_next_actions":[]}`, "State is now 'a'. Allowed now: nothing."},
	} {
		if got := string(tt.note.JSON()); got != tt.object {
			t.Errorf("got %s, want %s", got, tt.object)
		}
		item := `{"type":"text","text":"` + tt.text + `"}`
		for content, want := range map[string]string{
			`[]`: `[` + item + `]`, `[ ]`: `[ ` + item + `]`, `[{"type":"x"} ]`: `[{"type":"x"} ,` + item + `]`, `{}`: `{}`, `null`: `null`,
		} {
			m := message(t, `{"jsonrpc":"2.0","id":1,"result":{"content":`+content+`}}`, wire.FromUpstream)
			got := string(wire.Splice(m.Raw, tt.note.Item(m, "Begin anew.")...))
			if want := strings.Replace(string(m.Raw), content+`}}`, want+`}}`, 1); got != want {
				t.Errorf("%s: got %s, want %s", content, got, want)
			}
		}
		m := message(t, `{"jsonrpc":"2.0","id":1,"result":{}}`, wire.FromUpstream)
		if edits := tt.note.Item(m, ""); edits != nil {
			t.Errorf("without content: %v", edits)
		}
	}
}

// TestSome names twenty names, and says how many more there are.
func TestSome(t *testing.T) {
	var names []string
	for i := range 21 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	all := strings.Join(names[:20], ", ")
	for n, want := range map[int]string{0: "nothing", 1: "n00", 2: "n00, n01", 20: all, 21: all + ", and 1 more"} {
		if got := Some(names[:n]); got != want {
			t.Errorf("%d: got %s", n, got)
		}
	}
}

// TestAllowedOf are those of each kind.
func TestAllowedOf(t *testing.T) {
	a := &Allowed{Tools: []string{"t"}, Resources: []string{"r"}, Prompts: []string{"p"}}
	for _, k := range policy.AllKinds {
		if want := []string{k.String()[:1]}; !slices.Equal(a.Of(k), want) {
			t.Errorf("%s: got %v", k, a.Of(k))
		}
	}
}
