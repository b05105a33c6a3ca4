package cli

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/kept"
	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// environmentPrefix begins the name of every environment variable that stands
// for a flag.
const environmentPrefix = "FSM_PROXY_"

// bindEnvironment sets the flags that the command line left alone from the
// environment. An empty variable counts as absent, and so does one that has no
// meaning beside what the command line says, or, where it says nothing, the
// configuration file; that may be nil.
func bindEnvironment(cmd *cobra.Command, file *configFile) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || f.Name == "help" || meaningless(cmd, file, f.Name) || replaced(cmd, f) {
			return
		}
		variable := variableOf(f.Name)
		if value := os.Getenv(variable); value != "" {
			err = setFlag(cmd.Flags(), f, variable, value)
		}
	})
	return err
}

// checkEnvironment refuses variables that stand for no flag of any command: a
// misspelt one would leave a limit, or the way that clients authenticate, as it is
// built in. Empty ones count as absent, and so do those that Kubernetes sets for a
// Service named fsm-proxy, or fsm-proxy-x. Values are not repeated, as they can be
// secrets.
func checkEnvironment(root *cobra.Command, environ []string) error {
	known := map[string]bool{}
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[variableOf(f.Name)] = true })
	}
	delete(known, variableOf("help"))
	var unknown []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name) // names have no case there
		}
		if strings.HasPrefix(name, environmentPrefix) && value != "" && !known[name] && !process.IsServiceLink(name, value) {
			unknown = append(unknown, strictyaml.Printable(name)+meantVariable(name, slices.Sorted(maps.Keys(known))))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return exit.Usagef("no flag has this environment variable: %s; unset it, or see 'fsm-proxy run --help' for the flags", strings.Join(unknown, ", "))
}

// meantVariable says which variable was perhaps meant by an unknown one: the
// nearest, else the longest that it begins with.
func meantVariable(name string, known []string) string {
	near := nearest(name, known)
	for _, k := range known {
		longer := near == "" || strings.HasPrefix(name, near+"_") && len(k) > len(near)
		if longer && strings.HasPrefix(name, k+"_") {
			near = k
		}
	}
	if near == "" {
		return ""
	}
	return " (did you mean " + near + "?)"
}

// meaningless reports whether a setting of the environment would contradict the
// command line, or have nothing to belong to.
func meaningless(cmd *cobra.Command, file *configFile, flag string) bool {
	command := cmd.ArgsLenAtDash() >= 0 || file.has(config.CommandKey)
	url := !command && (given(cmd, "upstream") || file.has("upstream.url"))
	there := map[string]bool{
		"upstream": url, config.NeedsCommand: command, config.NeedsServer: command || url, "listen": given(cmd, "listen") || file.has("listen.address"),
	}
	return flag == "upstream" && command || slices.ContainsFunc(config.Needs(flag), func(need string) bool {
		is, known := there[need]
		return known && !is
	})
}

// replaced reports whether a flag has a value that is given instead of this one.
func replaced(cmd *cobra.Command, f *pflag.Flag) bool {
	return slices.ContainsFunc(f.Annotations[kept.Instead], func(other string) bool { return cmd.Flags().Changed(other) })
}

// given reports whether a flag has a value of the user's.
func given(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Changed(flag) || os.Getenv(variableOf(flag)) != ""
}

// variableOf is the environment variable of a flag.
func variableOf(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setFlag sets one flag; one that may be repeated takes a value from each line.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, variable, value string) error {
	values := []string{value}
	if f.Value.Type() == "stringArray" {
		values = strings.Split(strings.TrimSpace(value), "\n")
	}
	for _, v := range values {
		if err := flags.Set(f.Name, v); err != nil {
			return exit.Usagef("environment variable %s: %w%s", variable, err, valueHint(err))
		}
	}
	return nil
}
