package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// configFile is the configuration file of one command line.
type configFile struct {
	said   *config.File // what it says, but for groups that the command line replaces
	path   string
	digest [32]byte        // of what was read
	fixed  map[string]bool // the flags that the command line or the environment has set
	cut    []string        // the groups that the command line replaces
}

// bind sets the flags that the command line left alone: from the environment, and
// then from the configuration file.
func (f *runFlags) bind(cmd *cobra.Command) error {
	path := f.configPath
	if !cmd.Flags().Changed("config") {
		path = os.Getenv(variableOf("config"))
	}
	if path == "" {
		return bindEnvironment(cmd, nil)
	}
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	file.cutGroups(cmd)
	if err := bindEnvironment(cmd, file); err != nil {
		return err
	}
	f.file = file
	return file.apply(cmd.Flags(), &f.Server)
}

// readConfig reads a configuration file. Its error has a line for each error in
// the file.
func readConfig(path string) (*configFile, error) {
	read := watch.Config{Path: path, What: "configuration"}.Read()
	if read.Err != nil {
		return nil, read.Err
	}
	said, findings := parseConfig(read)
	if err := findings.Err(); err != nil {
		return nil, fmt.Errorf("the configuration has errors:\n%w", err)
	}
	return &configFile{said: said, path: path, digest: read.Digest, fixed: map[string]bool{}}, nil
}

// parseConfig parses what was read; each value is one that its flag takes.
func parseConfig(read watch.File) (*config.File, config.Findings) {
	scratch := pflag.NewFlagSet("run", pflag.ContinueOnError)
	config.Register(scratch, new(config.Run), "")
	return config.Parse(read.Path, filepath.Dir(read.Path), read.Content, func(s config.Setting) error {
		return setFromFile(scratch, s)
	})
}

// setFromFile sets the flag of one key, if it stands for one.
func setFromFile(flags *pflag.FlagSet, s config.Setting) error {
	flag := flags.Lookup(s.Flag)
	if flag == nil {
		return nil
	}
	if many, ok := flag.Value.(pflag.SliceValue); ok {
		flag.Changed = true
		return many.Replace(s.Values)
	}
	err := flags.Set(s.Flag, s.Values[0])
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		return errors.Unwrap(invalid)
	}
	return err
}

// cutGroups leaves out what the command line replaces as a whole: the wrapped
// server, where it names one, and all about listening, where it says not to.
func (c *configFile) cutGroups(cmd *cobra.Command) {
	if cmd.ArgsLenAtDash() >= 0 || given(cmd, "upstream") {
		c.cut = append(c.cut, "upstream")
	}
	if listen := cmd.Flags().Lookup("listen"); listen.Changed && listen.Value.String() == "" {
		c.cut = append(c.cut, "listen")
	}
	c.said = c.remaining(c.said)
}

// remaining is what a file says of what the command line does not replace.
func (c *configFile) remaining(said *config.File) *config.File {
	for _, group := range c.cut {
		said = said.Without(group)
	}
	return said
}

// apply sets the flags, and the command, that are not set yet.
func (c *configFile) apply(flags *pflag.FlagSet, server *service.Server) error {
	flags.VisitAll(func(f *pflag.Flag) { c.fixed[f.Name] = f.Changed })
	for _, s := range c.said.Settings {
		if s.Key == config.CommandKey {
			server.Command = s.Values
			continue
		}
		if c.fixed[s.Flag] {
			continue
		}
		if err := setFromFile(flags, s); err != nil {
			return errors.New(c.said.Error(s, err.Error()).String())
		}
	}
	return nil
}

// has reports whether the file gives a key, and the command line does not replace
// it.
func (c *configFile) has(key string) bool {
	if c == nil {
		return false
	}
	_, ok := c.said.Find(key)
	return ok
}

// flagName is a flag in an error's text: the error of a wrong command line names
// what it is about.
var flagName = regexp.MustCompile(`--[a-z][a-z-]*`)

// flagValue is one with the value to give it.
var flagValue = regexp.MustCompile(`'--([a-z][a-z-]*) ([^']+)'`)

// locate turns an error about a flag that the file has set into one about its key,
// at its place. It returns others as they are.
func (c *configFile) locate(err error) error {
	if found, ok := c.finding(err); ok {
		return errors.New(found.String())
	}
	return err
}

// finding is what locate finds.
func (c *configFile) finding(err error) (found config.Finding, ok bool) {
	if c == nil || err == nil {
		return config.Finding{}, false
	}
	paths := config.Keys()
	said := func(flag string) string { // its key, "" where that is none, or not the file's
		if c.fixed[flag] {
			return ""
		}
		return paths[flag]
	}
	var about config.Setting
	for _, name := range flagName.FindAllString(err.Error(), -1) {
		if s, there := c.said.Find(said(name[2:])); there && !ok {
			about, ok = s, true
		}
	}
	message := flagValue.ReplaceAllStringFunc(err.Error(), func(quoted string) string {
		part := flagValue.FindStringSubmatch(quoted)
		if said(part[1]) == "" {
			return quoted
		}
		return "'" + config.Written(part[1], part[2]) + "'"
	})
	message = flagName.ReplaceAllStringFunc(message, func(name string) string { return cmp.Or(said(name[2:]), name) })
	return c.said.Error(about, message), ok
}

// liveFlags are the flags that a change of the configuration file changes at once,
// each with what that is; all others wait for the next start.
type liveFlags map[string]func(text string) error

// followed has a service follow the file; nil: there is none.
func (c *configFile) followed(log hclog.Logger) *service.Configuration {
	if c == nil {
		return nil
	}
	r := &configReload{file: c, inForce: c.said, log: log}
	return &service.Configuration{Path: c.path, Digest: c.digest, Take: func(read watch.File, live service.Live) {
		r.told, r.live = live.Told, liveFlags{"log-level": live.Level, "mode": live.Mode}
		r.take(read)
	}}
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
		r.refuse(service.Texts(findings.Errors()))
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
		r.log.Error("the configuration was not reloaded, the last good one stays in force", "error", text)
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
				r.log.Error("a changed key was not applied, it takes effect at the next start", "key", key, "error", err)
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
	config.Register(built, new(config.Run), "")
	return built.Lookup(flag).DefValue
}

// names are keys for the log.
func names(keys []string) string {
	if len(keys) == 0 {
		return "nothing"
	}
	return strings.Join(keys, ", ")
}
