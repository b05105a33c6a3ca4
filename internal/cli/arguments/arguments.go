// Package arguments says how many arguments a command takes.
package arguments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// AsUsed refuses other arguments than those that the usage of a command names: what stands in its Use behind its name, up to
// the first flag. What is in brackets may be left out, and none may be empty, as a shell's variable is that was not set.
func AsUsed(cmd *cobra.Command, args []string) error {
	var names []string
	least := 0
	for _, word := range strings.Fields(cmd.Use)[1:] {
		name := strings.Trim(word, "[]")
		if strings.HasPrefix(name, "-") {
			break
		}
		if names = append(names, name); name == word {
			least++
		}
	}
	usage := strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + cmd.Use
	if len(args) >= least && len(args) <= len(names) {
		if i := slices.Index(args, ""); i >= 0 {
			return exit.Usagef("%s is empty; usage: %s", names[i], usage)
		}
		return nil
	}
	takes := "no argument"
	switch n := len(names); {
	case n == 1:
		takes = "one argument, " + names[0]
	case n > 1:
		takes = fmt.Sprintf("%d arguments, %s", n, strings.Join(names, " and "))
	}
	if least < len(names) {
		takes = "at most " + takes
	}
	return exit.Usagef("%s takes %s, got %d; usage: %s", cmd.Name(), takes, len(args), usage)
}
