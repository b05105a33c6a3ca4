package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

var static = with(func(c *proxy.Config) { c.Surface = surface.Static })

// TestStaticSurface is one list of all that is bound anywhere; the gate is at the
// call, and nothing is told.
func TestStaticSurface(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.offer(wire.Tools, `{"tools":[{"name":"status","description":"Says \"how\"."},{"name":"rogue"},{"description":7,"name":"apply"},{ "name":"ask" },{"name":"list_x","description":""}]}`)
		c := r.connect(plainHello)
		reply := c.request("tools/list", "")
		before := reply.wait()
		equal(t, "list", before, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[`+
			`{"name":"status","description":"Says \"how\". [Allowed in state: planning, review, applying]"},`+
			`{"description":"[Allowed in state: applying]","name":"apply"},`+
			`{"description":"[Allowed in state: review]", "name":"ask" },`+
			`{"name":"list_x","description":"[Allowed in state: planning]"}]}}`, reply.id))
		c.refused(c.call("apply").wait(), policy.InvalidTransition)
		lines := len(c.log.all())
		c.do("write_plan", ok)
		equal(t, "told", len(c.log.all()), lines+1)
		reply = c.request("tools/list", "")
		equal(t, "the same list", strings.SplitN(reply.wait(), "result", 2)[1], strings.SplitN(before, "result", 2)[1])
	}, static)
}

// TestAnnotations: the state in _meta, and as the last text of a tool's content,
// spliced into the upstream's bytes.
func TestAnnotations(t *testing.T) {
	const note = `{"state":"planning","valid_next_actions":["status","read_file","list_a","write_plan"]}`
	const text = `{"type":"text","text":"State is now 'planning'. Allowed now: status, read_file, list_a, write_plan."}`
	tests := []struct{ name, result, meta, all string }{
		{"plain", `{"content":[{"type":"text","text":"x"}]}`,
			`{"_meta":{"fsm-proxy/state":NOTE},"content":[{"type":"text","text":"x"}]}`,
			`{"_meta":{"fsm-proxy/state":NOTE},"content":[{"type":"text","text":"x"},TEXT]}`},
		{"empty content", `{ "content":[ ] ,"isError":true}`, `{"_meta":{"fsm-proxy/state":NOTE}, "content":[ ] ,"isError":true}`,
			`{"_meta":{"fsm-proxy/state":NOTE}, "content":[ TEXT] ,"isError":true}`},
		{"no content", `{}`, `{"_meta":{"fsm-proxy/state":NOTE}}`, `{"_meta":{"fsm-proxy/state":NOTE}}`},
		{"own _meta", `{"_meta":{"a":1},"content":[]}`, `{"_meta":{"fsm-proxy/state":NOTE,"a":1},"content":[]}`, `{"_meta":{"fsm-proxy/state":NOTE,"a":1},"content":[TEXT]}`},
		{"own _meta last", `{"content":[],"_meta":{ }}`, `{"content":[],"_meta":{"fsm-proxy/state":NOTE }}`, `{"content":[TEXT],"_meta":{"fsm-proxy/state":NOTE }}`},
		{"spoofed", `{"content":[],"_meta":{"x":1,"fsm-proxy/state":{"state":"applying"}}}`,
			`{"content":[],"_meta":{"x":1,"fsm-proxy/state":NOTE}}`, `{"content":[TEXT],"_meta":{"x":1,"fsm-proxy/state":NOTE}}`},
		{"spoofed by escape", `{"_meta":{"fsm-proxy\/state":1,"fsm-proxy/\u0073tate":2}}`,
			`{"_meta":{"fsm-proxy\/state":NOTE,"fsm-proxy/\u0073tate":NOTE}}`, `{"_meta":{"fsm-proxy\/state":NOTE,"fsm-proxy/\u0073tate":NOTE}}`},
		{"_meta is null", `{"_meta":null}`, `{"_meta":{"fsm-proxy/state":NOTE}}`, `{"_meta":{"fsm-proxy/state":NOTE}}`},
		{"content is no array", `{"content":"x"}`, `{"_meta":{"fsm-proxy/state":NOTE},"content":"x"}`, `{"_meta":{"fsm-proxy/state":NOTE},"content":"x"}`},
		{"what SDKs mangle", `{"content":[{"type":"odd","n":1e400,"n":2}],"z":9007199254740993}`,
			`{"_meta":{"fsm-proxy/state":NOTE},"content":[{"type":"odd","n":1e400,"n":2}],"z":9007199254740993}`,
			`{"_meta":{"fsm-proxy/state":NOTE},"content":[{"type":"odd","n":1e400,"n":2},TEXT],"z":9007199254740993}`},
	}
	for _, tt := range tests {
		for annotate, want := range map[surface.Annotate]string{surface.AnnotateMeta: tt.meta, surface.AnnotateText: tt.all, surface.AnnotateOff: tt.result} {
			bubble(t, review, func(r *rig) {
				c := r.connect(plainHello)
				reply := c.call("read_file")
				r.up.next().result(tt.result)
				want := strings.NewReplacer("NOTE", note, "TEXT", text).Replace(want)
				equal(t, tt.name+" "+annotate.String(), reply.wait(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, reply.id, want))
			}, with(func(c *proxy.Config) { c.Annotate = annotate }))
		}
	}
}

// TestAnnotationsByDefault: off on the dynamic surface, text on the static one;
// errors and refusals as they are, prompts without text.
func TestAnnotationsByDefault(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		equal(t, "dynamic", strings.Contains(c.do("read_file", ok), "fsm-proxy"), false)
	})
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		equal(t, "static", strings.Contains(c.do("read_file", ok), "State is now 'planning'"), true)
		reply := c.call("read_file")
		r.up.next().fail(-32000)
		equal(t, "an error", strings.Contains(reply.wait(), "fsm-proxy"), false)
		reply = c.request("prompts/get", `{"name":"plan"}`)
		r.up.next().result(`{"messages":[],"content":[]}`)
		if answer := reply.wait(); strings.Contains(answer, "State is now") || !strings.Contains(answer, `"fsm-proxy/state":{"state":"planning","valid_next_actions":["plan"]}`) {
			t.Errorf("got %s", answer)
		}
		c.do("write_plan", ok)
		c.do("ask", ok)
		if answer := c.do("apply", ok); !strings.Contains(answer, "The run was completed and begins again. State is now 'planning'.") ||
			!strings.Contains(answer, `"restarted":true`) {
			t.Errorf("after a restart: %s", answer)
		}
	}, static)
	bubble(t, fmt.Sprintf(completes, "stop"), func(r *rig) {
		c := r.connect(plainHello)
		if answer := c.do("act", ok); !strings.Contains(answer, "The run is complete.") || !strings.Contains(answer, `"complete":true`) {
			t.Errorf("at the end: %s", answer)
		}
	}, static)
}

// TestAnnotationsNameWhatIsListed, globs' names among them, to a client that has
// not listed, and to one whose list is too old to be given again.
func TestAnnotationsNameWhatIsListed(t *testing.T) {
	const want = `"valid_next_actions":["status","read_file","list_a","write_plan"]`
	bubble(t, review, func(r *rig) {
		c := r.open()
		c.ask("initialize", plainHello)
		c.notify("notifications/initialized", "")
		if answer := c.do("read_file", ok); !strings.Contains(answer, want) {
			t.Errorf("not listed yet: %s", answer)
		}
	}, static)
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.conn(0).drop(wire.Tools)
		if answer := c.do("read_file", ok); !strings.Contains(answer, want) {
			t.Errorf("listed before: %s", answer)
		}
	}, static)
}

// TestAnnotationsNeedNoList: where there is none to be had, the call goes on.
func TestAnnotationsNeedNoList(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		c.ask("initialize", plainHello)
		r.up.conn(0).fail = errors.New("no list")
		if answer := c.do("write_plan", ok); !strings.Contains(answer, `"state":"review","valid_next_actions":["status","ask"]`) {
			t.Errorf("got %s", answer)
		}
	}, static)
}

// TestAdviceToWhoNeverListsAgain is logged once, and not for a list that the client
// never asked for.
func TestAdviceToWhoNeverListsAgain(t *testing.T) {
	var log bytes.Buffer
	logged := with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) })
	advised := func() int { return strings.Count(log.String(), "try --surface static") }
	walk := func(c *client, again bool) {
		for range 3 {
			for _, tool := range []string{"write_plan", "ask", "apply"} {
				c.do(tool, ok)
				if again {
					c.ask("tools/list", "")
				}
			}
		}
	}
	bubble(t, review, func(r *rig) {
		walk(r.connect(plainHello), false)
		equal(t, "never lists again", advised(), 1)
	}, logged)
	log.Reset()
	bubble(t, review, func(r *rig) {
		c := r.open()
		c.ask("initialize", plainHello)
		c.ask("tools/list", "")
		walk(c, true)
		equal(t, "lists tools alone", advised(), 0)
	}, logged)
}

// TestAutoSurface is static for clients that are known never to list again.
func TestAutoSurface(t *testing.T) {
	for name, want := range map[string]bool{"claude-ai": true, "codex-mcp-client": true, "claude-code": false, "Claude-AI": false, "": false} {
		bubble(t, review, func(r *rig) {
			c := r.connect(strings.Replace(plainHello, `"test"`, `"`+name+`"`, 1))
			equal(t, name, strings.Contains(c.ask("tools/list", ""), "[Allowed in state:"), want)
		})
	}
}
