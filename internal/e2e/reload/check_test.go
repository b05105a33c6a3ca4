package reload

import (
	"fmt"
	"slices"
)

// check compares every answer with the versions that were in force.
func (l *load) check() {
	l.t.Helper()
	h := l.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.foreign != nil {
		l.t.Errorf("policies came in force that nobody wrote: %q", h.foreign)
	}
	total, passed, told := 0, 0, int64(0)
	for i, c := range l.clients {
		c.mu.Lock()
		k := &checker{load: l, client: i, history: h}
		k.deeds(c.deeds)
		k.walks(c.deeds)
		k.told(c)
		total, passed, told = total+len(c.deeds), passed+k.passed, told+c.told[0].Load()
		c.mu.Unlock()
	}
	l.t.Logf("%d calls and lists, %d sent on; %d reloads, %d refused; told of tools %d times", total, passed, len(h.reigns)-1, len(h.refusals), told)
}

// checker checks what became of one session's calls.
type checker struct {
	*load
	history *history
	client  int
	passed  int
	steps   int
}

func (k *checker) fault(d deed, format string, args ...any) {
	k.t.Errorf("session %d, %s %s from %v to %v, %q in %q by version %d: %s", k.client, d.tool, d.names, d.sent, d.answered, d.code, d.state, d.version,
		fmt.Sprintf(format, args...))
}

// deeds checks each verdict, in the order in which they were asked for. A session that has seen a version sees no
// older one.
func (k *checker) deeds(all []deed) {
	slices.SortFunc(all, func(a, b deed) int { return int(a.sent - b.sent) })
	byEnd := make([]int, len(all))
	for i := range all {
		byEnd[i] = i
	}
	slices.SortFunc(byEnd, func(a, b int) int { return int(all[a].answered - all[b].answered) })
	seen := make([]int, len(all)) // the oldest reign that may have been seen by the answer
	floor, ended := 0, 0
	for i, d := range all {
		for ended < len(byEnd) && all[byEnd[ended]].answered <= d.sent {
			floor = max(floor, seen[byEnd[ended]])
			ended++
		}
		seen[i] = k.verdict(d, floor)
		k.sent(d)
	}
}

// verdict checks that some version decides so that was in force, and that one as new is the one that the answer
// names. It returns the oldest that may have been seen.
func (k *checker) verdict(d deed, floor int) int {
	first, last := k.history.span(d.sent, d.answered)
	for decided := max(first, floor); decided <= last; decided++ {
		if !decides(k.history.reigns[decided].version, d) {
			continue
		}
		for named := decided; named <= last; named++ {
			if n := k.history.reigns[named].version; d.version < 0 || d.version == n && names(n, d.state) {
				return named
			}
		}
	}
	k.fault(d, "in force were %v, and the session had seen %v", k.history.reigns[first:last+1], k.history.reigns[floor])
	return floor
}

// names reports whether a version has a state of the name.
func names(n int, state string) bool { return state != second(n+1) }

// decides reports whether a version decides a call, or filters a list, as it was.
func decides(n int, d deed) bool {
	switch d.tool {
	case "":
		return slices.Contains(d.names, mark(n)) && len(d.names) == len(shown(n, ""))
	case "always":
		return d.code == ""
	case "nowhere":
		return d.code == "unknown_action" && d.version >= 0
	case "go", "back":
		return d.code == "" || d.code == "invalid_transition" && (d.tool == "back") == (d.state == "home")
	}
	if d.tool == mark(n) {
		return d.code == ""
	}
	return d.code == "unknown_action" && d.version >= 0
}

// sent checks that what was allowed reached the upstream once, and nothing else did.
func (k *checker) sent(d deed) {
	if d.tool == "" {
		return
	}
	want := 0
	if d.code == "" {
		want = 1
		k.passed++
	}
	if d.code == "" && (d.tool == "go" || d.tool == "back") {
		k.steps++
	}
	if got := k.server.times(d.names[0]); got != want {
		k.fault(d, "it reached the upstream %d times", got)
	}
}

// walks checks that `go` led where a version says that was in force when it was sent, and `back` home, and that
// both are allowed where they are bound and nowhere else.
func (k *checker) walks(all []deed) {
	at, from := "home", deed{}
	for _, d := range all {
		switch {
		case d.tool == "go" && (d.code == "") != (at == "home"), d.tool == "back" && (d.code == "") != (at != "home"):
			k.fault(d, "the run was in %q", at)
		case d.tool == "go" && d.code == "":
			at, from = "", d
		case d.tool == "back" && d.code == "":
			at = "home"
		case d.tool == "nowhere" && at == "":
			at = d.state
			k.led(from, d)
		case d.tool == "nowhere" && (at == "home") != (d.state == "home"), d.tool == "nowhere" && (at == "away") != (d.state == "away"):
			k.fault(d, "the run was in %q", at)
		}
	}
}

// led checks where a step has led.
func (k *checker) led(step, probe deed) {
	first, last := k.history.span(step.sent, step.answered)
	for _, r := range k.history.reigns[first : last+1] {
		if to := target(r.version); to == probe.state || to != "away" && probe.state == second(probe.version) {
			return
		}
	}
	k.fault(step, "it led to %q", probe.state)
}

// told checks that the session was told of no list more often than it changed.
func (k *checker) told(c *client) {
	most := [...]int{
		k.history.changes(mark) + k.steps,
		k.history.changes(func(n int) string { return fmt.Sprint(shelf(n)) }),
		0,
	}
	for i, kind := range kinds {
		if got := c.told[i].Load(); got > int64(most[i]) {
			k.t.Errorf("session %d was told %d times that its %s changed; that was %d times", k.client, got, kind, most[i])
		}
	}
}
