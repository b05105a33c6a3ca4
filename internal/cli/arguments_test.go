package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What a command says of its usage, where it gets too many arguments, names it once.
func TestUsageNamesCommandOnce(t *testing.T) {
	t.Parallel()
	said := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Args == nil {
			return
		}
		err := cmd.Args(cmd, strings.Fields(strings.Repeat("x ", 9)))
		if err == nil {
			return
		}
		if _, usage, ok := strings.Cut(err.Error(), "usage: "); ok {
			said++
			if rest, ok := strings.CutPrefix(usage, cmd.CommandPath()); !ok || strings.HasPrefix(rest, " "+cmd.Name()+" ") {
				t.Errorf("%s says: %s", cmd.CommandPath(), usage)
			}
		}
	}
	walk(newRoot(&console{out: io.Discard, err: io.Discard}))
	if said < 10 {
		t.Errorf("only %d commands say their usage", said)
	}
}
