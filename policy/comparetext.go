package policy

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// CompareText renders what a reload of new in place of old does, for a terminal
// or a pull request: what changes for every run, then each state as Compare has
// it, and a summary in the last line.
func CompareText(old, new *Policy) string {
	var out strings.Builder
	c := compareText{&out, old, new, Compare(old, new)}
	fmt.Fprintf(&out, "%s\n", c.title())
	c.settings()
	for _, x := range c.states {
		c.state(x)
	}
	fmt.Fprintf(&out, "\n%s: %s\n", c.title(), c.summary())
	return trimLines(out.String())
}

// compareText is what CompareText writes.
type compareText struct {
	io.Writer
	old, new *Policy
	states   []StateChange
}

func (c *compareText) title() string {
	return strictyaml.Printable(c.old.file) + " " + signTo + " " + strictyaml.Printable(c.new.file)
}

// settings writes what a reload changes for every run.
func (c *compareText) settings() {
	was, now := c.old.StateName(c.old.initial), c.new.StateName(c.new.initial)
	if heir, ok := c.new.heir(was); !ok || heir != c.new.initial {
		fmt.Fprintf(c, "  initial: runs begin in %s, was %s\n", strictyaml.Printable(now), strictyaml.Printable(was))
	}
	if c.old.onComplete != c.new.onComplete {
		fmt.Fprintf(c, "  on_complete: %s, was %s\n", c.new.onComplete, c.old.onComplete)
	}
	if c.new.onReload == ReloadPin {
		fmt.Fprintf(c, "  on_reload: pin: runs under way stay on the policy that they began with, and may call only what %s binds somewhere\n", strictyaml.Printable(c.new.file))
	}
	for _, r := range c.new.renamed {
		if _, ok := c.old.byName[r.Old]; !ok {
			fmt.Fprintf(c, "  renamed: %s is no state of %s, so nothing moves to %s\n", strictyaml.Printable(r.Old), strictyaml.Printable(c.old.file), strictyaml.Printable(r.New))
		}
	}
}

// state writes a state and a row for each way in which it differs.
func (c *compareText) state(x StateChange) {
	fmt.Fprintf(c, "\n%s\n", c.headline(x))
	if x.Change == StateStranded && !c.keeps() {
		return
	}
	w := tabwriter.NewWriter(c, 0, 0, 2, ' ', 0)
	for _, n := range x.Names {
		mark, name := n.Difference.sign()+" "+n.Kind.String(), strictyaml.Printable(n.Pattern)
		for _, r := range n.rows() {
			fmt.Fprintf(w, "    %s\t%s\t%s\n", mark, strings.TrimSpace(name+" "+r.name), r.leads)
			mark, name = "", ""
		}
	}
	w.Flush()
}

// keeps reports whether runs of a stranded state go on by the old policy.
func (c *compareText) keeps() bool {
	return c.new.onReload == ReloadPin || c.new.stranded == StrandedKeep
}

// headline says what becomes of a state and of the runs that rest there.
func (c *compareText) headline(x StateChange) string {
	switch x.Change {
	case StateNew:
		return strictyaml.Printable(x.New) + ": new"
	case StateStranded:
		return strictyaml.Printable(x.Old) + ": " + c.strandedText(x)
	case StateRenamed:
		return strictyaml.Printable(x.Old) + ": renamed to " + strictyaml.Printable(x.New) + c.terminalText(x)
	}
	return strictyaml.Printable(x.Old) + ": kept" + c.terminalText(x)
}

func (c *compareText) strandedText(x StateChange) string {
	text := "stranded (stranded: " + c.new.stranded.String() + ")"
	if c.new.onReload == ReloadPin {
		text = "stranded (on_reload: pin)"
	}
	switch {
	case x.WasTerminal:
		return text + "; terminal, so only a completed run rests here"
	case c.new.onReload == ReloadPin:
		return text + "; a run that rests here goes on by the policy that it began with" + c.tightened(x)
	case c.new.stranded == StrandedRestart:
		return text + "; a run that rests here begins anew in " + strictyaml.Printable(c.new.StateName(c.new.initial))
	case c.new.stranded == StrandedRefuse:
		return text + "; every call of a run that rests here is refused"
	}
	return text + "; a run that rests here goes on by the old policy until it is in a state that the new one has" + c.tightened(x)
}

// tightened introduces the names that a kept run loses.
func (c *compareText) tightened(x StateChange) string {
	if len(x.Names) == 0 {
		return ""
	}
	return ", without what the new one binds nowhere:"
}

// terminalText says what follows where a state becomes terminal or ceases to be.
func (c *compareText) terminalText(x StateChange) string {
	switch {
	case x.WasTerminal == x.Terminal:
		return ""
	case x.WasTerminal:
		return "; not terminal any more"
	case c.new.onComplete == Restart:
		return "; terminal now: a run that rests here completes and begins anew in " + strictyaml.Printable(c.new.StateName(c.new.initial))
	}
	return "; terminal now: a run that rests here completes"
}

func (d Difference) sign() string {
	switch d {
	case Gained:
		return "+"
	case Lost:
		return "-"
	}
	return "~"
}

// rows are what is to say of a name, a line each.
func (n NameChange) rows() []textRow {
	if n.Difference == Lost {
		return []textRow{{}}
	}
	var rows []textRow
	if how := n.how(); how != "" {
		rows = append(rows, textRow{leads: how})
	}
	last := ""
	for _, e := range n.Edges {
		leads, ok := n.leads(e)
		if !ok {
			continue
		}
		label := ""
		if e.By != "" {
			label = fmt.Sprintf("[%s=%s]", strictyaml.Printable(e.By), strictyaml.Printable(e.Case))
		}
		shown := label
		if label == last && len(rows) > 0 {
			shown = ""
		}
		rows, last = append(rows, textRow{shown, leads}), label
	}
	return rows
}

// how says that a name is bound in another way than before, "" if it is not.
func (n NameChange) how() string {
	switch {
	case n.Difference != Altered:
		return ""
	case n.Was.By != n.Now.By:
		return splitText(n.Now.By) + ", was " + splitText(n.Was.By)
	case isGlob(n.Pattern) || n.Was.Glob == n.Now.Glob:
		return ""
	case n.Now.Glob:
		return "by " + strictyaml.Printable(n.Now.Pattern) + ", so only where the upstream lists it, was by its name"
	}
	return "by its name, was by " + strictyaml.Printable(n.Was.Pattern)
}

func splitText(by string) string {
	if by == "" {
		return "not split"
	}
	return "split by " + strictyaml.Printable(by)
}

// leads says where an edge leads and led; ok is false where it goes without
// saying, since another split has other edges.
func (n NameChange) leads(e EdgeChange) (text string, ok bool) {
	text = strings.TrimSpace(when(e.Outcomes) + " " + e.Now.String())
	switch {
	case n.Difference == Gained:
		return text, true
	case n.Was.By != n.Now.By:
		return text, e.Now != Lead{}
	}
	return text + ", was " + e.Was.String(), true
}

// summary counts the states.
func (c *compareText) summary() string {
	var counts [len(changeOrder)]int
	differ := 0
	for _, x := range c.states {
		counts[x.Change]++
		if x.Change == StateKept && !x.Same() {
			differ++
		}
	}
	kept := count(counts[StateKept], "state") + " kept"
	if differ > 0 {
		kept += fmt.Sprintf(" (%d changed)", differ)
	}
	parts := []string{kept}
	for _, x := range changeOrder[StateRenamed:] {
		if counts[x] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[x], x))
		}
	}
	return strings.Join(parts, ", ")
}

// changeOrder lists every change, each at its own place.
var changeOrder = [...]Change{StateKept, StateRenamed, StateStranded, StateNew}
