package cli

import (
	"context"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// liveFlags are the flags that a change of the configuration file changes at once,
// each with what that is; all others wait for the next start.
type liveFlags map[string]func(text string) error

// live are the service's.
func (s *service) live() liveFlags {
	return liveFlags{
		"log-level": s.setLevel,
		"mode":      s.setMode,
	}
}

// follow takes changes of the configuration file until stop is called, which waits
// for the end of it. told is told of each what was wrong with it, nil for nothing.
func (c *configFile) follow(ctx context.Context, f *reloadFlags, live liveFlags, told func(errors []string), log hclog.Logger) (stop func()) {
	if c == nil {
		return func() {}
	}
	r := &configReload{file: c, inForce: c.said, live: live, told: told, log: log}
	return f.watch(ctx, "configuration", c.from.path, c.from.digest, r.take, log)
}

// configReload is what has become of a configuration file since the start. Only
// the goroutine that follows the file uses it.
type configReload struct {
	file    *configFile
	inForce *config.File // what was read last
	live    liveFlags
	told    func(errors []string)
	log     hclog.Logger
}

// take takes what the file has become. One with an error changes nothing.
func (r *configReload) take(read watch.File) {
	if read.Err != nil {
		r.refuse([]string{read.Err.Error()})
		return
	}
	said, findings := parseConfig(read)
	if said == nil {
		r.refuse(texts(findings.Errors()))
		return
	}
	said = r.file.remaining(said)
	applied, overridden := r.apply(said)
	r.inForce = said
	r.told(nil)
	r.log.Info("the configuration was reloaded", "file", read.Path, "applied", names(applied))
	if len(overridden) > 0 {
		r.log.Info("changed keys are overridden by the command line or the environment", "keys", names(overridden))
	}
	if waiting := r.waiting(said); len(waiting) > 0 {
		r.log.Warn("changed keys take effect at the next start", "keys", names(waiting))
	}
}

func (r *configReload) refuse(errors []string) {
	r.told(errors)
	for _, text := range errors {
		r.log.Error("the configuration was not reloaded, what was read before holds", "error", text)
	}
}

// apply applies the live keys that differ from what was in force before, and
// returns them, and those that the command line or the environment overrides.
func (r *configReload) apply(said *config.File) (applied, overridden []string) {
	for _, key := range changes(r.inForce, said) {
		flag := flagOf(key, r.inForce, said)
		change, live := r.live[flag]
		switch {
		case r.file.fixed[flag]:
			overridden = append(overridden, key)
		case !live:
		default:
			if err := change(valueOf(said, key, flag)); err != nil {
				r.log.Error("applying a changed key: it takes effect at the next start", "key", key, "error", err)
				continue
			}
			applied = append(applied, key)
		}
	}
	return applied, overridden
}

// waiting are the keys that differ from what the proxy was started with, and that
// nothing but a start applies.
func (r *configReload) waiting(said *config.File) (keys []string) {
	for _, key := range changes(r.file.said, said) {
		flag := flagOf(key, r.file.said, said)
		if _, live := r.live[flag]; !live && !r.file.fixed[flag] {
			keys = append(keys, key)
		}
	}
	return keys
}

// changes are the keys of which two files say different things.
func changes(old, new *config.File) (keys []string) {
	for _, s := range new.Settings {
		if before, ok := old.Find(s.Key); !ok || !before.Same(s) {
			keys = append(keys, s.Key)
		}
	}
	for _, s := range old.Settings {
		if _, ok := new.Find(s.Key); !ok {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// flagOf is the flag of a key that one of two files gives.
func flagOf(key string, files ...*config.File) string {
	for _, f := range files {
		if s, ok := f.Find(key); ok {
			return s.Flag
		}
	}
	return ""
}

// valueOf is what a file says of a key, or what is built in.
func valueOf(said *config.File, key, flag string) string {
	if s, ok := said.Find(key); ok {
		return s.Values[0]
	}
	built := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(built)
	return built.Lookup(flag).DefValue
}

// names are keys for the log.
func names(keys []string) string {
	if len(keys) == 0 {
		return "nothing"
	}
	return strings.Join(keys, ", ")
}
