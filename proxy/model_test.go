package proxy_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// crossroads is the reference automaton: for each state and tool where success,
// error and unknown lead. "" stays, and takes no turn if all three do.
var crossroads = map[string]map[string][3]string{
	"entry":          {"open_door": {"crossroad", "", ""}},
	"crossroad":      {"press_button": {}, "choose_left_path": {"door_left", "", ""}, "choose_right_path": {"door_right", "", ""}},
	"door_left":      {"pick_up_key": {}, "open_door_with_key": {"entry", "rollback_left", "rollback_left"}},
	"door_right":     {"pick_up_key": {}, "open_door_with_key": {"entry", "rollback_right", "rollback_right"}},
	"rollback_left":  {"go_back": {"crossroad", "", ""}, "open_door_with_key": {"entry", "", ""}},
	"rollback_right": {"go_back": {"crossroad", "", ""}, "open_door_with_key": {"entry", "", ""}},
}

var crossroadsTools = []string{"open_door", "press_button", "choose_left_path", "choose_right_path", "pick_up_key", "open_door_with_key", "go_back", "explode"}

// model is what the reference knows of one session.
type model struct {
	state string
	were  map[string]bool // the states since all stood still
	turn  *upcall         // the call that will step

	orphaned bool // it will not: the run began anew meanwhile
	asking   bool // its client is asked for the upstream: it is sent again, or has given the turn up
}

// deed is one thing that happens: who does it, to which of what there is.
type deed struct{ What, Who, Which, How int }

func (d deed) String() string {
	return fmt.Sprintf("%s(%d,%d,%d)", deeds[d.What].name, d.Who, d.Which, d.How)
}

// world is a rig with its sessions, and the reference beside them.
type world struct {
	*rig
	clients []*client
	replies [][]*reply
	modern  bool // the upstream's era, in which it asks by its answers
	last    int  // the number of the last call

	mu      sync.Mutex // guards what follows
	models  map[int]*model
	opened  int          // how many sessions there were: the number of the next
	quiet   bool         // nothing steps now
	past    map[int]bool // the calls that have given the turn up while their client was asked
	pending []*upcall
	faults  []string

	generation int             // of the policy in force
	without    string          // the tool that it unbinds
	lost       map[string]bool // those that some policy has unbound: a run that stays behind on it lacks them still
}

var deeds = []struct {
	name string
	do   func(w *world, d deed)
}{
	{"call", (*world).call},
	{"call", (*world).call},
	{"call useful", (*world).callUseful},
	{"call useful", (*world).callUseful},
	{"go on", (*world).goOn},
	{"go on", (*world).goOn},
	{"go on", (*world).goOn},
	{"burst", (*world).burst},
	{"answer", (*world).answer},
	{"answer", (*world).answer},
	{"answer", (*world).answer},
	{"cancel", (*world).cancelOne},
	{"wait", func(_ *world, d deed) {
		time.Sleep([]time.Duration{time.Second, 6 * time.Second, 61 * time.Second, 6 * time.Minute}[d.How%4])
	}},
	{"settle", func(w *world, _ deed) { w.settle() }},
	{"upstream dies", func(w *world, d deed) { w.up.conn(d.Which % w.up.dialled()).end() }},
	{"reconnect", (*world).reconnect},
	{"ask", (*world).askClient},
	{"round", (*world).beginRound},
	{"reload", (*world).reload},
	{"reload", (*world).reload},
	{"migrate", (*world).migrate},
	{"list", func(w *world, d deed) { w.keep(d, w.clients[w.who(d)].request("tools/list", "")) }},
}

func (w *world) who(d deed) int { return d.Who % len(w.clients) }

func (w *world) keep(d deed, r *reply) {
	w.replies[w.who(d)] = append(w.replies[w.who(d)], r)
}

func (w *world) use(d deed, tool string) {
	c := w.clients[w.who(d)]
	w.last++
	w.keep(d, c.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"s":%d,"n":%d}}`, tool, c.number, w.last)))
}

func (w *world) call(d deed) { w.use(d, crossroadsTools[d.Which%len(crossroadsTools)]) }

// callUseful calls what the reference allows, so that runs get somewhere.
func (w *world) callUseful(d deed) {
	tools := w.useful(d)
	w.use(d, tools[d.Which%len(tools)])
}

func (w *world) useful(d deed) (tools []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.models[w.clients[w.who(d)].number].state
	for _, tool := range crossroadsTools {
		if _, ok := crossroads[state][tool]; ok && !w.lost[tool] {
			tools = append(tools, tool)
		}
	}
	return tools
}

func (w *world) burst(d deed) {
	for range d.How%5 + 2 {
		w.callUseful(d)
	}
}

// goOn takes a step that succeeds, if nothing is in its way.
func (w *world) goOn(d deed) { w.comesTo(d, ok) }

// beginRound has the upstream ask the client of a call; one of the legacy era cannot.
func (w *world) beginRound(d deed) {
	if w.modern {
		w.comesTo(d, asksOnce)
	}
}

// comesTo takes a useful call to an answer, if nothing is in its way.
func (w *world) comesTo(d deed, answer string) {
	synctest.Wait()
	before := len(w.under())
	w.callUseful(d)
	synctest.Wait()
	if all := w.under(); len(all) > before {
		all[len(all)-1].result(answer)
	}
}

// under returns what is under way at the upstream.
func (w *world) under() []*upcall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pending)
}

func (w *world) answer(d deed) {
	all := w.under()
	if len(all) == 0 {
		return
	}
	k := all[d.Which%len(all)]
	switch d.How % 8 {
	case 0:
		k.result(failed)
	case 1:
		k.fail(-32601)
	case 2:
		k.lose(&wire.CallError{Sent: true, Err: errors.New("lost")})
	case 3:
		k.lose(&wire.CallError{Err: errors.New("never sent")})
	case 4:
		k.fail(-32000)
	case 5:
		if w.modern {
			k.result(asksOnce)
			return
		}
		k.result(ok)
	default:
		k.result(ok)
	}
}

func (w *world) cancelOne(d deed) {
	if all := w.replies[w.who(d)]; len(all) > 0 {
		w.clients[w.who(d)].cancel(all[d.Which%len(all)])
	}
}

func (w *world) reconnect(d deed) {
	w.clients[w.who(d)].s.Close()
	w.clients[w.who(d)] = w.begin()
}

func (w *world) begin() *client {
	w.mu.Lock()
	number := w.opened
	w.opened++
	w.mu.Unlock()
	c := w.openAs(fmt.Sprint(number)).greet(ableHello)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.number = number
	w.models[c.number] = &model{state: "entry", were: map[string]bool{}}
	return c
}

// askClient lets the upstream ask for a call, and the client answer in time. One of the
// modern era has asked already, and the client may refuse.
func (w *world) askClient(d deed) {
	all := w.under()
	if w.modern {
		answer := `"result":{"action":"accept"}`
		if d.How%8 == 7 {
			answer = `"error":{"code":-1,"message":"no"}`
		}
		c := w.clients[w.who(d)]
		for _, r := range w.replies[w.who(d)] {
			for _, raw := range r.messages() {
				if strings.Contains(raw, `"elicitation/create"`) {
					w.quietly(func() { c.handle(`{"jsonrpc":"2.0","id":`+idOf(raw)+`,`+answer+`}`, c.own) })
				}
			}
		}
		return
	}
	if len(all) == 0 {
		return
	}
	k := all[d.Which%len(all)]
	k.conn.says(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}`, k)
	if d.How%2 == 0 {
		for i, c := range w.clients {
			for _, r := range w.replies[i] {
				for n := range r.messages() {
					c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n+1), c.own)
				}
			}
		}
	}
}

// quietly does something while nothing steps: what reaches the upstream by it was decided in
// the state that there is.
func (w *world) quietly(do func()) {
	synctest.Wait()
	w.mu.Lock()
	w.quiet = true
	w.mu.Unlock()
	do()
	synctest.Wait()
	w.mu.Lock()
	w.quiet = false
	w.mu.Unlock()
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// caller reads which session's call, and which call, reached the upstream.
func caller(k *upcall) (session, number int) {
	var a struct{ S, N int }
	if err := json.Unmarshal(k.m.Bytes(k.m.P.Arguments), &a); err != nil {
		panic(err)
	}
	return a.S, a.N
}

// resent reports whether a call is the one that has the turn, sent again with what its
// client was asked for. Another gets the turn only when that one has given it up, for good.
func (w *world) resent(m *model, k *upcall, number int) bool {
	if w.past[number] {
		w.fault("%s was sent again, though it had given its turn up", k.m.P.Name)
	}
	if !m.asking {
		return false
	}
	_, holder := caller(m.turn)
	if holder == number && !m.orphaned { // one of a run before is a call like any other
		m.turn, m.asking = k, false
		return true
	}
	w.past[holder] = holder != number
	m.turn, m.asking, m.orphaned = nil, false, false
	return false
}

// begun checks that what reached the upstream was allowed, and alone if it steps.
func (w *world) begun(k *upcall, _ outcome) {
	if k.m.Method != "tools/call" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	session, number := caller(k)
	m, tool := w.models[session], k.m.P.Name
	w.pending = append(w.pending, k)
	if tool == w.without {
		w.fault("%s reached the upstream though no state binds it", tool)
	}
	edges, allowed := crossroads[m.state][tool]
	switch {
	case allowed && edges != [3]string{}:
		if w.resent(m, k, number) {
			return
		}
		if m.turn != nil {
			w.fault("%s was sent while %s was under way", tool, m.turn.m.P.Name)
		}
		m.turn = k
	case allowed:
	default:
		for state := range m.were {
			if w.quiet {
				break
			}
			if edges, was := crossroads[state][tool]; was && edges == [3]string{} {
				return // a stay, decided before the step
			}
		}
		w.fault("%s reached the upstream in %s", tool, m.state)
	}
}

// ended steps the reference.
func (w *world) ended(k *upcall, o outcome) {
	if k.m.Method != "tools/call" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.pending {
		if w.pending[i] == k {
			w.pending = append(w.pending[:i], w.pending[i+1:]...)
			break
		}
	}
	session, _ := caller(k)
	m := w.models[session]
	if m.turn != k {
		return
	}
	if m.asking = o.m != nil && o.m.R.ResultType == wire.ResultInputRequired; m.asking {
		return
	}
	m.turn = nil
	if m.orphaned {
		m.orphaned = false
		return
	}
	lost, _ := errors.AsType[*wire.CallError](o.err)
	to := ""
	switch edges := crossroads[m.state][k.m.P.Name]; {
	case lost != nil && lost.Sent:
		to = edges[2]
	case lost != nil, o.m.ErrorCode == -32601:
	case o.m.Kind == wire.Failure, o.m.R.IsError:
		to = edges[1]
	default:
		to = edges[0]
	}
	if to != "" {
		m.were[m.state] = true
		m.state = to
	}
}

// settle lets everything come to rest, and compares.
func (w *world) settle() {
	synctest.Wait()
	for _, c := range w.clients {
		probe := c.call("nobody has this")
		synctest.Wait()
		w.mu.Lock()
		m := w.models[c.number]
		if got := original(refusalOf(w.t, probe.wait()).State); got != m.state {
			w.fault("session %d is in %s, the reference in %s", c.number, got, m.state)
		}
		clear(m.were)
		w.mu.Unlock()
	}
}

// walk plays a script and returns what was wrong.
func walk(t *testing.T, script []deed, sessions int, share, detach, modern bool) (faults []string) {
	source, err := os.ReadFile("../policies/crossroads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{models: map[int]*model{}, lost: map[string]bool{}, past: map[int]bool{}, modern: modern}
		w.rig = newRig(t, string(source), sharing(true), func(c *proxy.Config, u *server) {
			c.Share, c.Streams, c.MaxQueue = share, true, 4
			if modern {
				modernUpstream(c, u)
			}
		})
		w.up.detach, w.up.begun, w.up.ended = detach, w.begun, w.ended
		w.up.names(wire.Tools, crossroadsTools...)
		for range sessions {
			w.clients = append(w.clients, w.begin())
			w.replies = append(w.replies, nil)
		}
		for _, d := range script {
			deeds[d.What].do(w, d)
		}
		w.settle()
		w.finish()
		w.p.Close()
		synctest.Wait()
		faults = w.faults
	})
	return faults
}

// finish gives everything the time that it may take at most, and finds what
// hangs and what was answered twice.
func (w *world) finish() {
	for _, c := range w.clients {
		for id := range 300 { // whatever is still asked
			c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id+1), c.own)
		}
	}
	time.Sleep(30 * time.Minute)
	synctest.Wait()
	for i, all := range w.replies {
		for _, r := range all {
			r.mu.Lock()
			if len(r.answers) != 1 {
				w.fault("request %d of client %d has %d answers", r.id, i, len(r.answers))
			}
			r.mu.Unlock()
		}
	}
	w.reloadWithout("", false)
	w.settle()
	for i := range w.clients { // and every turn was given back
		for which := range 4 {
			reached := len(w.up.reached())
			w.goOn(deed{Who: i, Which: which})
			if len(w.up.reached()) == reached {
				w.fault("client %d cannot go on", i)
			}
		}
	}
	w.settle()
}

// TestModel plays random interleavings of calls, failures, cancellations, deaths
// and reconnections from several sessions, and compares with the reference.
func TestModel(t *testing.T) {
	all := make([]int, len(deeds))
	for i := range all {
		all[i] = i
	}
	explore(t, all, 1, rapid.Bool())
}

// TestModelOfRounds plays those in which a modern upstream asks, so that calls are sent
// again after all kinds of things have happened.
func TestModelOfRounds(t *testing.T) {
	var some []int
	for i, deed := range deeds {
		if slices.Contains([]string{"round", "ask", "go on", "burst", "reload", "migrate", "cancel", "wait", "upstream dies"}, deed.name) {
			some = append(some, i)
		}
		if deed.name == "round" || deed.name == "ask" {
			some = append(some, i, i, i)
		}
	}
	explore(t, some, 20, rapid.Just(true))
}

// explore plays scripts of deeds, given by their index, of a length at least.
func explore(t *testing.T, of []int, length int, modern *rapid.Generator[bool]) {
	t.Helper()
	some := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) deed {
		n := rapid.IntRange(0, 40)
		return deed{rapid.SampledFrom(of).Draw(rt, "what"), n.Draw(rt, "who"), n.Draw(rt, "which"), n.Draw(rt, "how")}
	}), length, 80)
	defer func(old string) { _ = flag.Set("rapid.checks", old) }(flag.Lookup("rapid.checks").Value.String())
	if err := flag.Set("rapid.checks", "300"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		script := some.Draw(rt, "script")
		sessions, share, detach := rapid.IntRange(1, 3).Draw(rt, "sessions"), rapid.Bool().Draw(rt, "share"), rapid.Bool().Draw(rt, "detach")
		if faults := walk(t, script, sessions, share, detach, modern.Draw(rt, "modern")); faults != nil {
			rt.Fatal(strings.Join(faults, "\n"))
		}
	})
}
