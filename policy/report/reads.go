package report

import (
	"regexp"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// readPath is what expressions read, as far as it is named by plain words: in front of an index it ends.
var readPath = regexp.MustCompile(`^(args|result\.structuredContent)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(?:$|\[)`)

// checkRead compares what expressions of a binding read with what the items declare which it binds: of arguments in
// their inputSchema, of results in their outputSchema.
func (m *matcher) checkRead(b *policy.Binding, items []Offer) {
	for a := range b.Alternatives() {
		for _, g := range a.Guards {
			m.checkReads("when", g.Place, g.Program, b.Kind, items)
		}
		for _, x := range a.Outcomes {
			m.checkReads("outcomes", x.Place, x.Program, b.Kind, items)
		}
		for _, o := range a.AllOutcomes() {
			for _, x := range a.Sets(o) {
				for _, v := range x.Values {
					m.checkReads("set", x.Place, v, b.Kind, items)
				}
			}
		}
	}
}

func (m *matcher) checkReads(what string, at policy.Place, p *guard.Program, k policy.Kind, items []Offer) {
	then := "a call without it is refused"
	if what == "outcomes" {
		then = "a success without it is unknown"
	}
	declares := func(o Offer) func([]string) Argument { return o.Argument }
	m.checkDeclared(p.Reads().Args, p, items, declares, func(name string, lacking, others []string) {
		m.r.Add(policy.LevelWarning, at, "unknown-argument", "%s: no argument %s is declared by %s, and %s%s",
			what, strictyaml.Quote(name), upstreams(k, lacking), then, m.suggest(name, others))
	})
	declares = func(o Offer) func([]string) Argument { return o.Result }
	m.checkDeclared(p.Reads().Result, p, items, declares, func(name string, lacking, others []string) {
		m.r.Add(policy.LevelWarning, at, "unknown-result", "%s: no %s is declared in the outputSchema of %s, and a success without it is unknown%s",
			what, strictyaml.Quote(name), upstreams(k, lacking), m.suggest(name, others))
	})
}

// checkDeclared tells of each path that an expression reads, and does not ask for, which items do not declare it.
func (m *matcher) checkDeclared(paths []string, p *guard.Program, items []Offer, declares func(Offer) func([]string) Argument, tell func(name string, lacking, others []string)) {
	for _, path := range paths {
		match := readPath.FindStringSubmatch(path)
		if match == nil || strings.Contains(p.String(), "has("+match[1]+match[2]+")") {
			continue
		}
		name := match[2][1:]
		var lacking, others []string
		for _, o := range items {
			if declared := declares(o); declared != nil {
				if x := declared(strings.Split(name, ".")); x.Undeclared || x.Refused {
					lacking, others = append(lacking, o.Name), append(others, x.Others...)
				}
			}
		}
		if len(lacking) > 0 {
			tell(name, lacking, others)
		}
	}
}
