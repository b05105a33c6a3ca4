//go:build long && unix

package runs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/balancer"
)

const (
	lease = time.Second     // of each replica
	slack = 4 * time.Second // what a machine that has much to do may take beyond what is promised
)

// replicas are three proxies on one store, as their clients see them: each request comes to the next one.
type replicas struct {
	*house // as one: its operator is the first replica's
	store  string
	all    []*house
	data   map[*house]*line         // from each to the database; nil: they connect to it
	doors  map[*house]*line         // to each from the others
	takes  atomic.Pointer[[]*house] // to whom requests come
	chance atomic.Bool              // by chance; else in turn
	turn   atomic.Int64
}

// A starter starts replicas whose clients find their runs by the key.
type starter func(t *testing.T, k key, policy, store string, flags ...string) *replicas

// replicate is the starter of replicas that nothing is between.
func replicate(t *testing.T, k key, policy, store string, flags ...string) *replicas {
	t.Helper()
	r := &replicas{store: store}
	for range 3 {
		r.all = append(r.all, open(t, k, policy, replica(t, store, "127.0.0.1:0", flags...)...))
	}
	r.fronted(t)
	return r
}

// lined is the starter of replicas that a line is between each and the database, and each and the others.
func lined(t *testing.T, k key, policy, store string, flags ...string) *replicas {
	t.Helper()
	r := &replicas{store: store, data: map[*house]*line{}, doors: map[*house]*line{}}
	cfg, err := pgx.ParseConfig(store)
	if err != nil {
		t.Fatal(err)
	}
	database := net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port))
	for range 3 {
		peer := mcptest.FreeAddress(t)
		data, door := newLine(t, database), newLine(t, peer)
		h := open(t, k, policy, append(replica(t, strings.Replace(store, database, data.address, 1), peer, flags...), "--advertise", door.address)...)
		r.all, r.data[h], r.doors[h] = append(r.all, h), data, door
	}
	r.fronted(t)
	return r
}

// replica are the flags of one.
func replica(t *testing.T, store, peer string, flags ...string) []string {
	t.Helper()
	return append([]string{"--annotate", "meta", "--store", store, "--lease", lease.String(), "--health", mcptest.FreeAddress(t), "--peer-listen", peer}, flags...)
}

// fronted has clients come to the replicas in turn.
func (r *replicas) fronted(t *testing.T) {
	r.come(r.all...)
	first := *r.all[0]
	first.url = balancer.Start(t, func() string {
		takes := *r.takes.Load()
		if r.chance.Load() {
			return takes[rand.IntN(len(takes))].url
		}
		return takes[int(r.turn.Add(1))%len(takes)].url
	})
	r.house = &first
}

// come has all further requests come to some of the replicas.
func (r *replicas) come(to ...*house) { r.takes.Store(&to) }

// end ends all of them.
func (r *replicas) end() {
	r.t.Helper()
	for _, h := range r.all {
		h.ends(syscall.SIGTERM)
	}
}

// owner is who has the run of the store, once somebody has it, and the others; of several runs it is the one that has moved most.
func (r *replicas) owner() (owner *house, others []*house) {
	r.t.Helper()
	mcptest.Await(r.t, "a replica has the run", func() bool {
		holder := one[string](r.t, r.store, "SELECT l.holder FROM fsm_proxy.runs r JOIN fsm_proxy.leases l ON l.no = r.owner WHERE r.ended IS NULL AND l.ends > now() ORDER BY r.last_seq DESC LIMIT 1")
		owner, others = nil, nil
		for _, h := range r.all {
			if strings.HasPrefix(holder, fmt.Sprintf("process %d ", h.process.Process.Pid)) {
				owner = h
			} else {
				others = append(others, h)
			}
		}
		return owner != nil
	})
	return owner, others
}

// entered is somebody who has entered, the replica that has their run, and the others.
func (r *replicas) entered(k key) (c *client, owner *house, others []*house) {
	r.t.Helper()
	c = r.enter(k, "")
	if x := c.call("ok", ""); x.verdict != "success" {
		r.t.Fatal(x.raw)
	}
	owner, others = r.owner()
	return c, owner, others
}

// one is the one value that a query of a database finds; the zero one where it finds none.
func one[T any](t *testing.T, url, query string) (value T) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), query).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return value
}

// pauses stops a proxy's process until goOn.
func (h *house) pauses() (goOn func()) {
	h.t.Helper()
	h.sends(syscall.SIGSTOP)
	p := h.process.Process
	goOn = sync.OnceFunc(func() { _ = p.Signal(syscall.SIGCONT) }) // it may have been killed
	h.t.Cleanup(goOn)
	mcptest.Await(h.t, "the process is stopped", func() bool {
		state, err := exec.CommandContext(h.t.Context(), "ps", "-o", "state=", "-p", strconv.Itoa(p.Pid)).Output()
		return err == nil && strings.HasPrefix(string(state), "T")
	})
	return goOn
}

// flag is the value of a flag of the proxy.
func (h *house) flag(name string) string { return h.args[slices.Index(h.args, name)+1] }

// leases waits until the proxy's process has a lease.
func (h *house) leases() {
	h.t.Helper()
	store := h.flag("--store")
	mcptest.Await(h.t, "the process has a lease", func() bool {
		return one[bool](h.t, store, fmt.Sprintf("SELECT true FROM fsm_proxy.leases WHERE holder LIKE 'process %d %%' AND ends > now()", h.process.Process.Pid))
	})
}

// posts sends a request, and returns its answer: the message is the zero one where only HTTP has answered.
func (c *client) posts(t *testing.T, method, params string) (mcptest.Response, mcptest.Message) {
	t.Helper()
	if c.key.modern() {
		params = mcptest.Modern{}.Params(params)
	}
	r := c.web.Post(t.Context(), mcptest.Request("posted", method, params))
	if i := len(r.Messages) - 1; i >= 0 && r.Messages[i].IsResponse() {
		return r, r.Messages[i]
	}
	return r, mcptest.Message{}
}

// surely makes a call, again where it had gone out to an owner that heard nothing.
func (c *client) surely(tool, arguments string) (r reply) {
	for range 3 { // one that each of the others has passed on
		if r = c.call(tool, arguments); r.verdict != "outcome_unknown" {
			break
		}
	}
	return r
}

// comes is somebody with a run of their own.
func (r *replicas) comes(k key, who string) *client {
	r.t.Helper()
	c := r.who(k, who)
	switch k.kind {
	case byHeader:
		c.web.Header.Set(gatewayHeader, who)
	case "path":
		c.web.URL = r.newURL()
	case "handle":
		c.handle = c.start(r.t)
	}
	if !k.modern() {
		c.Initialize()
	}
	return c
}

// asOfOne wants what is kept of Crossroads to be what one proxy keeps of it, entry by entry.
func asOfOne(t *testing.T, k key, policy, kept string) {
	t.Helper()
	plain := store(t)
	h := open(t, k, policy, "--annotate", "meta", "--store", plain, "--upstream", crossroadsServer(t))
	h.enter(k, "").play(t, slices.Concat(walk, lastDoor))
	h.ends(syscall.SIGTERM)
	sameEntries(t, kept, plain)
}

// Crossroads is played with each request at another replica, and goes as with one proxy, and is kept so, entry by entry.
func TestReplicasAsOne(t *testing.T) {
	database := databases(t)
	each(t, keys, func(t *testing.T, k key) {
		kept, policy, whole := database(t), crossroads(t, restarts), slices.Concat(walk, lastDoor)
		r := replicate(t, k, policy, kept, "--upstream", crossroadsServer(t))
		r.enter(k, "").play(t, whole)
		r.end()
		asOfOne(t, k, policy, kept)
	})
}

// befalls plays Crossroads at replicas, and something befalls the run's owner before each step but the first, until it is
// mended after that. The first answer comes within a time; nothing is sent twice, and all goes and is kept as without.
func befalls(t *testing.T, within time.Duration, fault func(owner *house) (mend func())) {
	database := databases(t)
	each(t, []key{{"legacy", "session"}, {"legacy", "principal"}, {"modern", "principal"}, {"modern", "handle"}}, func(t *testing.T, k key) {
		policy, whole := crossroads(t, restarts), slices.Concat(walk, lastDoor)
		upstream, calls := crossroadsCounted(t)
		r := replicate(t, k, policy, database(t), "--upstream", upstream)
		c := r.enter(k, "")
		c.play(t, whole[:1])
		behind(t, r.store, 0, whole[0].tool)
		var longest time.Duration
		for i, s := range whole[1:] {
			owner, others := r.owner()
			was, _ := last(t, r.store)
			r.come(others...)
			began := time.Now()
			mend := fault(owner)
			if k.kind == "principal" && !k.modern() { // whose session has gone with its process
				c = r.enter(k, "")
			}
			reply := c.call(s.tool, s.arguments)
			took := time.Since(began)
			if longest = max(longest, took); took > within+slack {
				t.Errorf("step %d was answered after %v", i+2, took)
			}
			if reply.verdict == "outcome_unknown" {
				reply = c.surely(s.tool, s.arguments)
			}
			if k.kind == "session" { // nobody knows which lists it has seen: with what is sent it is told
				s.changed = s.verdict != "invalid_transition"
			}
			if !c.went(s, reply) {
				t.Fatalf("step %d: want %+v\n%s", i+2, s, reply.raw)
			}
			mend()
			r.come(r.all...)
			behind(t, r.store, was, s.tool)
		}
		t.Logf("answers came after %v at most", longest)
		r.end()
		want := int64(0)
		for _, s := range whole {
			if s.verdict != "invalid_transition" {
				want++
			}
		}
		if n := calls.Load(); n != want {
			t.Errorf("%d calls were sent, want %d", n, want)
		}
		asOfOne(t, k, policy, r.store)
	})
}

// A run whose owner is killed goes on at another replica once the owner's lease is out.
func TestReplicaThatIsKilled(t *testing.T) {
	befalls(t, lease+time.Second, func(owner *house) func() { owner.ends(os.Kill); return owner.anew })
}

// The same where the owner's process is stopped for as long as that, and goes on then.
func TestReplicaThatIsPaused(t *testing.T) {
	befalls(t, lease+time.Second, func(owner *house) func() {
		goOn := owner.pauses()
		return func() { goOn(); owner.leases() }
	})
}

// An owner that ends gives its runs away at once.
func TestReplicaThatIsEnded(t *testing.T) {
	befalls(t, time.Second, func(owner *house) func() {
		owner.sends(syscall.SIGTERM)
		owner.process.Log().Await(owner.t, "ending: calls under way") // else nobody may come to take what it gives away
		return func() { owner.process.ExitCode(); owner.anew() }
	})
}

// Of what is under way at an owner that was stopped until others have its run, what was sent is unknown, and what waits for its turn
// is served where the run is.
func TestCallsAtAReplicaThatIsPaused(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "process"}, {"modern", "principal"}, {"legacy", "process"}, {"legacy", "principal"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, server())
		r := replicate(t, k, twice, database(t), "--store-timeout", "2s", "--upstream", url)
		_, was, others := r.entered(k)
		r.come(was)
		c, d := r.enter(k, ""), r.enter(k, "") // whose connections lead there
		sent := c.begins("hold", "")
		upstream.Await(t, 1, "tools/call", "hold")
		waits := d.begins("hold", "")
		if x := c.call("ok", ""); x.verdict != "success" { // by now the other call has come, too
			t.Fatal(x.raw)
		}
		goOn := was.pauses()
		r.come(others...)
		mcptest.Await(t, "another one has the run", func() bool {
			x := r.enter(k, "").call("elsewhere", "")
			return x.verdict == "success" && x.state == "lost"
		})
		upstream.Open("hold")
		goOn()
		if x := c.answered(sent); x.verdict != "outcome_unknown" {
			t.Errorf("what was sent: %s", x.raw)
		}
		if x := d.answered(waits); x.verdict != "invalid_transition" || x.state != "lost" {
			t.Errorf("what waited: %s", x.raw)
		}
		if n := upstream.Count("tools/call", "hold"); n != 1 {
			t.Errorf("hold was sent %d times", n)
		}
		r.end()
		verified(t, r.store)
	})
}

// faults are what befalls replicas under load.
var faults = []func(h *house){
	func(h *house) { h.again(os.Kill) },
	func(h *house) { h.again(syscall.SIGTERM) },
	func(h *house) {
		goOn := h.pauses()
		<-time.After(3 * lease / 2) // which is the fault
		goOn()
	},
}

// Replicas are killed, ended and paused at random moments under clients of each key that come to any of them: nothing is done twice, and
// all that was answered is kept. What no lease can exclude is a process that is paused between its last look and what it
// sends: one such call may come when its client has gone on.
func TestReplicasUnderKills(t *testing.T) {
	database := databases(t)
	t.Parallel()
	for name, some := range map[string][]key{
		"handle and session": handleAndSession, "principal": principals,
		"header": {{"modern", byHeader}, {"legacy", byHeader}}, "path": {{"modern", "path"}, {"legacy", "path"}},
		"process": {{"modern", "process"}, {"legacy", "process"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := loaded(t, replicate, some, 16, database(t))
			l.befall(2*len(faults), func(i int) { faults[i%len(faults)](l.any()) })
			l.settles()
		})
	}
}

var (
	handleAndSession = []key{{"modern", "handle"}, {"legacy", "session"}}
	principals       = []key{{"modern", "principal"}, {"legacy", "principal"}}
)

// load is replicas under clients that go to and fro, and come to each of them.
type load struct {
	*replicas
	effects *effects
	walkers []*walker
	stop    func()
}

// loaded has so many walkers come to replicas by chance, by the key of the modern era and by that of the legacy one. Of what
// no lease can exclude one case is let pass.
func loaded(t *testing.T, start starter, some []key, walkers int, store string) *load {
	t.Helper()
	l := &load{effects: newEffects()}
	l.effects.late = 1
	_, upstream := mcptest.HTTP(t, l.effects.server())
	var people []string
	for i := range walkers {
		people = append(people, fmt.Sprint("walker-", i))
	}
	l.replicas = start(t, some[0], turns, store, "--run-key", some[1].era+"="+some[1].kind, "--tokens", tokensOf(t, people...), "--upstream", upstream)
	l.chance.Store(true)
	for i, who := range people {
		w := &walker{client: l.comes(some[i%2], who), who: who, effects: l.effects, pace: time.Duration(walkers) * 4 * time.Millisecond}
		if w.key.kind == "process" {
			w.who, w.crowd, w.calls, l.effects.crowd = "all", true, i*1_000_000, true
		}
		l.walkers = append(l.walkers, w)
	}
	l.stop = walking(t, l.walkers)
	return l
}

// any is one of the replicas.
func (l *load) any() *house { return l.all[rand.IntN(len(l.all))] }

// befall has so many faults befall the replicas, each at any moment.
func (l *load) befall(n int, fault func(i int)) {
	for i := range n {
		l.goesOn(rand.IntN(4 * len(l.walkers)))
		fault(i)
	}
	l.goesOn(8 * len(l.walkers))
}

// goesOn waits until so many calls have come more.
func (l *load) goesOn(more int) {
	l.t.Helper()
	ctx, stop := context.WithTimeout(l.t.Context(), mcptest.Patience)
	defer stop()
	if l.effects.await(ctx, more); ctx.Err() != nil {
		l.t.Fatalf("waited in vain: %d calls more", more)
	}
}

// settles stops all, and looks whether all was done once, and all that was answered is kept.
func (l *load) settles() {
	l.t.Helper()
	l.stop()
	l.end()
	stood(l.t, l.walkers, l.effects, l.store, 5*len(l.walkers))
	l.t.Logf("calls that came when their clients had gone on: %v", l.effects.tardy)
	if out, err := exec.CommandContext(l.t.Context(), mcptest.Proxy(l.t), "verify", "--all", "--store", l.store).CombinedOutput(); err != nil {
		l.t.Errorf("%v\n%s", err, out)
	}
}
