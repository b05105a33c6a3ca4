package guard_test

import (
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

type registers map[string]any

func (r registers) Register(name string) any { return r[name] }

type textSet struct {
	has    map[string]bool
	values []string
}

func setOf(values ...string) *textSet {
	s := &textSet{map[string]bool{}, values}
	for _, v := range values {
		s.has[v] = true
	}
	return s
}

func (s *textSet) Contains(text string) bool { return s.has[text] }
func (s *textSet) Len() int                  { return len(s.values) }
func (s *textSet) Values() []string          { return slices.Clone(s.values) }

// declared are the registers of the policy that tests compile for.
func declared() map[string]guard.Kind {
	return map[string]guard.Kind{
		"plan": guard.Text, "total": guard.Number, "done": guard.Boolean, "n": guard.Counter, "reads": guard.TextSet,
	}
}

func compile(t testing.TB, text string) *guard.Program {
	t.Helper()
	p, problems := guard.New(declared()).Guard(text)
	if p == nil {
		t.Fatalf("%s: %+v", text, problems)
	}
	return p
}
