package catalogue_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const pinned = `
version: 1
initial: a
pin: refuse
states:
  a: {tools: {write: b, "read_*": , fsm_start_run: }, resources: {"file:///x": , "demo:1": }}
  b: {tools: [write, read_a, status], resources: ["file:///x"], prompts: [plan]}
  c: {tools: {"read_*": , status: c}}
`

func parse(t *testing.T, source string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("policy.yaml", []byte(source))
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

func list(t *testing.T, k wire.ListKind, items ...string) *wire.List {
	t.Helper()
	m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"result":{"`+k.String()+`":[`+strings.Join(items, ",")+`]}}`), wire.FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.NewList(k, []*wire.Message{m})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// looks are those of all places of two policies, on both surfaces, with and without
// locked definitions and tools of the proxy's own.
func looks(t *testing.T, tools *wire.List) (all []catalogue.Look) {
	t.Helper()
	strict, loose := parse(t, pinned), parse(t, strings.Replace(pinned, "pin: refuse", "on_complete: stop", 1))
	all = append(all, catalogue.Look{Snapshot: run.Snapshot{Policy: strict, Shadow: true}})
	locked, err := lock.Take(strict, lock.Upstream{}, tools.Keep(func(i wire.Item) bool { return i.Name != "read_b" }))
	if err != nil {
		t.Fatal(err)
	}
	pins := []*catalogue.Pins{catalogue.NewPins(nil), catalogue.NewPins(locked)}
	own := []*catalogue.Own{nil, {Tools: [][]byte{handle.Again()}, Names: []string{handle.StartName}}, {Argument: catalogue.NewArgument("run")}}
	for _, snapshot := range []run.Snapshot{
		{Policy: strict}, {Policy: loose}, {Policy: loose, Gate: strict}, {Policy: strict, Refused: true}, {Policy: strict, Runless: true},
	} {
		for state := range snapshot.Policy.States() {
			snapshot.At.State = policy.State(state)
			for _, p := range pins {
				for _, o := range own {
					all = append(all, catalogue.Look{Snapshot: snapshot, Pins: p, Own: o}, catalogue.Look{Snapshot: snapshot, Pins: p, Own: o, Static: true})
				}
			}
		}
	}
	return all
}

// TestDifferKnowsTheBytes: clients are told of a list exactly when they are shown other
// bytes of it, and what a refusal names is what is listed.
func TestDifferKnowsTheBytes(t *testing.T) {
	tools := list(t, wire.Tools, `{"name":"write","inputSchema":{"type":"object"}}`, `{"name":"read_a","inputSchema":{"$ref":"#/x"}}`,
		`{"name":"read_b","description":"B.","inputSchema":{"type":"object"}}`, `{"name":"status"}`, `{"name":"fsm_start_run","inputSchema":{}}`)
	views := []catalogue.View{{List: tools}, {List: list(t, wire.Prompts, `{"name":"plan"}`)},
		{List: list(t, wire.Resources, `{"uri":"file:///x"}`), Templates: list(t, wire.Templates, `{"uriTemplate":"demo:{n}"}`)}}
	all := looks(t, tools)
	for _, v := range views {
		k := v.List.Kind
		c := catalogue.New(false)
		for _, from := range all {
			before := string(c.List(v, from, nil))
			if from.Static == from.Shadow { // neither
				if names := from.Names([]policy.Kind{policy.Tool, policy.Resource, policy.Prompt}[k], v); !slices.Equal(names, listed(t, k, before, from)) {
					t.Errorf("%s: %v are named, and listed is %s", from, names, before)
				}
			}
			for _, to := range all {
				if is := c.Differ(k, func(wire.ListKind) catalogue.View { return v }, from, to, nil); is != (before != string(c.List(v, to, nil))) {
					t.Fatalf("%+v and %+v differ is %t:\n%s\n%s", from, to, is, before, c.List(v, to, nil))
				}
			}
		}
	}
}

// listed are the names in a result, but for those of tools of the proxy's own.
func listed(t *testing.T, k wire.ListKind, result string, l catalogue.Look) (names []string) {
	t.Helper()
	var got map[string][]struct{ Name, URI string }
	if err := json.Unmarshal([]byte(result), &got); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	for _, item := range got[k.String()] {
		if l.Own == nil || !slices.Contains(l.Own.Names, item.Name) {
			names = append(names, item.Name+item.URI)
		}
	}
	return names
}

// TestDifferWithoutAList: what is not known is told of, unless it is sure that nothing changes.
func TestDifferWithoutAList(t *testing.T) {
	p := parse(t, pinned)
	at := func(s policy.State) catalogue.Look {
		return catalogue.Look{Snapshot: run.Snapshot{Policy: p, At: policy.Configuration{State: s}}, Pins: catalogue.NewPins(nil)}
	}
	c := catalogue.New(false)
	for _, tt := range []struct {
		kind wire.ListKind
		view catalogue.View
		to   policy.State
		want bool
	}{
		{wire.Tools, catalogue.View{}, 1, true},
		{wire.Prompts, catalogue.View{}, 2, false},
		{wire.Resources, catalogue.View{List: list(t, wire.Resources, `{"uri":"file:///x"}`)}, 1, true}, // templates may serve the other
		{wire.Resources, catalogue.View{List: list(t, wire.Resources, `{"uri":"demo:1"}`, `{"uri":"file:///x"}`)}, 1, true},
		{wire.Resources, catalogue.View{List: list(t, wire.Resources, `{"uri":"demo:1"}`, `{"uri":"file:///x"}`)}, 0, false},
	} {
		if got := c.Differ(tt.kind, func(wire.ListKind) catalogue.View { return tt.view }, at(0), at(tt.to), nil); got != tt.want {
			t.Errorf("%s of states 0 and %d: %t", tt.kind, tt.to, got)
		}
	}
}
