package report

import (
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// quoted writes the name of a case for a message: a text in quotes, which tell it from a
// number and a boolean.
func quoted(c *policy.Case) string {
	if c.Value.Kind() == policy.TextValue && !strings.HasPrefix(c.Name, `"`) {
		return strictyaml.Quote(c.Name)
	}
	return strictyaml.Printable(c.Name)
}

// checkCases notes cases that do not mean what they meant before they could be globs,
// numbers and booleans, and warns of globs over what something executes.
func (c *checker) checkCases() {
	for b := range c.p.Bindings() {
		if len(b.Path) > 1 {
			c.r.Add(policy.LevelNote, b.ByPlace, "dotted-by", "by: %s is a path: member %s of %s; it was one argument of that very name before, which cannot be named any more",
				strictyaml.Quote(b.By), strictyaml.Quote(b.Path[len(b.Path)-1]), strictyaml.Quote(strings.Join(b.Path[:len(b.Path)-1], ".")))
		}
		for i := range b.Cases {
			c.checkCase(&b.Cases[i])
		}
		c.checkExecuted(b)
	}
}

// checkCase notes a case that could be meant as another.
func (c *checker) checkCase(x *policy.Case) {
	switch {
	case x.Glob:
		c.r.Add(policy.LevelNote, x.Place, "glob-case", "case %s is a glob: * stands for any text; it was that text alone before", quoted(x))
	case x.Doubtful:
		c.r.Add(policy.LevelNote, x.Place, "plain-case", "case %s is a text, though YAML reads it as none; quote it, or write the value as JSON does", strictyaml.Printable(x.Name))
	case x.Value.Kind() == policy.NumberValue, x.Value.Kind() == policy.BooleanValue:
		c.r.Add(policy.LevelNote, x.Place, "plain-case", "case %s is a %s, as it has no quotes; it was a text before: quote it if that is meant", strictyaml.Printable(x.Name), x.Value.Kind())
	}
}

// executed are the names of arguments that a shell or an interpreter reads.
var executed = []string{"command", "cmd", "script", "code"}

// checkExecuted warns of globs over an argument that is executed.
func (c *checker) checkExecuted(b *policy.Binding) {
	if len(b.Path) == 0 || !slices.Contains(executed, b.Path[len(b.Path)-1]) {
		return
	}
	for i := range b.Cases {
		if x := &b.Cases[i]; x.Glob && !x.None && !readsWords(x, b.By) {
			c.r.Add(policy.LevelWarning, x.Place, "executed-glob", "case %s matches more than one command: a shell goes on behind \";\", \"&&\", \"|\" or a line break, and all of that is the star's text; list each %s whole",
				quoted(x), b.Path[len(b.Path)-1])
		}
	}
}

// readsWords reports whether every alternative of a case looks at the words of an argument: it is
// one plain command then.
func readsWords(x *policy.Case, by string) bool {
	return !slices.ContainsFunc(x.Alternatives, func(a policy.Alternative) bool {
		return !slices.ContainsFunc(a.Guards, func(g policy.Guard) bool { return strings.Contains(g.String(), "words(args."+by+")") })
	})
}
