package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// withDash is a command line in which the -- in front of the server's command was
// forgotten, with it: 'npx -y SERVER' without it gives flags of the server, or of
// npx, to this program. It is "" where none was forgotten.
func withDash(cmd *cobra.Command, args []string) string {
	at := commandAt(cmd, args)
	if at < 0 {
		return ""
	}
	line := slices.Concat([]string{cmd.Root().Name()}, withoutSecrets(args[:at]), []string{"--"}, args[at:])
	return shellLine(line)
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
