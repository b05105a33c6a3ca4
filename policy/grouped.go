package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// lacksUnknown is what a finding about a tool without on_unknown begins with, behind
// the tool's name, for one and for several.
const (
	lacksUnknown = ` leads on and has no "on_unknown"`
	lackUnknown  = ` lead on and have no "on_unknown"`
	noOnUnknown  = "no-on-unknown"
)

// Grouped returns findings for people to read: those about tools without
// on_unknown that say the same of several names are one, at the place of the first.
func Grouped(all Findings) Findings {
	type group struct {
		level Level
		tail  string
	}
	groups := map[group][]int{}
	for i, f := range all {
		if tail, ok := strings.CutPrefix(f.Message, strictyaml.Quote(f.Subject)+lacksUnknown); ok && f.Code == noOnUnknown {
			groups[group{f.Level, tail}] = append(groups[group{f.Level, tail}], i)
		}
	}
	out, told := slices.Clone(all), map[int]bool{}
	for g, members := range groups {
		if len(members) > 1 {
			out[members[0]].Message = together(all, members) + g.tail
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
func together(all Findings, members []int) string {
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
		return strictyaml.Quote(names[0]) + where + lacksUnknown
	}
	return strictyaml.And(names) + where + lackUnknown
}

func appendNew(all []string, text string) []string {
	if slices.Contains(all, text) {
		return all
	}
	return append(all, text)
}
