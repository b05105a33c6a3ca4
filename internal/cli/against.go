package cli

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// comparison is what a reload of one policy in place of another does. One of them
// is nil where the other is new, or gone.
type comparison struct {
	old, new *checked
	states   []report.StateChange
	strict   bool // a stranded state is an error
}

// compare checks f.against and the policy that is to take its place, and says
// what a reload would do to each state; of two folders, so each two policies of one
// name. --strict and a live server are for the new one: what is wrong with the old
// one is in force already, and so is its lock.
func (f *checkFlags) compare(path string, inv *inventory.Inventory) []comparison {
	var out []comparison
	for _, p := range f.successions(path) {
		x := comparison{strict: f.strict}
		if p.old != "" {
			x.old = &(&checkFlags{unlocked: true}).checkPath(p.old, nil)[0]
		}
		if p.new != "" {
			x.new = &f.checkPath(p.new, inv)[0]
		}
		if x.comparable() {
			x.states = report.Compare(x.old.policy, x.new.policy)
		}
		out = append(out, x)
	}
	return out
}

// succession is the files of a policy and of the one to take its place; one of them may
// be "".
type succession struct{ old, new string }

// successions are the files to compare. Where one path alone is a folder, the file in it
// is meant that is called as the other.
func (f *checkFlags) successions(path string) []succession {
	old, new := f.against, path
	switch oldFolder, newFolder := policyfile.IsFolder(old), policyfile.IsFolder(new); {
	case oldFolder && newFolder:
		f.folders = true
		return successionsIn(old, new)
	case oldFolder:
		old = filepath.Join(old, filepath.Base(new))
	case newFolder:
		new = filepath.Join(new, filepath.Base(old))
	}
	return []succession{{old, new}}
}

// successionsIn are the files of two folders by name. A folder without any stands for
// itself, so that what is wrong with it is printed.
func successionsIn(old, new string) []succession {
	before, oldErr := policyfile.Files(old)
	after, newErr := policyfile.Files(new)
	switch {
	case oldErr != nil:
		return []succession{{old: old}}
	case newErr != nil:
		return []succession{{new: new}}
	}
	byName := map[string]succession{}
	for _, file := range before {
		byName[filepath.Base(file)] = succession{old: file}
	}
	for _, file := range after {
		name := filepath.Base(file)
		byName[name] = succession{byName[name].old, file}
	}
	out := make([]succession, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// comparable reports whether there are two policies to compare.
func (p comparison) comparable() bool {
	return p.old != nil && p.new != nil && p.old.ok() && p.new.ok()
}

// ok reports whether all is well. What is wrong with a policy that goes is no matter.
func (p comparison) ok() bool {
	switch {
	case p.old == nil:
		return p.new.ok()
	case p.new == nil:
		return p.old.failure == nil
	}
	return p.comparable() && len(p.findings().Errors()) == 0
}

// files are the policies that there are.
func (p comparison) files() []checked {
	var out []checked
	for _, r := range []*checked{p.old, p.new} {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out
}

// reported are the policies that there are, with the errors alone of the old one: its
// other findings are no part of the change.
func (p comparison) reported() []checked {
	out := p.files()
	if p.old != nil {
		out[0].findings = p.old.findings.Errors()
	}
	return out
}

// findings are what is found by comparing.
func (p comparison) findings() policy.Findings {
	file := p.old
	if p.new != nil {
		file = p.new
	}
	r := strictyaml.NewReader(file.file, strictyaml.Language{})
	switch {
	case file.failure != nil:
	case p.old == nil:
		r.Add(policy.LevelNote, strictyaml.Place{}, "policy-added", "the old folder has no policy of this name")
	case p.new == nil:
		r.Add(policy.LevelNote, strictyaml.Place{}, "policy-removed", "the new folder has no policy of this name; a proxy that runs with it keeps the last good one until it ends")
	}
	for _, x := range p.states {
		if x.Change == report.StateStranded {
			r.Add(policy.LevelWarning, strictyaml.Place{}, "stranded", "state %s of %s is stranded; name the state that takes its place in \"renamed\", or keep it", strictyaml.Quote(x.Old), p.old.file)
		}
	}
	if p.strict {
		return r.Findings().Strict()
	}
	return r.Findings()
}

// text says what a reload would do, "" where two cannot be compared.
func (p comparison) text() string {
	if !p.comparable() {
		return ""
	}
	return report.CompareText(p.old.policy, p.new.policy)
}
