package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// checkFlags are the flags of check.
type checkFlags struct {
	target
	log     logFlags
	color   colorFlag
	strict  bool
	format  string
	against string // the policy that the one to check takes the place of, or a folder of such
	folders bool   // against is a folder, and so is what is checked
	config  string // a configuration to check as well
	lock    string // the lock file of the one policy

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
				return usagef("--against compares two policies, or the policies in two folders: fsm-proxy check --against OLD NEW")
			}
			if f.config != "" && f.against != "" {
				return usagef("--against compares two policies, and --config checks a configuration; give one of them")
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
	cmd.Flags().StringVar(&f.lock, "lock", "", "the lock `FILE` of the policy's tools (default: the policy's name with .lock.yaml, beside it)")
	f.log.register(cmd.Flags(), "warn")
	group(cmd.Flags(), "A live server to check against", f.register)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *checkFlags) run(ctx context.Context, c *console, files []string) error {
	if len(files) == 0 && f.config == "" {
		return usagef("no policy to check; give files or folders: fsm-proxy check FILE")
	}
	format, ok := checkFormats[f.format]
	if !ok {
		return usagef("--format %q is none of text, json, github, sarif", f.format)
	}
	if _, err := f.color.screen(c.out); err != nil {
		return err
	}
	line := newStatusLine(c.err)
	log, err := f.log.logger(line)
	if err != nil {
		return err
	}
	var inv *inventory
	if f.given() {
		taken, err := takeInventory(ctx, &f.target, log, line)
		if err != nil {
			return err
		}
		inv = &taken
	}
	if f.against != "" {
		pairs := f.compare(files[0], inv)
		return failed(format.pairs(f, c, pairs), pairs)
	}
	if f.lock != "" && (len(files) > 1 || len(files) == 1 && isFolder(files[0])) {
		return usagef("--lock names the lock of one policy; check one, or leave --lock out")
	}
	reports := f.checkAll(files, inv)
	return failed(format.files(f, c, reports), reports)
}

// checkAll checks the configuration, if there is one, with the policy that it names, and
// then the policies of files.
func (f *checkFlags) checkAll(files []string, inv *inventory) (reports []checked) {
	if f.config != "" {
		configuration, its, lock := f.checkConfig()
		reports = append(reports, configuration)
		for _, path := range its {
			as := *f
			as.lock = cmp.Or(f.lock, lock)
			reports = append(reports, as.checkPath(path, inv)...)
		}
	}
	for _, path := range files {
		reports = append(reports, f.checkPath(path, inv)...)
	}
	return reports
}

// failed is the error of printing reports, else errReported where one of them is not ok.
func failed[T interface{ ok() bool }](err error, all []T) error {
	if err != nil {
		return err
	}
	for _, x := range all {
		if !x.ok() {
			return errReported
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
func (f *checkFlags) checkPath(path string, inv *inventory) []checked {
	files, err := policyFiles(path)
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
func (f *checkFlags) check(file string, inv *inventory) checked {
	src, err := readPolicyFile(file)
	if err != nil {
		return checked{file: file, failure: err}
	}
	p, findings := policy.Parse(file, src)
	r := checked{file: file, policy: p, sources: map[string][]byte{file: src}}
	if p != nil {
		r.holds = count(len(p.States()), "state")
		if inv != nil {
			findings = findings.Merge(append(p.Against(inv.offers, inv.templateServes), f.byHandle.findings(p, inv)...))
			r.unbound = inv.unbound(p)
		}
		if !f.unlocked {
			its, path, text := lockFindings(p, f.lock, inv)
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
