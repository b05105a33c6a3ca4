package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// checkFlags are the flags of check.
type checkFlags struct {
	serverFlags
	color   colorFlag
	strict  bool
	format  string
	against string // the policy that the one to check takes the place of, or a folder of such
	folders bool   // against is a folder, and so is what is checked
	config  string // a configuration to check as well

	byHandle handleCheck // what the configuration says of the key handle
	unlocked bool        // nothing is said of locks
}

// checkFormats are what check prints in.
var checkFormats = map[string]struct {
	files func(*checkFlags, *console, []checked) error
	pairs func(*checkFlags, *console, []comparison) error
}{
	"text":   {(*checkFlags).writeFilesText, (*checkFlags).writePairsText},
	"json":   {(*checkFlags).writeFilesJSON, (*checkFlags).writePairsJSON},
	"github": {(*checkFlags).writeFilesGitHub, (*checkFlags).writePairsGitHub},
	"sarif":  {(*checkFlags).writeFilesSARIF, (*checkFlags).writePairsSARIF},
}

func newCheck(c *console) *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check FILE|FOLDER... [flags] [-- COMMAND ARG...]",
		Short: "Find what is wrong with policies, alone or against a live server",
		Example: "  fsm-proxy check files.yaml\n" +
			"  fsm-proxy check policies/\n" +
			"  fsm-proxy check files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy check --against files.yaml files-new.yaml\n" +
			"  fsm-proxy check --config fsm-proxy.yaml",
		ValidArgsFunction: policiesThenCommand(math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := f.take(c, cmd, args)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("against") && (f.against == "" || len(files) != 1) {
				return exit.Usagef("--against compares two policies, or the policies in two folders: fsm-proxy check --against OLD NEW")
			}
			if f.config != "" && f.against != "" {
				return exit.Usagef("--against compares two policies, and --config checks a configuration; give one of them")
			}
			return f.run(cmd.Context(), c, files)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&f.strict, "strict", false, "count warnings as errors")
	cmd.Flags().StringVar(&f.format, "format", "text", "the `FORMAT` to print: text, json, github (annotations of a workflow) or sarif")
	f.color.register(cmd.Flags())
	cmd.Flags().StringVar(&f.against, "against", "", "the policy file, or folder, `OLD` that FILE is to take the place of: say what a reload would do to each state")
	cmd.Flags().StringVar(&f.config, "config", "", "check this configuration `FILE` of run, and the policy that it names")
	f.register(cmd.Flags(), "A live server to check against", "lock")
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *checkFlags) run(ctx context.Context, c *console, files []string) error {
	if len(files) == 0 && f.config == "" {
		return exit.Usagef("no policy to check; give files or folders: fsm-proxy check FILE")
	}
	format, ok := checkFormats[f.format]
	if !ok {
		return exit.Usagef("--format %q is none of text, json, github, sarif", f.format)
	}
	if _, err := f.color.page(c.out); err != nil {
		return err
	}
	line := newStatusLine(c.err)
	var inv *inventory.Inventory
	if f.Server.Given() {
		var err error
		if inv, err = f.takeInventory(ctx, c, line); err != nil {
			return err
		}
	}
	if f.against != "" {
		pairs := f.compare(files[0], inv)
		return failed(format.pairs(f, c, pairs), pairs)
	}
	if f.LockFile != "" && (len(files) > 1 || len(files) == 1 && policyfile.IsFolder(files[0])) {
		return exit.Usagef("--lock names the lock of one policy; check one, or leave --lock out")
	}
	reports := f.checkAll(files, inv)
	return failed(format.files(f, c, reports), reports)
}

// checkAll checks the configuration, if there is one, with the policy that it names, and
// then the policies of files.
func (f *checkFlags) checkAll(files []string, inv *inventory.Inventory) (reports []checked) {
	if f.config != "" {
		configuration, its, lock := f.checkConfig()
		reports = append(reports, configuration)
		for _, path := range its {
			as := *f
			as.LockFile = cmp.Or(f.LockFile, lock)
			reports = append(reports, as.checkPath(path, inv)...)
		}
	}
	for _, path := range files {
		reports = append(reports, f.checkPath(path, inv)...)
	}
	return reports
}

// failed is the error of printing reports, else exit.ErrReported where one of them is not ok.
func failed[T interface{ ok() bool }](err error, all []T) error {
	if err != nil {
		return err
	}
	for _, x := range all {
		if !x.ok() {
			return exit.ErrReported
		}
	}
	return nil
}

// checked is what was found about one file.
type checked struct {
	file     string
	policy   *policy.Policy // nil if it could not be read
	holds    string         // how much there is in it
	findings policy.Findings
	sources  map[string][]byte      // by the findings' file; without those that hold secrets
	unbound  [policy.Kinds][]string // what the server lists and no state binds
	failure  error                  // the file could not be read
}

func (r checked) ok() bool { return r.failure == nil && len(r.findings.Errors()) == 0 }

// unreadable is the failure as a finding.
func (r checked) unreadable() policy.Finding {
	return policy.Finding{File: r.file, Code: "unreadable", Message: r.failure.Error()}
}

// checkPath checks a file, or each policy in a folder.
func (f *checkFlags) checkPath(path string, inv *inventory.Inventory) []checked {
	files, err := policyfile.Files(path)
	if err != nil {
		return []checked{{file: path, failure: err}}
	}
	reports := make([]checked, len(files))
	for i, file := range files {
		reports[i] = f.check(file, inv)
	}
	return reports
}

// check checks one file, against what a server lists where there is one.
func (f *checkFlags) check(file string, inv *inventory.Inventory) checked {
	read, err := policyfile.Read(file)
	if err != nil {
		return checked{file: file, failure: err}
	}
	p, findings := policyfile.Compile(read)
	r := checked{file: file, policy: p, sources: policyfile.Sources(read)}
	if p != nil {
		r.holds = count(len(p.States()), "state")
		if inv != nil {
			findings = findings.Merge(append(report.Against(p, inv.Offers, inv.TemplateServes), f.byHandle.findings(p, inv)...))
			r.unbound = inv.Unbound(p)
		}
		if !f.unlocked {
			its, path, text := lockFindings(p, f.LockFile, inv)
			findings = findings.Merge(its)
			r.sources[path] = text
		}
	}
	if f.strict {
		findings = findings.Strict()
	}
	r.findings = findings
	return r
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

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
		lock = tried.LockFile
	}
	if s, ok := said.Find("policy"); ok {
		policies = []string{policyfile.Watched(s.Values[0]).Read().Path}
	}
	return report, policies, lock
}

// tryOut is what run would say of the file by itself, before it opens anything.
// What is not given may stand on the command line. It returns the settings as the
// file has them.
func (c *configFile) tryOut() (*config.Run, error) {
	r, flags := &config.Run{}, pflag.NewFlagSet("run", pflag.ContinueOnError)
	config.Register(flags, r, "")
	if err := c.apply(flags, &r.Server); err != nil {
		return nil, err
	}
	if err := errors.Join(config.Check(flags, len(r.Server.Command) > 0), r.Server.Check()); err != nil {
		return nil, err
	}
	return r, r.Check()
}

// handleCheck is what check knows of the run key handle. The zero value is nothing:
// it is only noted what would be out of reach.
type handleCheck struct {
	known    bool   // a configuration says whether it is the key
	used     bool   // it is
	argument string // its name
}

// handlesOf is what run's flags say of the key handle.
func handlesOf(r *config.Run) handleCheck {
	keys, err := r.RunKeys()
	return handleCheck{known: err == nil, used: keys[wire.Modern].Kind == runs.Handle, argument: r.Runs.HandleArgument}
}

// findings says which tools that the policy binds cannot be called by handle.
func (h handleCheck) findings(p *policy.Policy, inv *inventory.Inventory) policy.Findings {
	level, argument := policy.LevelNote, handle.DefaultArgument
	switch {
	case h.known && !h.used:
		return nil
	case h.known:
		level, argument = policy.LevelWarning, h.argument
	}
	why := make(map[string]string)
	for tool, reason := range handle.Misfits(inv.Tools, argument) {
		why[tool] = reason.Text()
	}
	return report.AgainstHandles(p, why, level)
}

// lockFindings says what run would say of a policy's lock: that there is none, or
// that tools are not in it, or, where there is a server, not what was locked. src is
// the lock's source.
func lockFindings(p *policy.Policy, given string, inv *inventory.Inventory) (found policy.Findings, file string, src []byte) {
	if p.Pin() == policy.PinOff {
		return nil, "", nil
	}
	path := policyfile.LockPath(given, p.File())
	l, read, err := policyfile.ReadLock(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return report.WithoutLock(p, policyfile.NoLock(p, path).Error(), p.Pin() == policy.PinRefuse), "", nil
	case read.Err != nil:
		return report.WithoutLock(p, err.Error(), true), "", nil
	case err != nil:
		_, its := lock.Parse(path, read.Content)
		return append(report.WithoutLock(p, "the lock file "+path+" has errors; run 'fsm-proxy lock' again", true), its...), path, read.Content
	}
	why := map[string]string{}
	var unlocked []string
	if inv != nil {
		for tool, changes := range l.Compare(inv.Tools).Changed() {
			why[tool] = changes.Sentence()
			if changes[0] == lock.Unlocked {
				unlocked = append(unlocked, tool)
			}
		}
		return report.AgainstLock(p, why, unlocked), "", nil
	}
	for _, tool := range p.Exact(policy.Tool) {
		if _, locked := l.Tools[tool]; !locked {
			why[tool], unlocked = lock.Changes{lock.Unlocked}.Sentence(), append(unlocked, tool)
		}
	}
	return report.AgainstLock(p, why, unlocked), "", nil
}
