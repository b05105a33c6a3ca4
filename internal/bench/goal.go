package main

import (
	"fmt"
	"math"
)

// goal is one of the design's targets (section 8): a figure of fsm-proxy's
// build against a limit, judged at one number of callers.
type goal struct {
	path    path
	what    string
	callers int // where it is judged
	atLeast bool
	target  float64
	figure  func(c *cell, build string) float64
	lists   bool // judged by the cell in which lists are asked for
}

// goals are those that a cell's samples show. Answers as a stream have none.
func goals() []goal {
	rate, cpu, p50 := sample.rate, sample.cpuPerCall, sample.p50Micros
	lists := fmt.Sprintf("p50 of tools/list (%d) ÷ of ping", toolCount)
	against := func(limit string) func(*cell, string) float64 {
		return func(c *cell, build string) float64 { return c.ratio(build, limit, rate) }
	}
	perCPU := func(c *cell, build string) float64 { return c.ratio(typedProxy, build, cpu) }
	addedToPipe := func(c *cell, build string) float64 { return c.addedRatio(build, copyingPipe) }
	listed := func(c *cell, build string) float64 {
		return c.ratio(build+" "+askList.String(), build+" "+askPing.String(), p50)
	}
	all := []goal{
		{httpToJSON, lists, 1, false, 2, listed, true},
		{stdioToStdio, "calls/s ÷ the pipe's", 32, true, 0.5, against(copyingPipe), false},
		{stdioToStdio, "added p50 ÷ the pipe's", 1, false, 2, addedToPipe, false},
		{httpToStdio, "calls/s ÷ streamhttp's", 32, true, 0.6, against(cannedServer), false},
		{httpToJSON, "calls/s ÷ nginx's", 32, true, 0.6, against(nginx), false},
		{httpToJSON, "calls/s ÷ ReverseProxy's", 32, true, 1.25, against(reverseProxy), false},
		{httpToJSON, "CPU a call ÷ ReverseProxy's", 32, false, 0.7, func(c *cell, build string) float64 { return c.ratio(build, reverseProxy, cpu) }, false},
	}
	for _, p := range []path{stdioToStdio, httpToStdio, httpToJSON} {
		all = append(all, goal{p, "calls per CPU second ÷ mcp-go's", 32, true, 2.5, perCPU, false})
	}
	return all
}

// verdict is a figure's place against a target: "yes", "NO", or "–" where
// there is no figure.
func verdict(figure, target float64, atLeast bool) string {
	switch {
	case math.IsNaN(figure):
		return "–"
	case figure == target, (figure > target) == atLeast:
		return "yes"
	}
	return "NO"
}

func targetText(target float64, atLeast bool) string {
	if atLeast {
		return fmt.Sprintf("≥ %g", target)
	}
	return fmt.Sprintf("≤ %g", target)
}
