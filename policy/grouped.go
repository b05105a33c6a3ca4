package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

const noOnUnknown = "no-on-unknown"

// What is said of a finding's subject, for one subject and for several.
var (
	lacksUnknown   = saying{` leads on and has no "on_unknown"`, ` lead on and have no "on_unknown"`}
	outOfReach     = saying{` is out of reach under the run key "handle"`, ` are out of reach under the run key "handle"`}
	refusedByPin   = saying{` is refused by "pin: refuse"`, ` are refused by "pin: refuse"`}
	differsFromPin = saying{` is not what was locked`, ` are not what was locked`}
)

type saying struct{ one, many string }

// groupable are the codes of findings that may be told as one.
var groupable = map[string][]saying{
	noOnUnknown: {lacksUnknown}, "no-handle": {outOfReach},
	"not-locked": {refusedByPin, differsFromPin}, "definition-changed": {refusedByPin, differsFromPin},
}

// eachOf makes a sentence about one name one about each of several.
var eachOf = strings.NewReplacer(": it ", ": each ", ": its ", ": the ")

// Grouped returns findings for people to read: those that say the same of several
// names are one, at the place of the first.
func Grouped(all Findings) Findings {
	type group struct {
		level      Level
		code, tail string
		saying     saying
	}
	groups := map[group][]int{}
	for i, f := range all {
		for _, says := range groupable[f.Code] {
			if tail, ok := strings.CutPrefix(f.Message, strictyaml.Quote(f.Subject)+says.one); ok {
				g := group{f.Level, f.Code, tail, says}
				groups[g] = append(groups[g], i)
			}
		}
	}
	out, told := slices.Clone(all), map[int]bool{}
	for g, members := range groups {
		if len(members) > 1 {
			out[members[0]].Message = together(all, members, g.saying) + eachOf.Replace(g.tail)
			for _, i := range members[1:] {
				told[i] = true
			}
		}
	}
	kept := out[:0]
	for i, f := range out {
		if !told[i] {
			kept = append(kept, f)
		}
	}
	return kept
}

// together is the beginning of one sentence about the subjects of several findings.
func together(all Findings, members []int, says saying) string {
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
		return strictyaml.Quote(names[0]) + where + says.one
	}
	return strictyaml.And(names) + where + says.many
}

func appendNew(all []string, text string) []string {
	if slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}
