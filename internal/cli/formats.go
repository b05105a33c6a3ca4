package cli

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

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
		File    string `json:"file,omitzero"` // where it is another than the report's: a lock
		Line    int    `json:"line,omitzero"`
		Column  int    `json:"column,omitzero"`
		Message string `json:"message"`
	}
)

func (f *checkFlags) writeFilesJSON(c *console, reports []checked) error {
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
		found := jsonFinding{Level: x.Level.String(), Code: x.Code, Line: x.Line, Column: x.Column, Message: x.Message}
		if x.File != r.file {
			found.File = x.File
		}
		out.Findings = append(out.Findings, found)
	}
	return out
}

// The form of check --against --format json. Where there is one policy alone, the
// other is left out. What compares two policies is left out where there are errors, too.
type jsonComparison struct {
	OK         bool                 `json:"ok"`
	Old        *jsonReport          `json:"old,omitzero"`
	New        *jsonReport          `json:"new,omitzero"`
	Initial    jsonPair             `json:"initial,omitzero"`
	OnComplete jsonPair             `json:"on_complete,omitzero"`
	OnReload   string               `json:"on_reload,omitzero"` // of the new policy, whose word holds
	Stranded   string               `json:"stranded,omitzero"`  // likewise
	Settings   []report.TermChange  `json:"settings,omitempty"` // what differs of registers, and of what a run may do at most
	States     []report.StateChange `json:"states,omitzero"`
}

// jsonPair is one setting of both policies.
type jsonPair struct {
	Old string `json:"old"`
	New string `json:"new"`
}

func (f *checkFlags) writePairsJSON(c *console, pairs []comparison) error {
	if !f.folders {
		return writeIndented(c.out, pairs[0].json())
	}
	all := make([]jsonComparison, len(pairs))
	for i, p := range pairs {
		all[i] = p.json()
	}
	return writeIndented(c.out, all)
}

func (p comparison) json() jsonComparison {
	out := jsonComparison{OK: p.ok()}
	if p.old != nil {
		report := p.old.json()
		out.Old = &report
	}
	if p.new != nil {
		report := p.new.json()
		out.New = &report
	}
	if !p.comparable() {
		return out
	}
	old, new := p.old.policy, p.new.policy
	out.Initial = jsonPair{old.StateName(old.Initial().State), new.StateName(new.Initial().State)}
	out.OnComplete = jsonPair{old.OnComplete().String(), new.OnComplete().String()}
	out.OnReload, out.Stranded = new.OnReload().String(), new.Stranded().String()
	out.Settings, out.States = report.SettingChanges(old, new), p.states
	return out
}

// writeIndented writes v as JSON for people and machines. The name of a file may be
// no UTF-8: what JSON cannot hold of it is replaced.
func writeIndented(w io.Writer, v any) error {
	if err := json.MarshalWrite(w, v, jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// A workflow command of GitHub Actions is a line, "::error file=…,line=…::message",
// that becomes an annotation. Nothing else is printed: what stands in a policy must
// not be able to begin a command. GitHub shows ten annotations of a level for a
// step, so errors go first, and what text prints on one line is one annotation.

func (f *checkFlags) writeFilesGitHub(c *console, reports []checked) error {
	var all policy.Findings
	for _, r := range reports {
		all = append(all, r.annotations()...)
	}
	return writeCommands(c.out, all)
}

func (f *checkFlags) writePairsGitHub(c *console, pairs []comparison) error {
	var all policy.Findings
	for _, p := range pairs {
		for _, r := range p.reported() {
			all = append(all, r.annotations()...)
		}
		all = append(all, p.findings()...)
		if text := p.text(); text != "" {
			all = append(all, policy.Finding{Level: policy.LevelNote, File: p.new.file, Code: "reload", Message: text})
		}
	}
	return writeCommands(c.out, all)
}

// annotations are the findings about a file that GitHub is to show: condensed, without
// the number of implicit stays. A file that could not be read is one finding.
func (r checked) annotations() policy.Findings {
	if r.failure != nil {
		return policy.Findings{r.unreadable()}
	}
	return slices.DeleteFunc(r.condensed(), func(f policy.Finding) bool { return f.Code == "implicit-stay" })
}

func writeCommands(w io.Writer, all policy.Findings) error {
	slices.SortStableFunc(all, func(a, b policy.Finding) int { return int(a.Level) - int(b.Level) })
	for _, f := range all {
		if _, err := io.WriteString(w, workflowCommand(f)); err != nil {
			return err
		}
	}
	return nil
}

var githubCommands = [...]string{policy.LevelError: "error", policy.LevelWarning: "warning", policy.LevelNote: "notice"}

func workflowCommand(f policy.Finding) string {
	place := "file=" + githubProperty.Replace(fromRoot(f.File))
	if f.Line > 0 {
		place += fmt.Sprintf(",line=%d,col=%d", f.Line, f.Column)
	}
	return fmt.Sprintf("::%s %s,title=%s::%s\n", githubCommands[f.Level], place, githubProperty.Replace(f.Code), githubData.Replace(f.Message))
}

// What the runner reads otherwise in a message, and in a property.
var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// fromRoot is a file's path from the root of the repository, with slashes: from
// GITHUB_WORKSPACE in a workflow, else from here. What lies elsewhere keeps its
// absolute path.
func fromRoot(file string) string {
	root := os.Getenv("GITHUB_WORKSPACE")
	if root == "" {
		root = "."
	}
	root, path := host.Absolute(root), host.Absolute(file)
	if within, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(within) {
		return filepath.ToSlash(within)
	}
	return filepath.ToSlash(path)
}

// The part of SARIF 2.1.0 that check writes: one run, its rules and its results.
// The libraries for SARIF have the whole format, a validator of their own with it.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string       `json:"id"`
		Short   sarifMessage `json:"shortDescription"`
		Full    sarifMessage `json:"fullDescription"`
		Help    sarifMessage `json:"help"`
		HelpURI string       `json:"helpUri"`
		Default sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level string `json:"level"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool `json:"executionSuccessful"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region,omitzero"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId,omitzero"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitzero"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
)

const (
	sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
	sarifHome   = "https://github.com/fsm-proxy/fsm-proxy"
)

func (f *checkFlags) writeFilesSARIF(c *console, reports []checked) error {
	var all policy.Findings
	for _, r := range reports {
		all = append(all, r.allFindings()...)
	}
	return writeIndented(c.out, newSARIF(c.version, all))
}

func (f *checkFlags) writePairsSARIF(c *console, pairs []comparison) error {
	var all policy.Findings
	for _, p := range pairs {
		for _, r := range p.reported() {
			all = append(all, r.allFindings()...)
		}
		all = append(all, p.findings()...)
	}
	return writeIndented(c.out, newSARIF(c.version, all))
}

// allFindings are all findings, none condensed. A file that could not be read is one.
func (r checked) allFindings() policy.Findings {
	if r.failure != nil {
		return policy.Findings{r.unreadable()}
	}
	return r.findings
}

func newSARIF(version string, all policy.Findings) sarifLog {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "fsm-proxy", Version: version, InformationURI: sarifHome}},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true}},
		ColumnKind:  "unicodeCodePoints",
		Results:     []sarifResult{},
	}
	at := map[string]int{}
	for i, r := range rules {
		at[r.id] = i
		text := sarifMessage{r.meaning}
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: r.id, Short: text, Full: text, Help: sarifMessage{"See " + sarifHome + "/blob/main/docs/policy.md#findings."},
			HelpURI: sarifHome + "/blob/main/docs/policy.md#findings", Default: sarifDefault{r.level.String()},
		})
	}
	for _, f := range all {
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Code, RuleIndex: at[f.Code], Level: f.Level.String(), Message: sarifMessage{f.Message}, Locations: []sarifLocation{locationOf(f)},
		})
	}
	return sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}}
}

// locationOf is where a finding is. One without a place is at its file's first line,
// since readers show none without.
func locationOf(f policy.Finding) sarifLocation {
	path := fromRoot(f.File)
	at := sarifPhysical{Artifact: sarifArtifact{URI: (&url.URL{Path: path}).String(), Base: "%SRCROOT%"}, Region: sarifRegion{max(f.Line, 1), f.Column}}
	if filepath.IsAbs(filepath.FromSlash(path)) {
		at.Artifact = sarifArtifact{URI: (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(path, "/")}).String()}
	}
	return sarifLocation{at}
}
