package main

import (
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// comparison is what a reload of one policy in place of another does.
type comparison struct {
	old, new checked
	states   []policy.StateChange
	strict   bool // a stranded state is an error
}

// compare checks f.against and the policy that is to take its place, and says
// what a reload would do to each state. --strict and a live server are for the
// new one: what is wrong with the old one is in force already.
func (f *checkFlags) compare(c *console, file string, inv *inventory) error {
	r := comparison{old: (&checkFlags{}).check(f.against, nil), new: f.check(file, inv), strict: f.strict}
	if r.bothOK() {
		r.states = policy.Compare(r.old.policy, r.new.policy)
	}
	write := r.writeText
	if f.format == "json" {
		write = r.writeJSON
	}
	if err := write(c); err != nil {
		return err
	}
	if !r.ok() {
		return errReported
	}
	return nil
}

// bothOK reports whether there are two policies to compare.
func (r comparison) bothOK() bool { return r.old.ok() && r.new.ok() }

func (r comparison) ok() bool { return r.bothOK() && (!r.strict || len(r.stranded()) == 0) }

// stranded are the states whose runs would be stranded.
func (r comparison) stranded() []string {
	var out []string
	for _, x := range r.states {
		if x.Change == policy.StateStranded {
			out = append(out, x.Old)
		}
	}
	return out
}

func (r comparison) writeText(c *console) error {
	if err := writeCheckText(c, []checked{r.old, r.new}); err != nil || !r.bothOK() {
		return err
	}
	if _, err := fmt.Fprintf(c.out, "\n%s", policy.CompareText(r.old.policy, r.new.policy)); err != nil {
		return err
	}
	if !r.strict {
		return nil
	}
	for _, state := range r.stranded() {
		if _, err := fmt.Fprintf(c.out, "%s: error: state %q of %s is stranded; name the state that takes its place in \"renamed\", or keep it\n", r.new.file, state, r.old.file); err != nil {
			return err
		}
	}
	return nil
}

// The form of check --against --format json. What compares two policies is left
// out where there are errors.
type jsonComparison struct {
	OK         bool                 `json:"ok"`
	Old        jsonReport           `json:"old"`
	New        jsonReport           `json:"new"`
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

func (r comparison) json() jsonComparison {
	out := jsonComparison{OK: r.ok(), Old: r.old.json(), New: r.new.json()}
	if !r.bothOK() {
		return out
	}
	old, new := r.old.policy, r.new.policy
	out.Initial = jsonPair{old.StateName(old.Initial().State), new.StateName(new.Initial().State)}
	out.OnComplete = jsonPair{old.OnComplete().String(), new.OnComplete().String()}
	out.OnReload, out.Stranded = new.OnReload().String(), new.Stranded().String()
	out.States = r.states
	return out
}

func (r comparison) writeJSON(c *console) error { return writeIndented(c.out, r.json()) }
