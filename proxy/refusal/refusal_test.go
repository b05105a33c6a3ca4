package refusal

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

const source = `version: 1
initial: planning
states:
  planning:
    description: Look first.
    tools: {read_file: , set: {by: mode, cases: {plan: done, stay: }}}
  done: {tools: {apply: planning}}
`

func asked(t *testing.T, a Asked) *Asked {
	t.Helper()
	p, findings := policy.Parse("test.yaml", []byte(source))
	if p == nil {
		t.Fatal(findings)
	}
	a.At, a.Renews = run.Snapshot{Policy: p, At: p.Initial(), Shut: a.At.Shut, Lapsed: a.At.Lapsed}, "A new run begins tomorrow."
	return &a
}

func some() *surface.Allowed {
	return &surface.Allowed{Tools: []string{"read_file", "set"}, Resources: []string{}, Prompts: []string{"plan"}}
}

// TestTexts are what each code says, and what it says where nothing of the policy is told.
func TestTexts(t *testing.T) {
	const now, gone = " Allowed now: read_file, set. Use tools/list to see them.", " The policy was changed and has this run's state no more. A new run begins tomorrow."
	const here = "state 'planning' (Look first.)"
	for _, tt := range []struct {
		asked          Asked
		message, error string // that a client reads
		opaque         string // the code in an opaque one
	}{
		{Asked{Code: policy.InvalidTransition}, "Tool 'apply' is not allowed in " + here + "." + now, "invalid_transition", "not_available"},
		{Asked{Code: policy.UnknownAction}, "Tool 'apply' is unknown here, in " + here + " and everywhere else." + now, "unknown_action", "not_available"},
		{Asked{Code: policy.UnknownCase, Name: "set"}, "Tool 'set' is not allowed in " + here + " unless 'mode' is one of these texts: plan, stay." + now, "unknown_case", "not_available"},
		{Asked{Code: policy.StoreUnavailable}, "Tool 'apply' was not sent: what becomes of it cannot be kept now. Nothing was done; try again later." + now, "store_unavailable", "store_unavailable"},
		{Asked{Code: policy.StoreUnavailable, At: run.Snapshot{Shut: true}}, "Tool 'apply' was not sent: what is kept of this run is not what was written, and nothing is allowed in it. An operator has to look at it." + now, "store_unavailable", "store_unavailable"},
		{Asked{Code: policy.StoreUnavailable, At: run.Snapshot{Shut: true, Lapsed: true}}, "Tool 'apply' was not sent: another process has this run now, or may have it soon. Nothing was done; try again." + now, "store_unavailable", "store_unavailable"},
		{Asked{Code: policy.Busy}, "Tool 'apply' was not sent: another call that moves the state is under way. Try again when it has ended." + now, "busy", "busy"},
		{Asked{Code: policy.RunComplete}, "Tool 'apply' is not allowed: the run is complete (state 'planning'). A new run begins tomorrow.", "run_complete", "not_available"},
		{Asked{Code: policy.ValidationFailed, Reason: "n is missing."}, "n is missing." + now, "validation_failed", "validation_failed"},
		{Asked{Code: policy.OutcomeUnknown, Reason: "It was sent.", Lost: true}, "It was sent. State is now 'planning'." + now, "outcome_unknown", "outcome_unknown"},
		{Asked{Code: policy.UpstreamUnavailable, Reason: "It is gone.", Lost: true}, "It is gone. State is now 'planning'." + now, "upstream_unavailable", "upstream_unavailable"},
		{Asked{Code: policy.DefinitionChanged, Changes: lock.Changes{lock.Unlocked}}, "Tool 'apply' is held back: it is not in the lock file. An operator must look at it and run 'fsm-proxy lock'." + now, "definition_changed", "not_available"},
		{Asked{Code: policy.TaskRunning}, "Tool 'apply' was not sent: a task was still running. It has ended now: look again at what is allowed." + now, "task_running", "task_running"},
		{Asked{Code: policy.TaskRunning, Task: "t\n1", TaskOf: "set"}, `Tool 'apply' was not sent: the task 't\n1' of 'set' is still running, and its end decides what comes next. Ask tasks/get about it, or wait.` + now, "task_running", "task_running"},
		{Asked{Code: policy.NotAvailable}, "Tool 'apply' is not allowed in " + here + "." + gone, "not_available", "not_available"},
		{Asked{Code: policy.NotAvailable, Outlived: true}, "Tool 'apply' was not sent: the run began anew while it waited." + now, "not_available", "not_available"},
		{Asked{Code: policy.NotAvailable, Misfit: handle.Combined}, "Tool 'apply' is out of reach here: a call of it cannot say which run it belongs to, because " +
			handle.Combined.Text() + ". An operator can choose another run key, principal or path." + now, "not_available", "not_available"},
	} {
		if tt.asked.Name == "" {
			tt.asked.Name = "apply"
		}
		a := asked(t, tt.asked)
		opaque := a.Refusal()
		want := tt.asked.Reason
		if want == "" {
			want = "Tool '" + a.Name + "' is not available."
		}
		if opaque.Message != want || opaque.Error != tt.opaque || opaque.State != "" || opaque.ValidNext != nil || opaque.ValidNextActions != nil {
			t.Errorf("opaque: got %+v, want %s: %s", opaque, tt.opaque, want)
		}
		a.Allowed = some()
		if r := a.Refusal(); r.Message != tt.message || r.Error != tt.error || r.State != "planning" {
			t.Errorf("got  %s: %s\nwant %s: %s", r.Error, r.Message, tt.error, tt.message)
		}
	}
}

// TestNothingOfItsKind names the tools, where there are any.
func TestNothingOfItsKind(t *testing.T) {
	for _, tt := range []struct {
		kind    policy.Kind
		allowed surface.Allowed
		want    string
	}{
		{policy.Resource, *some(), " Allowed now: no resources, but these tools: read_file, set. Use tools/list to see them."},
		{policy.Prompt, *some(), " Allowed now: plan. Use prompts/list to see them."},
		{policy.Prompt, surface.Allowed{Resources: []string{"r"}}, " Allowed now: nothing."},
	} {
		a := asked(t, Asked{Code: policy.InvalidTransition, Kind: tt.kind, Name: "x", Allowed: &tt.allowed})
		if r := a.Refusal(); !strings.HasSuffix(r.Message, tt.want) {
			t.Errorf("got %s", r.Message)
		}
	}
}

// TestDidYouMean names what is close, and only where the name may be wrong.
func TestDidYouMean(t *testing.T) {
	for name, want := range map[string]string{
		"read_fil": "read_file", "readfile": "read_file", "raed_file": "read_file", "rdfl": "", "sat": "set", "st": "set", "xyz": "", "": "", "apply": "",
		strings.Repeat("r", 1<<20): "",
	} {
		a := asked(t, Asked{Code: policy.UnknownAction, Name: name, Allowed: some()})
		r := a.Refusal()
		if r.DidYouMean != want || strings.Contains(r.Message, "Did you mean '"+want+"'?") != (want != "") {
			t.Errorf("%.20q: got %q: %s", name, r.DidYouMean, r.Message)
		}
		if a.Code = policy.Busy; a.Refusal().DidYouMean != "" {
			t.Errorf("%.20q: meant otherwise, when it was only too early", name)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"same", "same", 0}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("from %q to %q are %d steps, got %d", tt.a, tt.b, tt.want, got)
		}
	}
}

// TestAnswers are refusals in the form that each request has.
func TestAnswers(t *testing.T) {
	const object = `{"error":"busy","requested":"n","message":"No."`
	tool := func(head, members string) string {
		return `{"jsonrpc":"2.0","id":7,"result":{` + head + `"content":[{"type":"text","text":"No."}],` + members + `"_meta":{"fsm-proxy/refusal":` + object + `}}}}`
	}
	failure := func(code int, more string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"error":{"code":%d,"message":"No.","data":%s%s}}}`, code, object, more)
	}
	for _, tt := range []struct {
		what    string
		request Request
		want    string
	}{
		{"tool", Request{Result: true}, tool("", `"isError":true,"structuredContent":`+object+`},`)},
		{"tool, plain", Request{Result: true, Form: Plain}, tool("", `"structuredContent":`+object+`},`)},
		{"tool, opaque", Request{Result: true, Form: Opaque}, tool("", `"isError":true,`)},
		{"tool with an outputSchema", Request{Result: true, Schema: true}, tool("", `"isError":true,`)},
		{"lost", Request{Result: true, Lost: true}, tool("", `"isError":true,"structuredContent":`+object+`},`)},
		{"stateless", Request{Result: true, Client: bridge.Stateless, Schema: true}, tool(`"resultType":"complete",`, `"isError":true,`)},
		{"tool, as a task", Request{}, failure(wire.CodeInvalidParams, "")},
		{"prompt", Request{Kind: policy.Prompt}, failure(wire.CodeInvalidParams, "")},
		{"prompt, lost", Request{Kind: policy.Prompt, Lost: true}, failure(wire.CodeInternal, "")},
		{"resource", Request{Kind: policy.Resource}, failure(wire.CodeResourceNotFound, "")},
		{"resource, lost", Request{Kind: policy.Resource, Lost: true}, failure(wire.CodeInternal, "")},
		{"resource, stateless", Request{Kind: policy.Resource, Client: bridge.Stateless}, failure(wire.CodeInvalidParams, `,"uri":"n"`)},
	} {
		tt.request.ID = []byte("7")
		r := &Refusal{Error: "busy", Requested: "n", Message: "No."}
		if got := string(r.Answer(tt.request)); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.what, got, tt.want)
		}
	}
}

// TestAnswersAreJSON, whatever the client has called what it wants.
func TestAnswersAreJSON(t *testing.T) {
	for _, name := range []string{"", "\"", "\xff\xfe", "a\n\x1b[31m", strings.Repeat("é", 500)} {
		a := asked(t, Asked{Code: policy.InvalidTransition, Name: name, Allowed: some()})
		for _, q := range []Request{{ID: []byte("1"), Result: true}, {ID: []byte("1")}} {
			var v any
			if raw := a.Refusal().Answer(q); json.Unmarshal(raw, &v) != nil {
				t.Errorf("%q: %s", name, raw)
			}
		}
	}
}

// TestAskedFor is what a request asks for by a name.
func TestAskedFor(t *testing.T) {
	for request, want := range map[string]string{
		`"tools/call","params":{"name":"n"}`:                                       "tool n",
		`"resources/read","params":{"uri":"u"}`:                                    "resource u",
		`"prompts/get","params":{"name":"n"}`:                                      "prompt n",
		`"completion/complete","params":{"ref":{"type":"ref/resource","uri":"u"}}`: "resource u",
		`"completion/complete","params":{"ref":{"type":"ref/prompt","name":"n"}}`:  "prompt n",
		`"completion/complete"`:                                                    "", `"tools/list"`: "", `"resources/subscribe","params":{"uri":"u"}`: "",
	} {
		m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":`+request+`}`), wire.FromClient)
		if err != nil {
			t.Fatal(request, err)
		}
		if k, name, ok := AskedFor(m); ok != (want != "") || ok && k.String()+" "+name != want {
			t.Errorf("%s: got %s %q, %v", request, k, name, ok)
		}
	}
}

// TestUnanswered says why no answer came, and after how long in as few letters as there are.
func TestUnanswered(t *testing.T) {
	lost := func(err error) error { return &wire.CallError{Sent: true, Err: err} }
	for _, tt := range []struct {
		err       error
		patience  time.Duration
		why, flag string
	}{
		{errors.New("odd"), time.Hour, "no readable answer came (odd)", ""},
		{lost(errors.New("odd")), time.Hour, "no readable answer came (odd)", ""},
		{lost(ErrGivenUp), time.Hour, "no answer came in 1h", " (--call-timeout)"},
		{lost(ErrGivenUp), 5 * time.Minute, "no answer came in 5m", " (--call-timeout)"},
		{lost(ErrGivenUp), 90*time.Second + time.Microsecond, "no answer came in 1m30s", " (--call-timeout)"},
		{lost(ErrGivenUp), 10 * time.Second, "no answer came in 10s", " (--call-timeout)"},
		{lost(run.ErrUnwritten), time.Hour, "what became of it could not be written to the store in time", " (--store-timeout)"},
		{lost(run.ErrLeft), time.Hour, "what became of it could not be kept, since another process has this run now, or may have it soon", ""},
		{lost(ErrBrokenOff), time.Hour, "no answer came before the proxy had to end", ""},
	} {
		if why, flag := Unanswered(tt.err, PatienceFor(tt.patience, 0)); why != tt.why || flag != tt.flag {
			t.Errorf("%v: got %s%s", tt.err, why, flag)
		}
	}
}

// TestForms are read as they are written, and no others.
func TestForms(t *testing.T) {
	for want, word := range forms {
		f := Form(99)
		if err := f.UnmarshalText([]byte(word)); err != nil || f != Form(want) {
			t.Errorf("%s: %d, %v", word, f, err)
		}
		if back, err := f.MarshalText(); err != nil || string(back) != word {
			t.Errorf("%s is written %s, %v", word, back, err)
		}
	}
	if err := new(Form).UnmarshalText([]byte("Error")); err == nil || !strings.Contains(err.Error(), "error") {
		t.Errorf("a word of no form: %v", err)
	}
}
