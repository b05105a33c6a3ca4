package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is the annotation that holds a flag's group.
const flagGroup = "group"

// group puts the flags that register adds into a group of the help. Flags of no
// group stand first.
func group(flags *pflag.FlagSet, title string, register func(*pflag.FlagSet)) {
	added := pflag.NewFlagSet(title, pflag.ContinueOnError)
	added.SortFlags = false
	register(added)
	added.VisitAll(func(f *pflag.Flag) {
		f.Annotations = map[string][]string{flagGroup: {title}}
		flags.AddFlag(f)
	})
}

// groupedUsage is cobra's usage, with the flags in their groups.
func groupedUsage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range groups(cmd.LocalFlags()) {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsages())
	}
	b.WriteString("\nEach flag is an environment variable too: --log-level is FSM_PROXY_LOG_LEVEL. The flag wins.\n")
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// ungrouped is the title of the flags of no group.
const ungrouped = "Flags"

// titledFlags are the flags of one group.
type titledFlags struct {
	title string
	flags *pflag.FlagSet
}

// groups are a command's flags by group, in the order in which they were
// registered.
func groups(flags *pflag.FlagSet) []titledFlags {
	var out []titledFlags
	at := map[string]int{}
	flags.VisitAll(func(f *pflag.Flag) {
		title := ungrouped
		if g := f.Annotations[flagGroup]; len(g) > 0 {
			title = g[0]
		}
		i, ok := at[title]
		if !ok {
			i = len(out)
			at[title] = i
			out = append(out, titledFlags{title, pflag.NewFlagSet(title, pflag.ContinueOnError)})
			out[i].flags.SortFlags = false
		}
		out[i].flags.AddFlag(f)
	})
	return out
}

// advised adds to a flag's error what to write instead. args are the whole command
// line.
func advised(cmd *cobra.Command, err error, args []string) error {
	if line := withDash(cmd, args); line != "" {
		return usagef("%w%s; put -- in front of the server's command: %s", err, valueHint(err), line)
	}
	hint := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	if near := nearFlag(cmd, err); near != "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	return usagef("%w%s; %s", err, valueHint(err), hint)
}

// nearFlag is the flag that was perhaps meant by one that there is not.
func nearFlag(cmd *cobra.Command, err error) string {
	unknown, ok := err.(*pflag.NotExistError)
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return nearest(unknown.GetSpecifiedName(), names)
}

// nearest is the name that was perhaps meant by another, "" where none is near.
func nearest(name string, names []string) string {
	// cobra measures how near the names of commands are, and of nothing else.
	known := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		known.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	if near := known.SuggestionsFor(name); len(near) > 0 {
		return near[0]
	}
	return ""
}

// valueHint says how a value is written, where its type's own error does not.
func valueHint(err error) string {
	if invalid, ok := err.(*pflag.InvalidValueError); ok && invalid.GetFlag().Value.Type() == "duration" {
		return " (write it like 30s, 5m or 1h30m)"
	}
	return ""
}
