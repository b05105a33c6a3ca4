package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
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
		if err != nil || f.Changed || f.Name == "help" || meaningless(cmd, file, f.Name) {
			return
		}
		variable := variableOf(f.Name)
		if value := os.Getenv(variable); value != "" {
			err = setFlag(cmd.Flags(), f, variable, value)
		}
	})
	return err
}

// meaningless reports whether a flag would contradict the command line, or have
// nothing to belong to.
func meaningless(cmd *cobra.Command, file *configFile, flag string) bool {
	command := cmd.ArgsLenAtDash() >= 0 || file.has(config.CommandKey)
	switch {
	case flag == "env", flag == "pass-env", flag == "upstream-ping":
		return !command
	case slices.Contains(listening, flag):
		return !given(cmd, "listen") && !file.has("listen.address")
	case flag == "upstream":
		return command
	}
	if flag == "upstream-protocol" {
		return !command && !given(cmd, "upstream") && !file.has("upstream.url")
	}
	return strings.HasPrefix(flag, "upstream-") && (command || !given(cmd, "upstream") && !file.has("upstream.url"))
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
			return usagef("environment variable %s: %w%s", variable, err, valueHint(err))
		}
	}
	return nil
}
