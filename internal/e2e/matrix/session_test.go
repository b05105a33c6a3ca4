package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// request is one request of a recorded session.
type request struct{ method, params string }

func tool(name, arguments string) request {
	return request{"tools/call", mcptest.ToolParams(name, arguments)}
}

// recorded are sessions with each upstream. Their answers are compared byte for byte, volatile parts apart;
// DIR stands for the filesystem server's folder.
var recorded = map[string][]request{
	"everything": {
		tool("echo", `{"message":"gr\u00fc\u00dfe \ud83d\ude00"}`),
		tool("get-sum", `{"a":1.50,"b":2}`),
		tool("get-structured-content", `{"location":"New York"}`),
		tool("get-tiny-image", `{}`),
		tool("get-annotated-message", `{"messageType":"success","includeImage":true}`),
		tool("get-resource-links", `{"count":2}`),
		tool("get-resource-reference", `{"resourceType":"Blob","resourceId":3}`),
		tool("echo", `{}`),
		{"tools/call", `{"name":"trigger-long-running-operation","arguments":{"duration":0.1,"steps":3},"_meta":{"progressToken":"p-1"}}`},
		{"tools/call", `{"name":"trigger-long-running-operation","arguments":{"duration":0.1,"steps":2},"_meta":{"progressToken":7}}`},
		{"resources/read", `{"uri":"demo://resource/static/document/features.md"}`},
		{"resources/read", `{"uri":"demo://resource/dynamic/text/1"}`},
		{"prompts/get", `{"name":"args-prompt","arguments":{"city":"Z\u00fcrich"}}`},
		{"prompts/get", `{"name":"args-prompt"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":""}}`},
		{"logging/setLevel", `{"level":"error"}`},
	},
	"filesystem": {
		tool("list_directory", `{"path":"DIR"}`),
		tool("read_text_file", `{"path":"DIR/notes.txt","head":1}`),
		tool("read_text_file", `{"path":"DIR/missing"}`),
		tool("read_text_file", `{"path":"/etc/passwd"}`),
		tool("read_media_file", `{"path":"DIR/dot.png"}`),
		tool("edit_file", `{"path":"DIR/notes.txt","edits":[{"oldText":"first","newText":"\u00fc"}],"dryRun":true}`),
		tool("directory_tree", `{"path":"DIR"}`),
	},
	"memory": {
		tool("create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["a","b"]}]}`),
		tool("add_observations", `{"observations":[{"entityName":"Nobody","contents":["c"]}]}`),
		tool("read_graph", `{}`),
		{"resources/read", `{"uri":"memory://knowledge-graph"}`},
	},
	"sequential-thinking": {
		tool("sequentialthinking", `{"thought":"one","thoughtNumber":1,"totalThoughts":1,"nextThoughtNeeded":false}`),
		tool("sequentialthinking", `{"thought":1}`),
	},
	"conformance": {
		tool("test_simple_text", ""),
		tool("test_multiple_content_types", ""),
		tool("test_error_handling", ""),
		tool("test_tool_with_logging", ""),
		{"tools/call", `{"name":"test_tool_with_progress","_meta":{"progressToken":"p"}}`},
		{"resources/read", `{"uri":"test://static-binary"}`},
		{"resources/read", `{"uri":"test://template/123/data"}`},
		{"prompts/get", `{"name":"test_prompt_with_embedded_resource","arguments":{"resourceUri":"test://static-text"}}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg1","value":"p"}}`},
	},
	"mangled": {
		tool("content", ""), tool("numbers", ""), tool("explicit", ""), tool("order", ""), tool("escapes", ""), tool("repeated", ""),
		tool("error", ""),
		{"tools/call", `{"name":"chatter","_meta":{"progressToken":9007199254740993,"vendor/x":1.0}}`},
		{"resources/read", `{"uri":"mangled://one"}`},
		{"prompts/get", `{"name":"odd"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"odd"},"argument":{"name":"a","value":""}}`},
	},
}

var lists = map[string]string{"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}

func mangled(t *testing.T) target { return target{argv: mcptest.Stdio(t, "mangled").Command()} }

func mangledHTTP(t *testing.T) target {
	_, url := mcptest.HTTP(t, mcptest.Mangled())
	return target{url: url}
}

// A session through the proxy is the session on a direct connection, byte for byte: the client's ids and
// progress tokens come back, and nothing that the upstream sends is read and written anew.
func TestNothingLost(t *testing.T) {
	sessions := slices.Concat(upstreams, []upstream{
		{name: "mangled", start: mangled},
		{name: "mangled-http", start: mangledHTTP},
	})
	for _, u := range sessions {
		requests := recorded[strings.TrimSuffix(strings.TrimSuffix(u.name, "-http"), "-sse")]
		t.Run(u.name, func(t *testing.T) {
			start := u.start
			if u.direct != nil {
				start = u.direct
			}
			server := start(t)
			direct := record(t, server, server.folder, requests, 0)
			for downstream, before := range downstreams {
				t.Run(downstream, func(t *testing.T) {
					server := u.start(t)
					proxied := record(t, before(t, vendorPolicy(t, u.bound), server), server.folder, requests, len(direct.answers))
					direct.compare(t, proxied, u.bound)
				})
			}
		})
	}
}

// Two direct sessions are alike: only then does a difference through the proxy mean something.
func TestDirectRecordingsAreAlike(t *testing.T) {
	for _, u := range upstreams {
		if u.direct != nil {
			continue
		}
		t.Run(u.name, func(t *testing.T) {
			requests := recorded[strings.TrimSuffix(u.name, "-http")]
			first, second := u.start(t), u.start(t)
			direct := record(t, first, first.folder, requests, 0)
			direct.compare(t, record(t, second, second.folder, requests, len(direct.answers)), nil)
		})
	}
}

// vendorPolicy binds everything and lets the mangled upstream's own notification through.
func vendorPolicy(t *testing.T, bound []string) string {
	t.Helper()
	text := "version: 1\nname: open\ninitial: open\npassthrough: [notifications/vendor/thing]\nstates:\n  open:\n" +
		"    tools:\n      \"*\":\n    prompts:\n      \"*\":\n    resources:\n      \"*\":\n"
	for _, uri := range bound {
		text += fmt.Sprintf("      %q:\n", uri)
	}
	return mcptest.WritePolicy(t, text)
}

// recording is what a raw client got in a session.
type recording struct {
	initialize mcptest.Message
	items      map[string][]string // of each list, the bytes of its items
	answers    []string            // what came for each request: notifications, then the answer
	streams    bool                // messages came on several streams, so their order is chance
}

// record plays a session and waits for at least as many messages as given.
func record(t *testing.T, u target, folder string, requests []request, messages int) recording {
	t.Helper()
	s, web := open(t, u)
	r := recording{initialize: s.Initialize(), items: map[string][]string{}, streams: web != nil}
	if web != nil {
		web.Listen()
	}
	for _, method := range []string{"tools/list", "resources/list", "prompts/list"} {
		r.items[method] = items(t, s.Call(method, ""), lists[method])
	}
	for _, q := range requests {
		id := s.Request(q.method, strings.ReplaceAll(q.params, "DIR", folder))
		answer, before := s.Answer(id)
		for _, m := range append(slices.DeleteFunc(before, unrelated), answer) {
			r.answers = append(r.answers, steady(m.String(), folder))
		}
	}
	for len(r.answers) < messages {
		if m := s.Next(); !unrelated(m) {
			r.answers = append(r.answers, steady(m.String(), folder))
		}
	}
	return r
}

// open connects a raw client; web is nil on stdio.
func open(t *testing.T, u target) (s *mcptest.Session, web *mcptest.Web) {
	t.Helper()
	if u.url != "" {
		return mcptest.DialWeb(t, u.url)
	}
	s, _ = mcptest.DialIn(t, u.env, u.argv...)
	return s, nil
}

// unrelated is what a server sends whenever it likes, and belongs to no request.
func unrelated(m mcptest.Message) bool {
	return strings.HasSuffix(m.Method, "/list_changed") || m.Method == "roots/list" ||
		strings.Contains(m.String(), "Roots updated")
}

func steady(text, folder string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.stands)
	}
	if folder != "" {
		text = strings.ReplaceAll(text, folder, "DIR")
	}
	return text
}

// items returns the bytes of each entry of a list; nil if the list was refused.
func items(t *testing.T, answer mcptest.Message, member string) []string {
	t.Helper()
	var read map[string]json.RawMessage
	var entries []json.RawMessage
	if answer.Result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result, &read); err != nil {
		t.Fatalf("reading %s: %v", answer, err)
	}
	if err := json.Unmarshal(read[member], &entries); err != nil {
		t.Fatalf("reading %s: %v", answer, err)
	}
	texts := make([]string, len(entries))
	for i, entry := range entries {
		texts[i] = string(entry)
	}
	return texts
}

// compare fails the test for every difference. What belongs to no request comes on a stream of its own over
// HTTP, so there the order between streams is left out.
func (r recording) compare(t *testing.T, proxied recording, bound []string) {
	t.Helper()
	want, got := slices.Clone(r.answers), slices.Clone(proxied.answers)
	if r.streams || proxied.streams {
		slices.Sort(want)
		slices.Sort(got)
	}
	sameSession(t, want, got)
	for method, want := range r.items {
		got := slices.DeleteFunc(slices.Clone(proxied.items[method]), func(item string) bool {
			return slices.ContainsFunc(bound, func(uri string) bool { return strings.Contains(item, `"`+uri+`"`) })
		})
		sameSession(t, want, got)
	}
	sameServer(t, r.initialize, proxied.initialize)
}

// sameServer compares what initialize says. Only the capabilities may differ, as the table of DESIGN section 4
// says; what the upstream said of itself is untouched.
func sameServer(t *testing.T, direct, proxied mcptest.Message) {
	t.Helper()
	var want, got map[string]json.RawMessage
	if json.Unmarshal(direct.Result, &want) != nil || json.Unmarshal(proxied.Result, &got) != nil {
		t.Fatalf("initialize was answered %s and %s", direct, proxied)
	}
	for member := range want {
		if member != "capabilities" && string(want[member]) != string(got[member]) {
			t.Errorf("%s of initialize: direct %s, proxied %s", member, want[member], got[member])
		}
	}
}
