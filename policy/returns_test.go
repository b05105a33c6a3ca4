package policy

import (
	"strings"
	"testing"
	"unsafe"
)

const helping = `version: 1
initial: idle
on_complete: restart
states:
  idle: {tools: {start: {on_any: building}, help: {on_any: helping}}}
  building: {tools: {help: {on_any: helping}, ask: {on_any: asking}, done: {on_any: {terminal: true}}}}
  helping: {tools: {ask: {on_any: asking}, back: {on_any: {return: true}}, again: {on_any: helping}}}
  asking: {tools: {answered: {on_success: {return: true}, on_any: stay}}, signals: {give_up: {return: true}}}
`

// stroll is a run that takes a step for each word.
type stroll struct {
	t  *testing.T
	p  *Policy
	at Configuration
}

func (s *stroll) steps(words string) {
	s.t.Helper()
	for name := range strings.FieldsSeq(words) {
		kind := Tool
		if signal, is := strings.CutPrefix(name, "!"); is {
			kind, name = Signal, signal
		}
		v := s.p.Decide(s.at, &Request{Kind: kind, Name: name, Listed: true})
		step, err := s.p.Next(s.at, v.Symbol, Success)
		if !v.Allowed || err != nil {
			s.t.Fatalf("%s in %s: %v, %v", name, s.p.StateName(s.at.State), v.Code, err)
		}
		s.at = step.To
		if again, ok := s.p.Configuration(s.p.StateName(s.at.State), s.at.Complete, s.p.Origins(s.at)); !ok || again != s.at {
			s.t.Fatalf("by its names %+v, %t, and it is %+v", again, ok, s.at)
		}
	}
}

// leadTo fails the test unless the steps lead to the states.
func leadTo(t *testing.T, p *Policy, walks map[string]string) {
	t.Helper()
	for words, want := range walks {
		s := &stroll{t, p, p.Initial()}
		s.steps(words)
		if got := p.StateName(s.at.State); got != want {
			t.Errorf("%s: in %s, want %s", words, got, want)
		}
	}
}

func TestReturns(t *testing.T) {
	p := parse(t, "p.yaml", []byte(helping))
	leadTo(t, p, map[string]string{
		"help back":                        "idle",
		"start help back":                  "building",
		"start ask answered":               "building",
		"start ask !give_up":               "building",
		"help again back":                  "idle", // it was in that state already, and has not entered it
		"start help ask answered":          "helping",
		"start help ask answered back":     "building", // to return is no entering that is remembered
		"help ask answered ask !give_up":   "helping",
		"help ask answered back start ask": "asking",
		"help back start help back done":   "idle",
	})
}

// Where a run can return to is part of where it stands, and nothing else that it did before is: so two runs that can do
// the same stand alike, and one that cannot return holds nothing.
func TestOriginsAreAllThatIsRemembered(t *testing.T) {
	p := parse(t, "p.yaml", []byte(helping))
	at := func(words string) Configuration {
		s := &stroll{t, p, p.Initial()}
		s.steps(words)
		return s.at
	}
	for _, same := range [][2]string{
		{"help back", ""},
		{"start help ask answered back", "start"},
		{"start help back ask", "start ask"},
		{"help ask answered", "help"},
	} {
		if at(same[0]) != at(same[1]) {
			t.Errorf("%q and %q differ: %v, %v", same[0], same[1], p.Origins(at(same[0])), p.Origins(at(same[1])))
		}
	}
	if at("help") == at("start help") || at("start ask") == at("start help ask") {
		t.Error("runs that return elsewhere stand alike")
	}
	if got := p.Origins(at("start help ask")); len(got) != 2 || got["asking"] != "helping" || got["helping"] != "building" {
		t.Errorf("origins: %v", got)
	}
	if got := p.Origins(at("start help ask answered back")); got != nil {
		t.Errorf("origins: %v", got)
	}
}

const helpingPart = `version: 1
initial: listen
states:
  listen: {tools: {more: {on_any: talk}}}
  talk: {tools: {less: {on_any: listen}, ok: {on_any: done}, look: {on_any: looking}}}
  looking: {tools: {seen: {on_any: {return: true}}}}
  done: {terminal: true}
`

const helpedByAPart = `version: 1
initial: idle
use: {help: help.yaml}
states:
  idle: {tools: {start: {on_any: building}, help: {on_any: helping}}}
  building: {tools: {help: {on_any: helping}, fin: {on_any: {terminal: true}}}}
  helping:
    part: help
    exits: {done: {return: true}}
    tools: {stop: {on_any: {return: true}}, again: {on_any: helping}}
`

// A part is returned from as a whole, from whichever of its states, and a state of it within the part.
func TestReturnsFromAPart(t *testing.T) {
	p, found := CompileParts("p.yaml", []byte(helpedByAPart), opener(map[string]string{"help.yaml": helpingPart}))
	if p == nil {
		t.Fatal(found)
	}
	leadTo(t, p, map[string]string{
		"help more ok":                              "idle",
		"start help more ok":                        "building",
		"start help stop":                           "building",
		"start help more again stop":                "building", // from within it is not entered
		"start help more look seen":                 "helping/talk",
		"start help more look seen less stop":       "building",
		"start help more look stop":                 "building",
		"start help more look again more look stop": "building",
	})
}

// A reload maps where a run came from as it maps where it is; what is gone is the initial state.
func TestReloadOfAnOrigin(t *testing.T) {
	old := parse(t, "old.yaml", []byte(helping))
	for _, c := range []struct{ name, walk, change, then, want string }{
		{"the same", "start help", "", "back", "building"},
		{"renamed origin", "start help", "building=making", "back", "making"},
		{"renamed state", "start help", "helping=helper", "back", "building"},
		{"renamed both of two", "start help ask", "helping=helper building=making", "answered back", "making"},
		{"origin is gone", "start help", "building=-", "back", "idle"},
		{"origin of the origin is gone", "start help ask", "building=-", "answered back", "idle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var renamed []string
			src := helping
			for change := range strings.FieldsSeq(c.change) {
				from, to, _ := strings.Cut(change, "=")
				src = strings.ReplaceAll(src, from, strings.Replace(to, "-", "other", 1))
				if to != "-" {
					renamed = append(renamed, from+": "+to)
				}
			}
			src = "renamed: {" + strings.Join(renamed, ", ") + "}\n" + src
			next := parse(t, "new.yaml", []byte(src))
			s := &stroll{t, old, old.Initial()}
			s.steps(c.walk)
			at, ok := next.Adopt(old, s.at)
			if !ok {
				t.Fatal("the run is stranded")
			}
			s.p, s.at = next, at
			s.steps(c.then)
			if got := next.StateName(s.at.State); got != c.want {
				t.Errorf("in %s, want %s", got, c.want)
			}
		})
	}
}

// A part that is renamed, or that a state becomes, is returned from as it was.
func TestReloadOfAReturningPart(t *testing.T) {
	compileWith := func(src string) *Policy {
		p, found := CompileParts("p.yaml", []byte(src), opener(map[string]string{"help.yaml": helpingPart}))
		if p == nil {
			t.Fatal(found)
		}
		return p
	}
	part := compileWith(helpedByAPart)
	renamed := compileWith("renamed: {helping: helper}\n" + strings.ReplaceAll(helpedByAPart, "helping", "helper"))
	state := parse(t, "p.yaml", []byte(helping))
	became := compileWith("renamed: {helping: helping}\n" + helpedByAPart)
	for _, c := range []struct {
		old, next        *Policy
		walk, then, want string
	}{
		{part, renamed, "start help more", "ok", "building"},
		{part, renamed, "start help", "stop", "building"},
		{state, became, "start help", "stop", "building"},
		{state, became, "start help", "more ok", "building"},
		{part, state, "start", "help back", "building"},
	} {
		s := &stroll{t, c.old, c.old.Initial()}
		s.steps(c.walk)
		at, ok := c.next.Adopt(c.old, s.at)
		if !ok {
			t.Fatalf("%s: the run is stranded", c.walk)
		}
		s.p, s.at = c.next, at
		s.steps(c.then)
		if got := c.next.StateName(s.at.State); got != c.want {
			t.Errorf("%s, %s: in %s, want %s", c.walk, c.then, got, c.want)
		}
	}
}

// A policy in which nothing returns remembers nothing, and its configurations take two words.
func TestNothingIsRememberedWithoutReturns(t *testing.T) {
	p := parse(t, "p.yaml", []byte(strings.NewReplacer("{return: true}", "idle").Replace(helping)))
	s := &stroll{t, p, p.Initial()}
	s.steps("start help ask")
	if s.at != (Configuration{State: s.at.State}) {
		t.Errorf("%+v", s.at)
	}
	if size := unsafe.Sizeof(s.at); size > 16 {
		t.Errorf("a configuration has %d bytes", size)
	}
}

// A clock returns as a call does, and enters what returns; in a part it leads to the part's exits.
func TestClocksReturn(t *testing.T) {
	p, found := compileFiles(map[string]string{
		"policy.yaml": "version: 1\ninitial: idle\nuse: {q: q.yaml}\nstates:\n  idle: {tools: {start: {on_any: busy}}}\n" +
			"  busy: {after: {1m: waiting}, tools: {ask: {on_any: asking}}}\n  waiting: {after: {1m: {return: true}}}\n" +
			"  asking: {part: q, exits: {late: {return: true}}}\n",
		"q.yaml": "version: 1\ninitial: open\nstates:\n  open: {after: {30s: late}, tools: [x]}\n  late: {terminal: true}\n",
	})
	if p == nil {
		t.Fatal(found)
	}
	s := &stroll{t, p, p.Initial()}
	expire := func(want string) {
		t.Helper()
		step, err := p.Expire(s.at)
		if s.at = step.To; err != nil || p.StateName(s.at.State) != want {
			t.Errorf("in %s, want %s: %v", p.StateName(s.at.State), want, err)
		}
	}
	s.steps("start")
	expire("waiting")
	expire("busy")
	s.steps("ask")
	expire("busy")
	p, found = compileFiles(map[string]string{"policy.yaml": "version: 1\ninitial: a\nstates:\n  a: {after: {1m: {return: true}}, tools: [x]}\n"})
	if p != nil || !strings.Contains(found.String(), "policy.yaml:4:7: error: return: runs begin in") {
		t.Errorf("a clock that returns from the initial state: %v", found)
	}
}

// A configuration is not made of names that the policy does not know as such.
func TestConfigurationOfOtherNames(t *testing.T) {
	p := parse(t, "p.yaml", []byte(helping))
	for _, c := range []struct {
		state   string
		returns map[string]string
		ok      bool
	}{
		{"idle", nil, true},
		{"helping", map[string]string{"helping": "idle"}, true},
		{"gone", nil, false},
		{"helping", map[string]string{"helping": "gone"}, false},
		{"helping", map[string]string{"idle": "building"}, false}, // nothing returns from it
		{"", nil, false},
	} {
		if _, ok := p.Configuration(c.state, false, c.returns); ok != c.ok {
			t.Errorf("%+v: %t", c, ok)
		}
	}
}
