package cli

import (
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// checkConfig checks the configuration file, and returns the policy and the lock that it names.
func (f *checkFlags) checkConfig() (report checked, policies []string, lock string) {
	read := watch.Config{Path: f.config, What: "configuration"}.Read()
	if read.Err != nil {
		return checked{file: f.config, failure: read.Err}, nil, ""
	}
	said, findings := parseConfig(read)
	report = checked{file: read.Path, findings: findings}
	if said == nil {
		return report, nil, ""
	}
	report.holds = count(len(said.Settings), "key")
	file := &configFile{said: said, fixed: map[string]bool{}}
	tried, err := file.tryOut()
	if found, ok := file.finding(err); ok {
		report.findings = append(report.findings, found)
	}
	if err == nil {
		f.byHandle = handlesOf(tried)
		lock = tried.lock
	}
	if s, ok := said.Find("policy"); ok {
		policies = []string{watch.Config{Path: s.Values[0], MaxSize: maxPolicySize + 1}.Read().Path}
	}
	return report, policies, lock
}

// tryOut is what run would say of the file by itself, before it opens anything.
// What is not given may stand on the command line. It returns the flags as the file
// sets them.
func (c *configFile) tryOut() (*runFlags, error) {
	f, flags := &runFlags{}, pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(flags)
	if err := c.apply(flags, &f.target); err != nil {
		return nil, err
	}
	if err := f.target.check(); err != nil {
		return nil, err
	}
	if f.listen.address != "" {
		if _, err := f.listen.check(); err != nil {
			return nil, err
		}
	}
	return f, f.consistent(flags)
}
