package kept

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// remark is who had something be done, and why.
type remark struct{ Who, Reason, Text string }

// forking is what an entry has to do with forks: which run this one is a fork of, or that none goes back behind a call.
type forking struct {
	Parent       string
	Fork         uint64
	Irreversible bool
}

// entry is what of a record is printed.
type entry struct {
	Type, Kind, Name, Case, Outcome, Rule, Refusal, From string
	remark

	forking

	Begun, Times, Yes        uint64
	Time                     time.Time
	Resumed, Turn, Restarted bool
	To                       struct {
		State, Policy string
		Complete      bool
	}
	Answer struct {
		Said, By, Note string
		Until          time.Time
	}
	Set []struct {
		Register, Operation string
		Values              []any
	}
}

func read(x *journal.Record) (e entry, err error) {
	err = json.Unmarshal(x.Bytes, &e, json.MatchCaseInsensitiveNames(true))
	return e, err
}

// unreadable is why an entry cannot be read, in the same words each time: encoding/json/v2 says one thing in two ways.
func unreadable(err error) string { return strings.ReplaceAll(err.Error(), "unable to", "cannot") }

// refused is the type of entries that tell of refusals.
const refused = "refused"

// call is what was called, as it is printed.
func call(kind, name, by string) string {
	if by != "" {
		name += " (" + by + ")"
	}
	return strings.TrimSpace(kind + " " + name)
}

func (e *entry) call() string { return call(e.Kind, e.Name, e.Case) }

// outcome is what came of a call.
func (e *entry) outcome() string {
	said := e.Outcome
	if e.Refusal != "" {
		said = strings.TrimSpace(said + " " + e.Refusal)
	}
	if e.Times > 1 {
		said += fmt.Sprintf(", %d times", e.Times)
	}
	if e.Resumed {
		said += ", as the process that began it wrote no end of it"
	}
	return said
}

// approval is what an entry says of an approval, "" for nothing.
func (e *entry) approval() string {
	a := &e.Answer
	switch {
	case e.Yes != 0 && e.Type == "unsent":
		return fmt.Sprintf("the yes of entry %d may be used again", e.Yes)
	case e.Yes != 0:
		return fmt.Sprintf("by the yes of entry %d", e.Yes)
	}
	said := a.Said
	if a.By != "" {
		said += fmt.Sprintf(" by %q", a.By)
	}
	if a.Note != "" {
		said += fmt.Sprintf(": %q", a.Note)
	}
	if !a.Until.IsZero() {
		said += "  until " + stamp(a.Until)
	}
	return said
}

// stamp is a time as tables have it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// How states, outcomes and what is wrong look.
const (
	where = screen.Cyan
	good  = screen.Green
	bad   = screen.Red
	odd   = screen.Yellow
	quiet = screen.Faint
)

// look is how an outcome looks.
func (e *entry) look() screen.Style {
	switch {
	case e.Type == refused || e.Outcome == policy.Error.String():
		return bad
	case e.Outcome == policy.Unknown.String() || e.Resumed:
		return odd
	}
	return good
}

// state is a state's name.
func (p *printer) state(name string) string { return p.Paint(where, strictyaml.Printable(name)) }

// happened is what an entry tells of, without when.
func (p *printer) happened(e *entry) string {
	said := p.Paint(quiet, fmt.Sprintf("%-8s", strictyaml.Printable(e.Type)))
	if e.Name != "" {
		said += "  " + strictyaml.Printable(e.call())
	}
	if e.Irreversible {
		said += "  " + p.Paint(odd, "irreversible")
	}
	if e.Parent != "" {
		said += "  " + strictyaml.Printable(fmt.Sprintf("of run %s, at entry %d", e.Parent, e.Fork))
	}
	if outcome := e.outcome(); outcome != "" {
		said += "  " + p.Paint(e.look(), strictyaml.Printable(outcome))
	}
	if approval := e.approval(); approval != "" {
		said += "  " + strictyaml.Printable(approval)
	}
	if e.From != e.To.State {
		said += "  " + p.state(e.From) + " → " + p.state(e.To.State)
	} else {
		said += "  in " + p.state(e.From)
	}
	if e.Who != "" {
		said += strictyaml.Printable("  by " + e.Who)
	}
	if why := cmp.Or(e.Text, e.Reason); why != "" {
		said += strictyaml.Printable(fmt.Sprintf("  %q", why))
	}
	return said
}

// sentence is a record in a line.
func (p *printer) sentence(x *journal.Record) string {
	e, err := read(x)
	if err != nil {
		return fmt.Sprintf("%6d  %s", x.Seq, p.Paint(bad, "this record cannot be read: "+strictyaml.Printable(unreadable(err))))
	}
	said := fmt.Sprintf("%6d  %s  %s", x.Seq, p.Paint(quiet, stamp(e.Time)), p.happened(&e))
	for _, set := range e.Set {
		said += strictyaml.Printable(fmt.Sprintf("; %s %s", set.Operation, set.Register))
		for _, v := range set.Values {
			said += fmt.Sprintf(" %q", fmt.Sprint(v))
		}
	}
	return said
}
