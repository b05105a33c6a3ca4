package cli

import (
	"io"
	"slices"
	"time"

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
	return tidy{hclog.New(&hclog.LoggerOptions{
		Name:       "fsm-proxy",
		Level:      level,
		Output:     stderr,
		JSONFormat: f.format == "json",
	})}, nil
}

// tidy is a logger that says a duration as 1.2s in JSON too, where hclog has its
// nanoseconds, and leaves out what is empty.
type tidy struct{ hclog.Logger }

func (l tidy) Log(level hclog.Level, msg string, pairs ...any) {
	l.Logger.Log(level, msg, tidied(pairs)...)
}
func (l tidy) Trace(msg string, pairs ...any) { l.Logger.Trace(msg, tidied(pairs)...) }
func (l tidy) Debug(msg string, pairs ...any) { l.Logger.Debug(msg, tidied(pairs)...) }
func (l tidy) Info(msg string, pairs ...any)  { l.Logger.Info(msg, tidied(pairs)...) }
func (l tidy) Warn(msg string, pairs ...any)  { l.Logger.Warn(msg, tidied(pairs)...) }
func (l tidy) Error(msg string, pairs ...any) { l.Logger.Error(msg, tidied(pairs)...) }

func (l tidy) With(pairs ...any) hclog.Logger      { return tidy{l.Logger.With(tidied(pairs)...)} }
func (l tidy) Named(name string) hclog.Logger      { return tidy{l.Logger.Named(name)} }
func (l tidy) ResetNamed(name string) hclog.Logger { return tidy{l.Logger.ResetNamed(name)} }

// tidied is pairs of names and values as they are logged.
func tidied(pairs []any) []any {
	out := make([]any, 0, len(pairs))
	for pair := range slices.Chunk(pairs, 2) {
		value := pair[len(pair)-1]
		switch v := value.(type) {
		case time.Duration:
			value = v.String()
		case string:
			if v == "" {
				continue
			}
		}
		out = append(append(out, pair[:len(pair)-1]...), value)
	}
	return out
}
