// Package steps plays tests of policies, as they are written in *.test.yaml, against a run: step by step what is
// asked for, what the upstream answers, and where the run is then.
package steps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// File is a file of tests.
type File struct {
	Version int
	Policy  string // the policy's file
	Tests   []Test
}

// Test is one run, from its beginning.
type Test struct {
	Name  string
	Steps []Step
}

// Step is something that is asked for, or time that passes, and what comes of it.
type Step struct {
	Tool, Resource, Prompt, Signal string // one of them: what is asked for

	Args    map[string]any
	From    string         // agent or operator, of a signal; "" is agent
	Answer  any            // success, error, unknown, or {result: …}; none is success
	Refused string         // the code; "": it is let go
	State   string         // in which the run is then; "": not looked at
	Set     map[string]any `yaml:"registers"` // which the run has then, among others
	Lists   []string       // the tools that are bound by name and listed then; nil: not looked at
	Wait    time.Duration  // what passes
}

// Parse reads a file of tests.
func Parse(text []byte) (f File, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return f, err
	}
	if f.Version != 1 || len(f.Tests) == 0 {
		return f, fmt.Errorf("version %d and %d tests; want version 1, and tests", f.Version, len(f.Tests))
	}
	return f, nil
}

// ParseSteps reads the steps of one test.
func ParseSteps(text []byte) (s []Step, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return s, d.Decode(&s)
}

// Play plays all tests of a file, each in a run of its own.
func Play(t *testing.T, p *policy.Policy, f File) {
	t.Helper()
	for _, test := range f.Tests {
		t.Run(test.Name, func(t *testing.T) {
			now := time.Unix(1_000_000, 0)
			r := run.New(run.Config{Policy: p, Shared: &run.Shared{Patience: time.Hour}}, now)
			for i, s := range test.Steps {
				now = passes(&r, now, s.Wait)
				if err := s.play(&r, now); err != nil {
					t.Fatalf("step %d (%s): %v", i+1, s.name(), err)
				}
			}
		})
	}
}

// passes lets time pass, in which clocks move the run when they are due.
func passes(r *run.Run, now time.Time, wait time.Duration) time.Time {
	end := now.Add(wait)
	for range 1000 {
		due, ok := r.Due()
		if !ok || due.After(end) {
			break
		}
		r.Expire(due)
	}
	return end
}

func (s *Step) name() string { return s.Tool + s.Resource + s.Prompt + s.Signal }

func (s *Step) kind() policy.Kind {
	switch {
	case s.Resource != "":
		return policy.Resource
	case s.Prompt != "":
		return policy.Prompt
	case s.Signal != "":
		return policy.Signal
	}
	return policy.Tool
}

// play asks, answers, and compares.
func (s *Step) play(r *run.Run, now time.Time) error {
	if s.name() != "" {
		if err := s.ask(r, now); err != nil {
			return err
		}
	}
	at := r.Snapshot(now)
	if s.State != "" && at.State() != s.State {
		return fmt.Errorf("the run is in %s, want %s", at.State(), s.State)
	}
	if s.Lists != nil {
		if got := at.Exact(policy.Tool); !sameNames(got, s.Lists) {
			return fmt.Errorf("listed are %q, want %q", got, s.Lists)
		}
	}
	return s.compareRegisters(r)
}

func (s *Step) ask(r *run.Run, now time.Time) error {
	from := policy.Agent
	if s.From == policy.Operator.String() {
		from = policy.Operator
	}
	raw := []byte("{}")
	if s.Args != nil {
		var err error
		if raw, err = json.Marshal(s.Args); err != nil {
			return err
		}
	}
	c := &run.Call{Request: run.Request{Kind: s.kind(), Name: s.name(), From: from, Listed: true, Known: true, Arguments: arguments{raw, s.Args}}}
	admission, _ := r.Enter(c, 1, now)
	switch {
	case admission != run.Admitted && s.Refused == "":
		return fmt.Errorf("refused: %s (%v)", c.Verdict.Code, c.Verdict.Fault())
	case admission != run.Admitted && c.Verdict.Code.String() != s.Refused:
		return fmt.Errorf("refused: %s, want %s", c.Verdict.Code, s.Refused)
	case admission != run.Admitted:
		return nil
	}
	if s.Refused == "" {
		end, err := s.end()
		if err != nil {
			return err
		}
		_, _, err = r.Settle(c, end, now)
		if c.Verdict.Turn {
			r.Pass(c, now)
		}
		return err
	}
	return fmt.Errorf("let go, want it refused: %s", s.Refused)
}

// end is what comes of the call.
func (s *Step) end() (run.End, error) {
	switch answer := s.Answer.(type) {
	case nil:
		return run.End{Outcome: policy.Success, Result: []byte(`{}`)}, nil
	case string:
		for _, o := range []policy.Outcome{policy.Success, policy.Error, policy.Unknown} {
			if o.String() == answer {
				result := map[policy.Outcome][]byte{policy.Success: []byte(`{}`), policy.Error: []byte(`{"isError":true}`)}[o]
				return run.End{Outcome: o, Result: result}, nil
			}
		}
		return run.End{}, fmt.Errorf("answer: %q is none of success, error or unknown", answer)
	case map[string]any:
		result, is := answer["result"].(map[string]any)
		if !is || len(answer) > 1 {
			break
		}
		raw, err := json.Marshal(result)
		if result["isError"] == true {
			return run.End{Outcome: policy.Error, Result: raw}, err
		}
		return run.End{Outcome: policy.Success, Result: raw}, err
	}
	return run.End{}, fmt.Errorf("answer: write success, error, unknown or {result: …}, not %v", s.Answer)
}

func (s *Step) compareRegisters(r *run.Run) error {
	var has map[string]any
	if err := json.Unmarshal(r.Registers().AppendJSON(nil), &has); err != nil {
		return err
	}
	for name, value := range s.Set {
		want, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if got, _ := json.Marshal(has[name]); !bytes.Equal(got, want) {
			return fmt.Errorf("register %s is %s, want %s", name, got, want)
		}
	}
	return nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// arguments are those of a step, which are clear to everybody.
type arguments struct {
	raw   []byte
	value map[string]any
}

// JSON returns the object that they are.
func (a arguments) JSON() []byte { return a.raw }

// At returns the argument at a path.
func (a arguments) At(path []string) (policy.Argument, bool) {
	var value any = a.value
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch value := value.(type) {
	case string:
		return policy.Text(value), false
	case bool, int, float64:
		return policy.Literal(fmt.Sprint(value)), false
	}
	return policy.Argument{}, false
}
