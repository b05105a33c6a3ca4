// Package suite plays files of tests of policies, and prints what became of them, as fsm-proxy test does.
package suite

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/play"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Config says what is played, and what is said of it.
type Config struct {
	Verbose     bool    // the tests that pass are printed, too
	Only        string  // a regular expression of the names of tests; "": all
	JUnit       string  // the file of a JUnit report; "": none
	Coverage    bool    // what no test has seen is printed
	MinCoverage float64 // in percent
}

// suite is the tests of one file, as they were played.
type suite struct {
	file    string
	tests   []played
	failure error // it was not played
}

type played struct {
	name     string
	place    strictyaml.Place
	failures []play.Failure
}

// failed is how many tests have failed.
func (s *suite) failed() (n int) {
	for _, t := range s.tests {
		if len(t.failures) > 0 {
			n++
		}
	}
	return n
}

// tester plays files of tests.
type tester struct {
	*Config
	only    *regexp.Regexp
	covered []*policyCoverage // a policy each, in the order of its first tests
}

type policyCoverage struct {
	path   string
	policy *policy.Policy
	*play.Coverage
}

// Run plays the tests in files and folders. Its error is exit.ErrReported where one of them failed.
func (f *Config) Run(out io.Writer, args []string) error {
	if len(args) == 0 {
		return exit.Usagef("no tests to play; give files or folders: fsm-proxy test FILE")
	}
	if f.MinCoverage < 0 || f.MinCoverage > 100 {
		return exit.Usagef("--min-coverage %v is no percentage; give one from 0 to 100", f.MinCoverage)
	}
	only, err := regexp.Compile(f.Only)
	if err != nil {
		return exit.Usagef("--run: %v", err)
	}
	files, err := testFiles(args)
	if err != nil {
		return err
	}
	t := tester{Config: f, only: only}
	var suites []suite
	ok, count := true, 0
	for _, file := range files {
		s := t.play(file)
		suites = append(suites, s)
		ok, count = ok && s.failure == nil && s.failed() == 0, count+len(s.tests)
		t.write(out, &s)
	}
	ok = t.writeCoverage(out) && ok
	if f.JUnit != "" {
		if err := writeJUnit(f.JUnit, suites); err != nil {
			return err
		}
	}
	switch {
	case !ok:
		return exit.ErrReported
	case count == 0:
		return exit.Usagef("no test's name matches --run %q", f.Only)
	}
	return nil
}

// testFiles are the files that are named, and those of tests in folders.
func testFiles(args []string) (files []string, err error) {
	for _, path := range args {
		if !policyfile.IsFolder(path) {
			files = append(files, path)
			continue
		}
		var in []string
		for _, ending := range []string{"yaml", "yml"} {
			some, err := filepath.Glob(filepath.Join(escapeGlob(path), "*.test."+ending))
			if err != nil {
				return nil, fmt.Errorf("reading tests in %s: %w", path, err)
			}
			in = append(in, some...)
		}
		if len(in) == 0 {
			return nil, exit.Usagef("%s holds no *.test.yaml", path)
		}
		files = append(files, in...)
	}
	return files, nil
}

// escapeGlob writes a path as a pattern that stands for it.
func escapeGlob(path string) string {
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(path)
}

// play reads and plays the tests of one file.
func (t *tester) play(path string) suite {
	s := suite{file: path}
	src, err := os.ReadFile(path)
	if err != nil {
		s.failure = err
		return s
	}
	file, found := play.Read(path, src)
	if s.failure = found.Err(); file == nil {
		return s
	}
	covered, err := t.of(filepath.Join(filepath.Dir(path), file.Policy.Value), file.Policy.Value)
	if err != nil {
		s.failure = err
		return s
	}
	for i := range file.Tests {
		if test := &file.Tests[i]; t.only.MatchString(test.Name) {
			s.tests = append(s.tests, played{test.Name, test.Place, file.Play(covered.policy, test, covered.Coverage)})
		}
	}
	return s
}

// of returns the coverage of a policy, which is that of all files that test it.
func (t *tester) of(path, written string) (*policyCoverage, error) {
	if filepath.IsAbs(written) {
		path = written
	}
	for _, c := range t.covered {
		if c.path == path {
			return c, nil
		}
	}
	p, _, err := policyfile.Load(path)
	if err != nil {
		return nil, err
	}
	t.covered = append(t.covered, &policyCoverage{path, p, play.NewCoverage(p)})
	return t.covered[len(t.covered)-1], nil
}

// write says what became of a file's tests.
func (t *tester) write(w io.Writer, s *suite) {
	if s.failure != nil {
		fmt.Fprintf(w, "FAIL  %s\n%s\n", strictyaml.Printable(s.file), indented(s.failure.Error()))
		return
	}
	for _, x := range s.tests {
		switch {
		case len(x.failures) > 0:
			fmt.Fprintf(w, "--- FAIL: %s\n", strictyaml.Printable(x.name))
		case t.Verbose:
			fmt.Fprintf(w, "--- ok: %s\n", strictyaml.Printable(x.name))
		}
		for _, failure := range x.failures {
			fmt.Fprintf(w, "    %s\n", located(s.file, failure))
		}
	}
	if n := s.failed(); n > 0 {
		fmt.Fprintf(w, "FAIL  %s  %d of %s\n", strictyaml.Printable(s.file), n, tests(len(s.tests)))
		return
	}
	fmt.Fprintf(w, "ok    %s  %s\n", strictyaml.Printable(s.file), tests(len(s.tests)))
}

// tests is a number of tests in words.
func tests(n int) string {
	if n == 1 {
		return "1 test"
	}
	return fmt.Sprintf("%d tests", n)
}

func located(file string, f play.Failure) string {
	return fmt.Sprintf("%s:%d:%d: %s", strictyaml.Printable(file), f.Place.Line, f.Place.Column, f.Text)
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// writeCoverage says how much of each policy was seen, and reports whether it is enough.
func (t *tester) writeCoverage(w io.Writer) bool {
	ok := true
	for _, c := range t.covered {
		seen, all := c.Counts()
		short := ""
		if c.Percent() < t.MinCoverage {
			ok, short = false, fmt.Sprintf(", less than %v%%", t.MinCoverage)
		}
		fmt.Fprintf(w, "coverage: %.1f%% of %s, %d of %d states, edges, sides of guards and answers%s\n", c.Percent(), strictyaml.Printable(c.path), seen, all, short)
		if short == "" && !t.Coverage {
			continue
		}
		for _, missing := range c.Missing() {
			fmt.Fprintf(w, "    %s\n", strictyaml.Printable(missing))
		}
	}
	return ok
}

// The form of a JUnit report, as far as those who read it agree on it.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		File    string     `xml:"file,attr"`
		Line    int        `xml:"line,attr,omitempty"`
		Failure *junitText `xml:"failure"`
		Error   *junitText `xml:"error"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(path string, suites []suite) error {
	var report junitReport
	for _, s := range suites {
		out := junitSuite{Name: s.file, Tests: len(s.tests), Failures: s.failed()}
		if s.failure != nil {
			out.Tests, out.Errors = 1, 1
			out.Cases = []junitCase{{Name: s.file, Class: s.file, File: s.file, Error: &junitText{"the tests were not played", s.failure.Error()}}}
		}
		for _, t := range s.tests {
			x := junitCase{Name: t.name, Class: s.file, File: s.file, Line: t.place.Line}
			if len(t.failures) > 0 {
				x.Failure = &junitText{Message: t.failures[0].Text}
				for _, failure := range t.failures {
					x.Failure.Text += located(s.file, failure) + "\n"
				}
			}
			out.Cases = append(out.Cases, x)
		}
		report.Tests, report.Failures, report.Errors = report.Tests+out.Tests, report.Failures+out.Failures, report.Errors+out.Errors
		report.Suites = append(report.Suites, out)
	}
	text, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the JUnit report: %w", err)
	}
	if err := os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644); err != nil {
		return fmt.Errorf("writing the JUnit report: %w", err)
	}
	return nil
}
