package proxy_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// The upstream's lists are not at hand: nobody who sees the same is told.
func TestReloadWithoutListsAtHandTellsOnlyOfChanges(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for _, kind := range []wire.ListKind{wire.Tools, wire.Resources, wire.Prompts} {
			r.up.conn(0).drop(kind)
		}
		r.reload("Look around", "Look about")
		equal(t, "told", c.told(), []string(nil))
		r.reload("read_file: ,", "")
		equal(t, "told of the tools", c.told(), []string{"tools/list_changed"})
	})
}

// The connection upstream is gone: likewise.
func TestReloadWithoutAConnectionTellsOnlyOfChanges(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.conn(0).end()
		c.told()
		r.reload("Look around", "Look about")
		equal(t, "told", c.told(), []string(nil))
	})
}

// A resource that only a template serves appears: which, the list given last does
// not say.
func TestReloadThatNeedsTemplatesTells(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.names(wire.Templates, "note://{n}")
		c := r.connect(plainHello)
		r.up.conn(0).drop(wire.Templates)
		r.reload(`"file:///plan": }`, `"file:///plan": , "note://1": }`)
		equal(t, "told", c.told(), []string{"resources/list_changed"})
		equal(t, "listed", c.listed(wire.Resources), "file:///plan note://1")
	})
}

// A call that kept a run from a reload ends without an outcome, and what the
// reload does then is told.
func TestTurnGivenBackWithoutAStepTellsOfTheReload(t *testing.T) {
	for _, fate := range []string{"restart", "refuse"} {
		bubble(t, review, func(r *rig) {
			c := r.connect(plainHello)
			c.do("write_plan", ok)
			call := c.call("ask")
			sent := r.up.next()
			r.p.Reload(parse(t, "stranded: "+fate+"\n"+strings.Replace(shortcut, "read_file: ,", "read_file: , ask: ,", 1)))
			c.told()
			sent.fail(-32601)
			call.wait()
			told := append(call.names(), c.told()...)
			if len(told) != 1 || told[0] != "tools/list_changed" {
				t.Errorf("%s: told of %q", fate, told)
			}
		})
	}
}

// names are the notifications on a reply's own stream.
func (r *reply) names() (all []string) {
	for _, raw := range r.messages() {
		all = append(all, short([]byte(raw)))
	}
	return all
}

// The same for a queued call that comes by the turn and is refused by what it
// finds.
func TestTurnTakenAfterAReloadTellsOfIt(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		first := c.call("ask")
		sent := r.up.next()
		second := c.call("ask")
		r.p.Reload(parse(t, "stranded: restart\n"+shortcut))
		c.told()
		sent.fail(-32601)
		first.wait()
		c.refused(second.wait(), policy.NotAvailable)
		equal(t, "listed", c.listed(wire.Tools), "status read_file write_plan")
		told := append(append(first.names(), second.names()...), c.told()...)
		equal(t, "told", told, []string{"tools/list_changed"})
	})
}

// splitting binds one tool in several cases, in a state that others lack.
const splitting = `
version: 1
initial: planning
states:
  planning: {tools: {write_plan: review}}
  review: {tools: {ask: {by: how, cases: {kindly: stay, firmly: stay}}}}
`

// A tightening that leaves the name and takes a case holds for a stranded run.
func TestStrandedRunIsTightenedByCase(t *testing.T) {
	bubble(t, splitting, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, strings.NewReplacer("review", "other", ", firmly: stay", "").Replace(splitting)))
		how := func(text string) *reply {
			return c.request("tools/call", `{"name":"ask","arguments":{"how":"`+text+`"}}`)
		}
		c.refused(how("firmly").wait(), policy.UnknownCase)
		kindly := how("kindly")
		r.up.next().result(ok)
		kindly.wait()
		c.refused(c.call("ask").wait(), policy.UnknownCase)
	})
}

// A glob of the policy in force binds for a stranded run what is listed, and
// nothing else.
func TestStrandedRunIsTightenedByAGlob(t *testing.T) {
	bubble(t, strings.ReplaceAll(review, "ask: {", "unlisted: , ask: {"), func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, strings.Replace(shortcut, "read_file: ,", `"a*": , "unlist*": ,`, 1)))
		r.up.conn(0).drop(wire.Tools)
		c.refused(c.call("unlisted").wait(), policy.UnknownAction)
		c.do("ask", ok)
	})
}

// A run that ends under an older policy, and the next one under its key, which
// begins with the policy in force.
func TestNewRunBeginsWithThePolicyInForce(t *testing.T) {
	for name, c := range map[string]struct{ begins, listed string }{
		"pinned":   {"on_reload: pin\n" + shortcut, "status read_file write_plan"},
		"stranded": {strings.NewReplacer("applying", "doing", "planning", "planned").Replace(shortcut), "status read_file write_plan"},
	} {
		bubble(t, review, func(r *rig) {
			client := r.connect(plainHello)
			client.do("write_plan", ok)
			client.do("ask", ok)
			r.p.Reload(parse(t, strings.Replace(c.begins, "read_file: ,", "read_file: , apply: ,", 1)))
			client.do("apply", ok)
			equal(t, name, client.listed(wire.Tools), c.listed+" apply")
			if name == "pinned" {
				client.do("write_plan", ok)
				equal(t, "in the new policy's applying", client.listed(wire.Tools), "status apply")
			}
		})
	}
}

// renamings are policies that call one state by another name each.
func renaming(t *testing.T, renamed, name string) *policy.Policy {
	t.Helper()
	return parse(t, "renamed: {"+renamed+"}\n"+strings.ReplaceAll(shortcut, "planning", name))
}

// While a call is in flight its state is renamed, and renamed again.
func TestReloadRenamesTwiceInMidCall(t *testing.T) {
	bubble(t, shortcut, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("write_plan")
		sent := r.up.next()
		r.p.Reload(renaming(t, "planning: drafting", "drafting"))
		equal(t, "done", r.p.Reload(renaming(t, "drafting: sketching", "sketching")), runs.Reloaded{Runs: 1, Waiting: 1})
		c.do("read_file", ok) // decided where the run will be
		sent.result(failed)
		call.wait()
		c.in("sketching")
		c.do("write_plan", ok)
		c.in("applying")
	})
}

// The second renaming is taken back by a third policy that knows the first name.
func TestReloadRenamesAndBackInMidCall(t *testing.T) {
	bubble(t, shortcut, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("write_plan")
		sent := r.up.next()
		r.p.Reload(renaming(t, "planning: drafting", "drafting"))
		r.p.Reload(parse(t, shortcut))
		sent.result(failed)
		call.wait()
		c.in("planning")
		c.do("write_plan", ok)
		c.in("applying")
	})
}

// Any number of policies may come while one call is in flight: what is kept of
// them is bounded.
func TestReloadManyTimesInMidCall(t *testing.T) {
	bubble(t, shortcut, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("write_plan")
		sent := r.up.next()
		var early weak.Pointer[policy.Policy]
		for i := range 100 {
			p := renaming(t, "planning: drafting", "drafting")
			if i == 50 {
				early = weak.Make(p)
			}
			r.p.Reload(p)
		}
		if collected(early); early.Value() != nil {
			t.Error("a policy long gone is still in memory")
		}
		sent.result(failed)
		call.wait()
		c.in("drafting")
	})
}

// collected gives the collector the time that it needs to find that p is gone.
func collected(p weak.Pointer[policy.Policy]) {
	for range 10 {
		if p.Value() == nil {
			return
		}
		runtime.GC()
	}
}

// A policy that no run needs any more is let go, with the lists that were
// rendered by it.
func TestReloadLetsOldPoliciesGo(t *testing.T) {
	r := newRig(t, review)
	defer r.p.Close()
	c := r.connect(plainHello)
	var old []weak.Pointer[policy.Policy]
	for range 20 {
		r.reload("read_file: ,", "")
		c.listed(wire.Tools)
		r.reload()
		c.listed(wire.Tools)
		old = append(old, weak.Make(r.p.Policy()))
	}
	kept := 0
	for _, p := range old[:len(old)-1] {
		if collected(p); p.Value() != nil {
			kept++
		}
	}
	if kept > 1 {
		t.Errorf("%d of %d policies are still in memory", kept, len(old)-1)
	}
}

// Two reloads at one time, from the file and by hand, come to every run in one
// order.
func TestReloadsAtOnceAgree(t *testing.T) {
	r := newRig(t, review)
	defer r.p.Close()
	var clients []*client
	for range 50 {
		clients = append(clients, r.connect(plainHello))
	}
	without := strings.Replace(review, "read_file: ,", "", 1)
	for range 30 {
		var both sync.WaitGroup
		for _, source := range []string{review, without} {
			next := parse(t, source)
			both.Go(func() { r.p.Reload(next) })
		}
		both.Wait()
		p := r.p.Policy()
		shown := p.Visible(policy.View{Configuration: p.Initial()}, policy.Tool, "read_file")
		for i, c := range clients {
			if strings.Contains(c.listed(wire.Tools), "read_file") != shown {
				t.Fatalf("client %d is shown another policy than the one in force", i)
			}
		}
	}
}
