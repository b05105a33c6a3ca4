package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

const noOnUnknown = "no-on-unknown"

// What messages say of their findings' subjects.
var (
	lacksUnknown   = predicate{` leads on and has no "on_unknown"`, ` lead on and have no "on_unknown"`}
	outOfReach     = predicate{` is out of reach under the run key "handle"`, ` are out of reach under the run key "handle"`}
	refusedByPin   = predicate{` is refused by "pin: refuse"`, ` are refused by "pin: refuse"`}
	differsFromPin = predicate{` is not what was locked`, ` are not what was locked`}
)

// predicate is what a message says behind its finding's subject: behind one, and behind
// several.
type predicate struct{ one, many string }

// groupable are the codes of findings that may become one, with the predicates of their
// messages.
var groupable = map[string][]predicate{
	noOnUnknown: {lacksUnknown}, "no-handle": {outOfReach},
	"not-locked": {refusedByPin, differsFromPin}, "definition-changed": {refusedByPin, differsFromPin},
}

// eachOf turns the rest of a message about one name into one about several.
var eachOf = strings.NewReplacer(": it ", ": each ", ": its ", ": the ")

// Grouped returns findings for people to read: those that say the same of several
// names in one file are one, at the place of the first.
func Grouped(all policy.Findings) policy.Findings {
	type group struct {
		level            policy.Level
		file, code, tail string
		predicate        predicate
	}
	groups := map[group][]int{}
	for i, f := range all {
		for _, of := range groupable[f.Code] {
			if tail, ok := strings.CutPrefix(f.Message, strictyaml.Quote(f.Subject)+of.one); ok {
				g := group{f.Level, f.File, f.Code, tail, of}
				groups[g] = append(groups[g], i)
			}
		}
	}
	out, merged := slices.Clone(all), map[int]bool{}
	for g, members := range groups {
		if len(members) > 1 {
			out[members[0]].Message = together(all, members, g.predicate) + eachOf.Replace(g.tail)
			for _, i := range members[1:] {
				merged[i] = true
			}
		}
	}
	kept := out[:0]
	for i, f := range out {
		if !merged[i] {
			kept = append(kept, f)
		}
	}
	return kept
}

// together returns the beginning of one sentence about the subjects of several findings.
func together(all policy.Findings, members []int, of predicate) string {
	var names, lines []string
	for _, i := range members {
		names = appendNew(names, all[i].Subject)
		lines = appendNew(lines, strconv.Itoa(all[i].Line))
	}
	where := ""
	if len(lines) > 1 {
		if len(lines) > strictyaml.MostNames {
			lines = append(lines[:strictyaml.MostNames], "…")
		}
		where = " (lines " + strings.Join(lines, ", ") + ")"
	}
	if len(names) == 1 {
		return strictyaml.Quote(names[0]) + where + of.one
	}
	return strictyaml.And(names) + where + of.many
}

// appendNew appends a text that is not among all yet.
func appendNew(all []string, text string) []string {
	if slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}
