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
// environment. An empty variable counts as absent.
func bindEnvironment(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || f.Name == "help" {
			return
		}
		if f.Name == "upstream" && cmd.ArgsLenAtDash() >= 0 {
			return // the command line names a command instead
		}
		variable := variableOf(f.Name)
		if value := os.Getenv(variable); value != "" {
			err = setFlag(cmd.Flags(), f, variable, value)
		}
	})
	return err
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
			return usagef("environment variable %s: %w", variable, err)
		}
	}
	return nil
}
