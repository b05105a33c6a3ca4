package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// configFlags say where the configuration file is, and hold it.
type configFlags struct {
	path string
	file *configFile // nil where there is none
}

func (f *configFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.path, "config", "", "a configuration `FILE` for what is not said here or in the environment")
}

// configFile is the configuration file of one command line.
type configFile struct {
	said  *config.File    // what it says, but for groups that the command line replaces
	from  source          // where it was read
	fixed map[string]bool // the flags that the command line or the environment has set
	cut   []string        // the groups that the command line replaces
}

// bind sets the flags that the command line left alone: from the environment, and
// then from the configuration file.
func (f *runFlags) bind(cmd *cobra.Command) error {
	path := f.config.path
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
	f.config.file = file
	return file.apply(cmd.Flags(), &f.target)
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
	return &configFile{said: said, from: source{path: path, digest: read.Digest, watched: true}, fixed: map[string]bool{}}, nil
}

// parseConfig parses what was read; each value is one that its flag takes.
func parseConfig(read watch.File) (*config.File, config.Findings) {
	scratch := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(scratch)
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
func (c *configFile) apply(flags *pflag.FlagSet, t *target) error {
	flags.VisitAll(func(f *pflag.Flag) { c.fixed[f.Name] = f.Changed })
	for _, s := range c.said.Settings {
		if s.Key == config.CommandKey {
			t.command = s.Values
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
