package client

import (
	"cmp"
	"encoding/json/jsontext"
	"fmt"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// runText is a run in lines.
func runText(r admin.RunDetail) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, strictyaml.Printable(value))
		}
	}
	state := r.State
	if r.Complete {
		state += ", complete"
	}
	switch {
	case r.Shut:
		state += ", shut, since the store has something else of it than it has confirmed: nothing is allowed; look with 'fsm-proxy verify', then 'fsm-proxy runs accept'"
	case r.Refused:
		state += ", which a reload took: nothing is allowed"
	}
	turn := "free"
	if r.TurnHeld {
		turn = fmt.Sprintf("held, %d waiting", r.Queued)
	}
	line("run", r.ID)
	line("key", r.Key)
	line("owner", r.Owner)
	line("state", state)
	line("seq", fmt.Sprint(r.Seq))
	line("turn", turn)
	line("policy", r.Policy)
	if registers := jsontext.Value(r.Registers); registers.Compact() == nil && string(registers) != "{}" {
		line("registers", string(registers))
	}
	if len(r.Signals) == 0 {
		line("signals", "none")
	}
	for i, s := range r.Signals {
		name, text := "", s.Name+" → "+s.To
		if i == 0 {
			name = "signals"
		}
		if s.Completes {
			text += ", complete"
		}
		if s.Description != "" {
			text += ": " + s.Description
		}
		line(name, text)
	}
	return b.String()
}

// signalledText is what a signal has come to, in a line.
func signalledText(s admin.Signalled) string {
	text := "State is now '" + s.State + "', seq " + fmt.Sprint(s.Seq) + "."
	switch {
	case s.Restarted:
		text = "The run was completed and begins again. " + text
	case s.Complete:
		text += " The run is complete."
	}
	if len(s.Next.Signals) > 0 {
		text += " Signals: " + strings.Join(s.Next.Signals, ", ") + "."
	}
	return strictyaml.Printable(text) + "\n"
}

// standsText is where a run stands, in a line.
func standsText(at admin.Stands) string {
	text := "Run " + at.ID + ": state '" + at.State + "', seq " + fmt.Sprint(at.Seq) + "."
	if at.Complete {
		text += " It is complete."
	}
	return strictyaml.Printable(text) + "\n"
}

// startedText is a run that was begun, with what finds it, in lines.
func startedText(s admin.Started) string {
	return strictyaml.Printable("Run "+s.Run+" has begun, in state '"+s.State+"'."+foundBy(s)) + "\n"
}

// foundBy says what finds a run.
func foundBy(s admin.Started) (text string) {
	switch {
	case s.Path != "":
		text += " Its URL ends in " + s.Path + ", which stands nowhere else."
	case s.ID != "":
		text += " Its handle is " + s.ID + ", which stands nowhere else."
	}
	return text
}

// forkedText is a run that was forked, with what finds it, and what it does not know of, in lines.
func forkedText(f admin.Forked) string {
	var b strings.Builder
	line := func(text string) { b.WriteString(strictyaml.Printable(text) + "\n") }
	line(fmt.Sprintf("Run %s is a fork of run %s at entry %d, in state '%s'.%s", f.Run, f.Parent, f.Fork, f.State, foundBy(f.Started)))
	if len(f.Since) == 0 {
		return b.String()
	}
	line("These calls of run " + f.Parent + " were not over by then. They happen all the same, and the fork does not know of them:")
	for _, x := range f.Since {
		name := x.Kind + " " + x.Name
		if x.Case != "" {
			name += " (" + x.Case + ")"
		}
		line(fmt.Sprintf("%6d  %s  %s", x.Seq, name, cmp.Or(x.Outcome, "under way")))
	}
	if f.More > 0 {
		line(fmt.Sprintf("and %d more", f.More))
	}
	return b.String()
}

func releasedText(x admin.Released) string {
	text := fmt.Sprintf("given away: %d", x.Runs)
	if x.Stay > 0 {
		text += fmt.Sprintf("; %d stay: a call is under way there, or waits for an approval, or the store could not be told in time: ask again; or the run is shut: that needs 'fsm-proxy runs accept' first", x.Stay)
	}
	return text + "\n"
}
