package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// TestHiddenToolOnPageTwo is neither shown nor callable, and what is bound there
// is both; all in one page, in the upstream's bytes.
func TestHiddenToolOnPageTwo(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.offer(wire.Tools, `{"tools":[ {"name" : "status","x":1e400}, {"name":"rogue"}], "vendor":true, "nextCursor":"2"}`,
			`{"tools":[{"name":"apply"},{"name":"read_file", "oneOf":[{}]}],"nextCursor":"3"}`, `{"tools":[{"name":"list_z"},{"name":"secret"}]}`)
		c := r.connect(plainHello)
		reply := c.request("tools/list", "")
		equal(t, "shown", reply.wait(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name" : "status","x":1e400},`+
			`{"name":"read_file", "oneOf":[{}]},{"name":"list_z"}], "vendor":true}}`, reply.id))
		c.refused(c.call("apply").wait(), policy.InvalidTransition)
		c.refused(c.call("rogue").wait(), policy.UnknownAction)
		c.do("list_z", ok)
		equal(t, "reached", r.up.reached(), []string{"tools/call list_z"})
	})
}

// TestListAndCallAgree in every state, for every name that there is.
func TestListAndCallAgree(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for _, step := range []string{"", "write_plan", "ask"} {
			if step != "" {
				c.do(step, ok)
			}
			listed := " " + c.listed(wire.Tools) + " "
			for _, tool := range reviewTools {
				before := len(r.up.reached())
				reply := c.call(tool)
				synctest.Wait()
				called := len(r.up.reached()) > before
				if called {
					r.up.next().fail(-32601) // no outcome, no step
				}
				reply.wait()
				if shown := strings.Contains(listed, " "+tool+" "); shown != called {
					t.Errorf("after %q %s is shown %v, callable %v", step, tool, shown, called)
				}
			}
		}
	})
}

// TestStaleListAfterListChanged: the cache is dropped, the client is told if what
// it sees has changed, and only then.
func TestStaleListAfterListChanged(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		equal(t, "shown", c.listed(wire.Tools), "status read_file list_a write_plan")
		before := len(c.log.all())
		change := func(names ...string) {
			r.up.names(wire.Tools, names...)
			r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, nil)
			synctest.Wait()
		}
		change(append(reviewTools, "rogue2")...)
		equal(t, "a hidden tool came", len(c.log.all()), before)
		change("status", "read_file", "list_b")
		equal(t, "what is seen changed", c.log.all()[before:], []string{"own tools/list_changed"})
		equal(t, "shown", c.listed(wire.Tools), "status read_file list_b")
		c.refused(c.call("list_a").wait(), policy.UnknownAction)
		c.do("list_b", ok)
		equal(t, "reached", r.up.reached(), []string{"tools/call list_b"})
	})
}

// TestListChangedBeforeTheConnectionStands is not lost, and nothing breaks.
func TestListChangedBeforeTheConnectionStands(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		c.ask("initialize", plainHello)
		synctest.Wait()
		equal(t, "told", c.own.messages(), []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`})
	}, func(c *proxy.Config, u *server) {
		dial := c.Dial
		c.Dial = hasty(dial, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	})
}

// TestTemplates are refused with a way out, or empty.
func TestTemplates(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		if answer := c.ask("resources/templates/list", ""); !strings.Contains(answer, "-32601") || !strings.Contains(answer, "templates: empty") {
			t.Errorf("got %s", answer)
		}
	})
	bubble(t, review+"templates: empty\n", func(r *rig) {
		c := r.connect(plainHello)
		if answer := c.ask("resources/templates/list", ""); !strings.Contains(answer, `"result":{"resourceTemplates":[]}`) {
			t.Errorf("got %s", answer)
		}
	})
}

// TestURIThatOnlyATemplateServes is listed with the template's metadata, and
// read; a glob binds no such URI.
func TestURIThatOnlyATemplateServes(t *testing.T) {
	const source = "version: 1\ninitial: a\nstates:\n  a: {resources: {\"demo://item/1\": , \"file:///*\": }}\n  b: {tools: {status: }}\n"
	for _, shown := range []surface.Surface{surface.Dynamic, surface.Static} {
		bubble(t, source, func(r *rig) {
			r.up.offer(wire.Templates, `{"resourceTemplates":[{"uriTemplate":"file:///{+path}","name":"files"},`+
				`{"name":"item", "uriTemplate" : "demo://item/{id}","mimeType":"text/plain","x":1e400}]}`)
			c := r.connect(plainHello)
			equal(t, "listed", c.listed(wire.Resources), "file:///plan file:///diff file:///other demo://item/1")
			if answer := c.ask("resources/list", ""); !strings.Contains(answer, `"uri":"demo://item/1",`) ||
				!strings.Contains(answer, `"name":"item","mimeType":"text/plain","x":1e400}`) || strings.Contains(answer, "uriTemplate") {
				t.Errorf("got %s", answer)
			}
			reply := c.request("resources/read", `{"uri":"demo://item/1"}`)
			r.up.next().result(`{"contents":[]}`)
			reply.wait()
			c.refused(c.ask("resources/read", `{"uri":"file:///etc/passwd"}`), policy.UnknownAction)
			c.refused(c.ask("resources/read", `{"uri":"demo://item/2"}`), policy.UnknownAction)
			equal(t, "reached", r.up.reached(), []string{"resources/read demo://item/1"})
		}, with(func(c *proxy.Config) { c.Surface, c.Annotate = shown, surface.AnnotateOff }))
	}
}

// TestListOfWhatTheUpstreamLacks is no such method, and is not fetched.
func TestListOfWhatTheUpstreamLacks(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.hello = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"u","version":"1"}}`
		c := r.open()
		c.ask("initialize", plainHello)
		if answer := c.ask("prompts/list", ""); !strings.Contains(answer, "-32601") {
			t.Errorf("got %s", answer)
		}
		c.do("write_plan", ok) // resources differ between the states, but there are none
		equal(t, "told", c.log.all()[2:], []string{"3 tools/list_changed", "3 answer"})
	})
}

// TestListsAreSharedAndFilteredOnce: the same bytes from the cache, one fetch.
func TestListsAreSharedAndFilteredOnce(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for range 10 {
			c.listed(wire.Tools)
		}
		equal(t, "fetches", r.up.conn(0).fetches, 3) // one of each kind
	})
}

// TestUpdatesOfWhatIsSubscribedAndBound reach the client, all others do not.
func TestUpdatesOfWhatIsSubscribedAndBound(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		update := func(uri string) {
			r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"`+uri+`"}}`, nil)
		}
		subscribe := func(uri string, fails bool) {
			reply := c.request("resources/subscribe", `{"uri":"`+uri+`"}`)
			if k := r.up.next(); fails {
				k.fail(-32602)
			} else {
				k.result(`{}`)
			}
			reply.wait()
		}
		update("file:///plan")
		subscribe("file:///plan", true)
		update("file:///plan")
		c.refused(c.ask("resources/subscribe", `{"uri":"file:///diff"}`), policy.InvalidTransition)
		update("file:///diff")
		equal(t, "told", len(c.own.messages()), 0)
		subscribe("file:///plan", false)
		update("file:///plan")
		equal(t, "told", len(c.own.messages()), 1)
		c.refused(c.ask("resources/subscribe", `{"uri":"file:///diff"}`), policy.InvalidTransition)
		c.do("write_plan", ok)
		c.do("ask", ok) // plan is not bound here
		update("file:///plan")
		equal(t, "told", len(c.own.messages()), 1)
		c.do("apply", failed)
		c.in("planning")
		update("file:///plan")
		equal(t, "told", len(c.own.messages()), 2)
		reply := c.request("resources/unsubscribe", `{"uri":"file:///plan"}`)
		r.up.next().result(`{}`)
		reply.wait()
		update("file:///plan")
		equal(t, "told", len(c.own.messages()), 2)
	})
}

// TestMaxSubscriptions refuses one more, and counts no refused one.
func TestMaxSubscriptions(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for range 3 {
			c.refused(c.ask("resources/subscribe", `{"uri":"file:///diff"}`), policy.InvalidTransition)
		}
		reply := c.request("resources/subscribe", `{"uri":"file:///plan"}`)
		r.up.next().result(`{}`)
		reply.wait()
		if answer := c.ask("resources/subscribe", `{"uri":"file:///diff"}`); !strings.Contains(answer, "too many") {
			t.Errorf("got %s", answer)
		}
	}, with(func(c *proxy.Config) { c.MaxSubscriptions = 1 }))
}
