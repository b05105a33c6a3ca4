package main

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// checkFlags are the flags of check.
type checkFlags struct {
	target
	log     logFlags
	strict  bool
	format  string
	against string // the policy that the one to check takes the place of
	config  string // a configuration to check as well

	byHandle handleCheck // what the configuration says of the key handle
}

func newCheck(c *console) *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check FILE... [flags] [-- COMMAND ARG...]",
		Short: "Find what is wrong with policies, alone or against a live server",
		Example: "  fsm-proxy check files.yaml\n" +
			"  fsm-proxy check files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy check --against files.yaml files-new.yaml\n" +
			"  fsm-proxy check --config fsm-proxy.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := f.take(cmd, args)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("against") && (f.against == "" || len(files) != 1) {
				return usagef("--against compares two policies: fsm-proxy check --against OLD NEW")
			}
			if f.config != "" && f.against != "" {
				return usagef("--against compares two policies, and --config checks a configuration; give one of them")
			}
			return f.run(cmd.Context(), c, files)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&f.strict, "strict", false, "count warnings as errors, and with --against stranded states too")
	cmd.Flags().StringVar(&f.format, "format", "text", "the `FORMAT` to print: text or json")
	cmd.Flags().StringVar(&f.against, "against", "", "the policy file `OLD` that FILE is to take the place of: say what a reload would do to each state")
	cmd.Flags().StringVar(&f.config, "config", "", "check this configuration `FILE` of run, and the policy that it names")
	f.log.register(cmd.Flags(), "warn")
	group(cmd.Flags(), "A live server to check against", f.register)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *checkFlags) run(ctx context.Context, c *console, files []string) error {
	if len(files) == 0 && f.config == "" {
		return usagef("no policy to check; give one or more files: fsm-proxy check FILE")
	}
	if f.format != "text" && f.format != "json" {
		return usagef("--format %q is neither text nor json", f.format)
	}
	log, err := f.log.logger(c.err)
	if err != nil {
		return err
	}
	var inv *inventory
	if f.given() {
		taken, err := takeInventory(ctx, &f.target, log)
		if err != nil {
			return err
		}
		inv = &taken
	}
	if f.against != "" {
		return f.compare(c, files[0], inv)
	}
	var reports []checked
	if f.config != "" {
		configuration, its := f.checkConfig()
		reports, files = append(reports, configuration), append(its, files...)
	}
	for _, file := range files {
		reports = append(reports, f.check(file, inv))
	}
	return f.print(c, reports)
}

// checked is what was found about one file.
type checked struct {
	file     string
	policy   *policy.Policy // nil if it could not be read
	holds    string         // how much there is in it
	findings policy.Findings
	unbound  [policy.Kinds][]string // what the server lists and no state binds
	failure  error                  // the file could not be read
}

func (r checked) ok() bool { return r.failure == nil && len(r.findings.Errors()) == 0 }

// check checks one file, against what a server lists where there is one.
func (f *checkFlags) check(file string, inv *inventory) checked {
	src, err := readPolicyFile(file)
	if err != nil {
		return checked{file: file, failure: err}
	}
	p, findings := policy.Parse(file, src)
	r := checked{file: file, policy: p}
	if p != nil {
		r.holds = count(len(p.States()), "state")
		if inv != nil {
			findings = findings.Merge(append(p.Against(inv.offers, inv.templateServes), f.byHandle.findings(p, inv)...))
			r.unbound = inv.unbound(p)
		}
	}
	if f.strict {
		findings = findings.Strict()
	}
	r.findings = findings
	return r
}

// print prints all reports; its error says whether one is not ok.
func (f *checkFlags) print(c *console, reports []checked) error {
	write := writeCheckText
	if f.format == "json" {
		write = writeCheckJSON
	}
	if err := write(c, reports); err != nil {
		return err
	}
	for _, r := range reports {
		if !r.ok() {
			return errReported
		}
	}
	return nil
}

func writeCheckText(c *console, reports []checked) error {
	for _, r := range reports {
		if r.failure != nil {
			fmt.Fprintf(c.err, "fsm-proxy: %v\n", r.failure)
			continue
		}
		text := r.text()
		if _, err := io.WriteString(c.out, text); err != nil {
			return err
		}
	}
	return nil
}

// text is all findings, a line each, and the summary. The notes on implicit
// stays are one line: there is one for nearly every binding, and they are to be
// looked up, by --format json, not to be read. What no state binds is one line
// for each kind: a policy often leaves out most of what a server has.
func (r checked) text() string {
	var b strings.Builder
	stays := 0
	for _, found := range r.findings {
		switch {
		case found.Code == "unbound":
		case found.Code == "implicit-stay" && found.Level == policy.LevelNote:
			stays++
		default:
			b.WriteString(found.String() + "\n")
		}
	}
	for _, kind := range policy.AllKinds {
		if names := r.unbound[kind]; len(names) > 0 {
			fmt.Fprintf(&b, "%s: note: no state binds %d of the upstream's %s: %s\n", r.file, len(names), kind.Plural(), strings.Join(names, ", "))
		}
	}
	if stays > 0 {
		fmt.Fprintf(&b, "%s: note: %s: nothing is said of some outcome, so the state stays; --format json has each\n",
			r.file, count(stays, "implicit stay"))
	}
	return b.String() + r.summary() + "\n"
}

// summary is one line on a whole file.
func (r checked) summary() string {
	errors, warnings := len(r.findings.Errors()), len(r.findings.Warnings())
	switch {
	case errors > 0:
		return fmt.Sprintf("%s: %s, %s", r.file, count(errors, "error"), count(warnings, "warning"))
	case warnings > 0:
		return fmt.Sprintf("%s: ok, %s, %s", r.file, r.holds, count(warnings, "warning"))
	}
	return fmt.Sprintf("%s: ok, %s", r.file, r.holds)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// The form of check --format json.
type (
	jsonReport struct {
		File     string        `json:"file"`
		OK       bool          `json:"ok"`
		Failure  string        `json:"failure,omitzero"`
		Findings []jsonFinding `json:"findings"`
	}
	jsonFinding struct {
		Level   string `json:"level"`
		Code    string `json:"code"`
		Line    int    `json:"line,omitzero"`
		Column  int    `json:"column,omitzero"`
		Message string `json:"message"`
	}
)

func writeCheckJSON(c *console, reports []checked) error {
	all := make([]jsonReport, len(reports))
	for i, r := range reports {
		all[i] = r.json()
	}
	return writeIndented(c.out, all)
}

func (r checked) json() jsonReport {
	out := jsonReport{File: r.file, OK: r.ok(), Findings: []jsonFinding{}}
	if r.failure != nil {
		out.Failure = r.failure.Error()
	}
	for _, x := range r.findings {
		out.Findings = append(out.Findings, jsonFinding{x.Level.String(), x.Code, x.Line, x.Column, x.Message})
	}
	return out
}

// writeIndented writes v as JSON for people and machines.
func writeIndented(w io.Writer, v any) error {
	if err := json.MarshalWrite(w, v, jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
