package policy

import (
	"regexp"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// Anyone stands for all that may ask: what is for somebody is for them.
var Anyone = &guard.Who{Subject: "anyone"}

// Audience is a condition on who asks: what for says.
type Audience struct {
	*guard.Program
	Place Place
}

// What for is compiled to: see syntax.
const values = `\[((?:"(?:[^"\\]|\\.)*"|[^\]"])*)\]`

// forms are what each is compiled to, and how a policy says it.
var forms = sync.OnceValue(func() [3]form {
	return [3]form{
		{regexp.MustCompile(`\(type\(who\.claims\[("(?:[^"\\]|\\.)*")\]\) == list \? who\.claims\["(?:[^"\\]|\\.)*"\]\.exists\(v, v in ` + values + `\) : who\.claims\["(?:[^"\\]|\\.)*"\] in ` + values + `\)`), "claim $1: $2"},
		{regexp.MustCompile(`who\.scopes\.exists\(s, s in ` + values + `\)`), "scope $1"},
		{regexp.MustCompile(`who\.(subject|issuer) in ` + values), "$1 $2"},
	}
})

type form struct {
	compiled *regexp.Regexp
	said     string
}

// AudienceText writes what for is compiled to, or a clause of it, as a policy says it: subject "ada", "bob" && scope "x".
func AudienceText(compiled string) string {
	for _, x := range forms() {
		compiled = x.compiled.ReplaceAllString(compiled, x.said)
	}
	return compiled
}

// Audience returns to whom a state binds anything; none: to all.
func (p *Policy) Audience(s State) []Audience {
	if !p.has(s) {
		return nil
	}
	return p.states[s].audience
}

// fits reports whether who asks, nil for nobody who is known, is among those that all of some
// conditions hold for.
func fits(who *guard.Who, all ...Audience) bool {
	if len(all) == 0 || who == Anyone {
		return true
	}
	var call guard.Call
	if who != nil {
		call.Who = *who
	}
	return !slices.ContainsFunc(all, func(a Audience) bool { ok, _ := a.Holds(&call); return !ok })
}

// fits is isFor where whom something is for matters.
func (p *Policy) fits(s State, b *Binding, who *guard.Who) bool {
	if who == Anyone {
		return true
	}
	if !fits(who, p.states[s].audience...) {
		return false
	}
	for a := range b.Alternatives() {
		if fits(who, a.For...) {
			return true
		}
	}
	return false
}
