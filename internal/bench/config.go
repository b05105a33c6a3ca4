package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sections that are no path of calls.
const (
	listsSection = "lists"
	idleSection  = "idle"
	// sidecarSection is what a sidecar holds when it is idle, and adds to a start.
	sidecarSection = "sidecar"
	// reloadSection is measured in this process: the tree's proxy, not a binary.
	reloadSection = "reload"
	// runsSection is likewise, in the modern era: many runs that live at a time.
	runsSection = "runs"
	// storeSection is runs that are kept: in this process, and over HTTP.
	storeSection = "store"
	// replicasSection is runs that are kept by two processes that share a database.
	replicasSection = "replicas"
)

// listPaths are where tools/list is measured against ping.
var listPaths = []path{stdioToStdio, httpToJSON}

// config is what the flags say.
type config struct {
	paths    []string // sections
	callers  []int
	subjects []string // empty: all
	plan     plan
	payload  int
	modern   bool // the era of the protocol
	procs    int  // of the load, and of the upstream
	bare     bool // the HTTP upstream is
	sessions int
	runs     int
	binary   string       // "": build it
	others   []proxyBuild // further builds, name and binary
	flags    []string     // of `fsm-proxy run`
	postgres string       // URL of a new database, "": none
	output   string       // file, "" for standard output alone
}

// sections are all values of -paths, in the order of the report.
func sections() []string {
	return append(callSections(), listsSection, idleSection, sidecarSection, reloadSection, runsSection, storeSection, replicasSection)
}

// callSections are those that there are in both eras: the others ask by sessions, or
// for pings.
func callSections() []string {
	var all []string
	for _, p := range allPaths {
		all = append(all, p.String())
	}
	return all
}

func given(flags *flag.FlagSet, name string) (there bool) {
	flags.Visit(func(f *flag.Flag) { there = there || f.Name == name })
	return there
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	paths := flags.String("paths", strings.Join(sections(), ","), "what to measure")
	callers := flags.String("callers", "1,32,64", "numbers of callers")
	subjects := flags.String("subjects", "", "measure only these: direct, nginx, ReverseProxy, pipe, mcp-go, streamhttp, fsm-proxy")
	flags.IntVar(&c.plan.rounds, "rounds", 5, "interleaved rounds")
	flags.DurationVar(&c.plan.window.measure, "window", time.Second, "a subject's turn in a round")
	short := flags.Bool("short", false, "two rounds of short windows at 1 and 32 callers")
	flags.IntVar(&c.payload, "payload", 32, "bytes of text in a call and its answer")
	era := flags.String("era", "legacy", "the era of the protocol that load and upstream speak: legacy or modern")
	flags.IntVar(&c.procs, "procs", 1, "processors (GOMAXPROCS) of the load and of the upstream; more make both dearer")
	upstream := flags.String("upstream", standardUpstream, "what the HTTP upstream is made of: "+standardUpstream+", or "+bareUpstream+" connections")
	flags.IntVar(&c.sessions, "sessions", 2000, "idle sessions")
	flags.IntVar(&c.runs, "runs", 100_000, "live runs, under a reload and under calls, and kept ones")
	flags.StringVar(&c.binary, "fsm-proxy", "", "measure this binary instead of building one")
	flags.Func("with", "NAME=BINARY: measure another build of fsm-proxy besides (again for more)", c.addBuild)
	extra := flags.String("proxy-flags", "", "further flags of `fsm-proxy run`, separated by spaces")
	flags.StringVar(&c.postgres, "postgres", "", "the URL of a new database of PostgreSQL, to measure runs that are kept there, and replicas in databases beside it")
	flags.StringVar(&c.output, "o", "", "write the report to this file as well")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("reading the command line: unexpected %q", flags.Args())
	}
	if *era != "legacy" && *era != "modern" {
		return c, fmt.Errorf("reading -era: %q is neither legacy nor modern", *era)
	}
	if c.bare = *upstream == bareUpstream; !c.bare && *upstream != standardUpstream {
		return c, fmt.Errorf("reading -upstream: %q is neither %s nor %s", *upstream, standardUpstream, bareUpstream)
	}
	if c.modern = *era == "modern"; c.modern && !given(flags, "paths") {
		*paths = strings.Join(callSections(), ",")
	}
	if *short {
		c.plan.rounds, c.plan.window.measure, c.sessions, *callers = 2, 400*time.Millisecond, 500, "1,32"
	}
	c.plan.warmUp = min(c.plan.window.measure, 400*time.Millisecond)
	c.plan.window.settle = c.plan.window.measure / 10
	c.paths, c.subjects, c.flags = list(*paths), list(*subjects), strings.Fields(*extra)
	return c, errors.Join(c.setCallers(*callers), c.validate())
}

func (c *config) addBuild(value string) error {
	name, binary, ok := strings.Cut(value, "=")
	if !ok || name == "" || binary == "" {
		return fmt.Errorf("want NAME=BINARY, got %q", value)
	}
	c.others = append(c.others, proxyBuild{name: name, binary: binary})
	return nil
}

func (c *config) setCallers(text string) error {
	for _, word := range list(text) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 256 {
			return fmt.Errorf("reading -callers: %q is no number from 1 to 256", word)
		}
		c.callers = append(c.callers, n)
	}
	return nil
}

func (c *config) validate() error {
	for _, p := range c.paths {
		if !slices.Contains(sections(), p) {
			return fmt.Errorf("reading -paths: %q is none of %s", p, strings.Join(sections(), ", "))
		}
	}
	if c.plan.rounds < 1 || c.plan.rounds > 1000 || c.plan.window.measure < 50*time.Millisecond || c.plan.window.measure > time.Minute {
		return errors.New("reading the command line: -rounds is from 1 to 1000, -window from 50ms to 1m")
	}
	if c.procs < 1 || c.procs > 64 {
		return errors.New("reading the command line: -procs is from 1 to 64")
	}
	if c.runs < 10 || c.runs > 1_000_000 {
		return errors.New("reading the command line: -runs is from 10 to 1000000")
	}
	if c.payload < 16 || c.payload > 1<<20 || c.sessions < 10 || c.sessions > 100_000 {
		return errors.New("reading the command line: -payload is from 16 to 1048576, -sessions from 10 to 100000")
	}
	return nil
}

// list splits at commas; "" has no element.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// takes reports whether a subject is to be measured.
func (c *config) takes(name string) bool {
	return len(c.subjects) == 0 || slices.Contains(c.subjects, name)
}
