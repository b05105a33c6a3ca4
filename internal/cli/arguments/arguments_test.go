package arguments

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

func TestAsUsed(t *testing.T) {
	for _, x := range []struct {
		use  string
		n    int
		says string // "": nothing is wrong
	}{
		{"version", 0, ""},
		{"version", 1, "version takes no argument, got 1; usage: p version"},
		{"demo [--once]", 0, ""},
		{"demo [--once]", 1, "demo takes no argument, got 1; usage: p demo [--once]"},
		{"show RUN --store STORE|--admin ADDR", 1, ""},
		{"show RUN --store STORE|--admin ADDR", 0, "show takes one argument, RUN, got 0; usage: p show RUN --store STORE|--admin ADDR"},
		{"diff RUN RUN --json", 2, ""},
		{"diff RUN RUN --json", 3, "diff takes 2 arguments, RUN and RUN, got 3; usage: p diff RUN RUN --json"},
		{"import [FILE] --store STORE", 0, ""},
		{"import [FILE] --store STORE", 1, ""},
		{"import [FILE] --store STORE", 2, "import takes at most one argument, FILE, got 2; usage: p import [FILE] --store STORE"},
	} {
		parent, cmd := &cobra.Command{Use: "p"}, &cobra.Command{Use: x.use}
		parent.AddCommand(cmd)
		said := ""
		if err := AsUsed(cmd, slices.Repeat([]string{"x"}, x.n)); err != nil {
			said = err.Error()
		}
		if said != x.says {
			t.Errorf("%s with %d: %q", x.use, x.n, said)
		}
	}
	if err := AsUsed(&cobra.Command{Use: "diff RUN OTHER --json"}, []string{"x", ""}); err == nil || err.Error() != "OTHER is empty; usage: diff RUN OTHER --json" {
		t.Errorf("an argument that is empty: %v", err)
	}
}
