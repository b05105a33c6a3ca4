package cli

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"

	"github.com/fsm-proxy/fsm-proxy/policy"
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
	States     []policy.StateChange `json:"states,omitzero"`
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
	out.States = p.states
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
