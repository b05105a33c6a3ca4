package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
)

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
		if g := f.Annotations[config.TitleAnnotation]; len(g) > 0 {
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
		return exit.Usagef("%w%s; put -- in front of the server's command: %s", err, valueHint(err), line)
	}
	hint := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	if near := nearFlag(cmd, err); near != "" {
		hint = fmt.Sprintf("did you mean --%s?", near)
	}
	return exit.Usagef("%w%s; %s", err, valueHint(err), hint)
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
		return " (write it like 30s, 5m, 1h30m or 7d)"
	}
	return ""
}

// withDash is a command line in which the -- in front of the server's command was
// forgotten, with it: 'npx -y SERVER' without it gives flags of the server, or of
// npx, to this program. It is "" where none was forgotten.
func withDash(cmd *cobra.Command, args []string) string {
	at := commandAt(cmd, args)
	if at < 0 {
		return ""
	}
	line := slices.Concat([]string{cmd.Root().Name()}, withoutSecrets(args[:at]), []string{"--"}, args[at:])
	return host.ShellLine(line)
}

// commandAt is where the server's command begins in a command line without --: at
// the first argument that is neither a flag, nor its value, nor a policy. It is -1
// where there is none in front of the first unknown flag.
func commandAt(cmd *cobra.Command, args []string) int {
	if cmd.Flags().Lookup("upstream") == nil || cmd.Flags().Changed("upstream") || slices.Contains(args, "--") {
		return -1
	}
	for i := slices.Index(args, cmd.Name()) + 1; i < len(args); i++ {
		arg := args[i]
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			if isPolicyPath(arg) {
				continue
			}
			return i
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		f := cmd.Flags().Lookup(name)
		if !strings.HasPrefix(arg, "--") {
			f, hasValue = cmd.Flags().ShorthandLookup(arg[1:2]), len(arg) > 2
		}
		if f == nil {
			return -1
		}
		if !hasValue && f.NoOptDefVal == "" {
			i++
		}
	}
	return -1
}

// isProgram reports whether an argument names a program, and no file that is here.
func isProgram(arg string) bool {
	_, missing := os.Stat(arg)
	_, err := exec.LookPath(arg)
	return missing != nil && err == nil
}

// quotedCommand is the program of a command that was quoted as a whole, so that it is
// one argument, and "" of every other.
func quotedCommand(command []string) string {
	program, _, more := strings.Cut(command[0], " ")
	_, found := exec.LookPath(program)
	_, whole := exec.LookPath(command[0])
	if len(command) > 1 || !more || found != nil || whole == nil {
		return ""
	}
	return program
}

// isURL reports whether an argument is the URL of a server.
func isURL(arg string) bool {
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}

// isPolicyPath reports whether an argument looks like a policy, or a folder of such.
func isPolicyPath(arg string) bool {
	if ext := filepath.Ext(arg); ext == ".yaml" || ext == ".yml" {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.IsDir()
}

// withoutSecrets is a command line without the values of variables and headers.
func withoutSecrets(args []string) []string {
	out := slices.Clone(args)
	for i := range out {
		flag, value, joined := strings.Cut(out[i], "=")
		if !slices.Contains([]string{"--env", "--upstream-header"}, flag) {
			continue
		}
		switch {
		case joined:
			out[i] = flag + "=" + hidden(value)
		case i+1 < len(out):
			out[i+1] = hidden(out[i+1])
		}
	}
	return out
}

// hidden is NAME=VALUE, or 'Name: value', without the value.
func hidden(pair string) string {
	if i := strings.IndexAny(pair, "=:"); i >= 0 {
		return pair[:i+1] + "…"
	}
	return "…"
}
