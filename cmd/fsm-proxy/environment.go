package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// environmentPrefix begins the name of every environment variable that stands
// for a flag.
const environmentPrefix = "FSM_PROXY_"

// bindEnvironment sets the flags that the command line left alone from the
// environment. An empty variable counts as absent, and so does one that has no
// meaning beside what the command line says.
func bindEnvironment(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || f.Name == "help" || meaningless(cmd, f.Name) {
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
func meaningless(cmd *cobra.Command, flag string) bool {
	command := cmd.ArgsLenAtDash() >= 0
	switch flag {
	case "env", "pass-env":
		return !command
	case "bearer-file", "insecure-listen", "allowed-host", "allowed-origin":
		return !given(cmd, "listen")
	case "upstream":
		return command
	}
	return strings.HasPrefix(flag, "upstream-") && (command || !given(cmd, "upstream"))
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
