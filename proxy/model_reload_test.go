package proxy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
)

// maxReloads is how many reloads a script has at most: as many as a run can be
// renamed by while one call holds its turn.
const maxReloads = 12

// generation is a policy that means the same as crossroads.yaml: its states have
// names of their own, in an order of their own, and are renamed from those of the
// generation before. without is a tool that it unbinds, "" for none.
func generation(n int, without string, pin bool) string {
	var b strings.Builder
	states := slices.Sorted(maps.Keys(crossroads))
	fmt.Fprintf(&b, "version: 1\ninitial: %s\non_reload: %s\nrenamed:\n", named("entry", n), map[bool]string{true: "pin", false: "move"}[pin])
	for _, state := range states {
		fmt.Fprintf(&b, "  %s: %s\n", named(state, n-1), named(state, n))
	}
	b.WriteString("states:\n")
	for i := range states {
		state := states[(i+n)%len(states)]
		fmt.Fprintf(&b, "  %s:\n    tools:\n", named(state, n))
		for tool, to := range crossroads[state] {
			if tool != without {
				fmt.Fprintf(&b, "      %s: {on_success: %s, on_error: %s, on_unknown: %s}\n", tool, target(tool, to[0], n), target(tool, to[1], n), target(tool, to[2], n))
			}
		}
	}
	return b.String()
}

func named(state string, n int) string {
	if n == 0 {
		return state
	}
	return fmt.Sprintf("%s.%d", state, n)
}

// original is the name that generation 0 has for a state.
func original(state string) string {
	name, _, _ := strings.Cut(state, ".")
	return name
}

// target is where an edge leads in generation n. The door's key completes the run.
func target(tool, to string, n int) string {
	switch {
	case to == "":
		return "stay"
	case to == "entry" && tool == "open_door_with_key":
		return "{terminal: true}"
	}
	return named(to, n)
}

// reload puts the next generation in force, which changes nothing but names for
// the reference, or one tool that it takes away from every run, wherever that
// stands and by whatever policy it goes. No call is on its way to the upstream
// meanwhile, so that none that arrives later was decided before.
func (w *world) reload(d deed) {
	synctest.Wait()
	if w.generation == maxReloads {
		return
	}
	without := ""
	if d.How%3 == 0 {
		without = []string{"press_button", "pick_up_key", "go_back", "choose_left_path"}[d.Which%4]
	}
	w.reloadWithout(without, d.Who%4 == 0)
	if without != "" {
		for i := range w.clients {
			w.use(deed{Who: i}, without)
		}
	}
}

func (w *world) reloadWithout(without string, pin bool) {
	w.mu.Lock()
	w.generation++
	w.without, w.lost[without] = without, true
	n := w.generation
	w.mu.Unlock()
	w.p.Reload(parse(w.t, generation(n, without, pin)))
}

// strand puts a generation in force that knows no state of those before.
func (w *world) strand() {
	if w.generation >= maxReloads-1 {
		return
	}
	w.generation++
	w.reloadWithout("", false)
}

// migrate has stranded runs begin anew, in mid-call as well. What they have under
// way is of no consequence then.
func (w *world) migrate(d deed) {
	synctest.Wait()
	if d.How%2 == 0 {
		w.strand()
		w.callUseful(d)
		synctest.Wait()
	}
	stranded := 0
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.p.Sessions() {
		if i.Run.Stranded.IsZero() {
			continue
		}
		stranded++
		number, err := strconv.Atoi(i.Peer.Session)
		if err != nil {
			panic(err)
		}
		m := w.models[number]
		m.state, m.orphaned = "entry", m.turn != nil
		clear(m.were)
	}
	if done := w.p.Migrate(); done.Restarted != stranded {
		w.fault("%d runs were stranded, and %d restarted", stranded, done.Restarted)
	}
}

// reloadAlong reloads until stop is closed, beside all else.
func (w *world) reloadAlong(stop chan struct{}) {
	for n := 1; ; n++ {
		select {
		case <-stop:
			return
		default:
			w.p.Reload(parse(w.t, generation(n, "", rand.IntN(4) == 0)))
		}
	}
}
