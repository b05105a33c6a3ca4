package cli

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

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
	return writeIndented(c.out, newSARIF(all))
}

func (f *checkFlags) writePairsSARIF(c *console, pairs []comparison) error {
	var all policy.Findings
	for _, p := range pairs {
		for _, r := range p.reported() {
			all = append(all, r.allFindings()...)
		}
		all = append(all, p.findings()...)
	}
	return writeIndented(c.out, newSARIF(all))
}

// allFindings are all findings, none condensed. A file that could not be read is one.
func (r checked) allFindings() policy.Findings {
	if r.failure != nil {
		return policy.Findings{r.unreadable()}
	}
	return r.findings
}

func newSARIF(all policy.Findings) sarifLog {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "fsm-proxy", Version: versionText(), InformationURI: sarifHome}},
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
