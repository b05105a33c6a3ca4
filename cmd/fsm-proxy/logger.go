package main

import (
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"
)

// logFlags say how much is logged, and in which form. Logs go to standard error
// only: standard output may be the protocol.
type logFlags struct {
	level  string
	format string
}

func (f *logFlags) register(flags *pflag.FlagSet, level string) {
	f.registerLevel(flags, level)
	flags.StringVar(&f.format, "log-format", "text", "the `FORMAT` of the log: text or json")
}

func (f *logFlags) registerLevel(flags *pflag.FlagSet, level string) {
	flags.StringVar(&f.level, "log-level", level, "the least `LEVEL` to log: trace, debug, info, warn, error or off")
}

// logger makes the logger that the flags ask for.
func (f *logFlags) logger(stderr io.Writer) (hclog.Logger, error) {
	level := hclog.LevelFromString(f.level)
	if level == hclog.NoLevel {
		return nil, usagef("--log-level %q is none of trace, debug, info, warn, error, off", f.level)
	}
	if f.format != "text" && f.format != "json" {
		return nil, usagef("--log-format %q is neither text nor json", f.format)
	}
	return hclog.New(&hclog.LoggerOptions{
		Name:       "fsm-proxy",
		Level:      level,
		Output:     stderr,
		JSONFormat: f.format == "json",
	}), nil
}
