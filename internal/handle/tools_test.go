package handle_test

import (
	"encoding/json/v2"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
)

// definition is what a client reads of a tool.
type definition struct {
	Name, Title, Description string
	InputSchema              any
	OutputSchema             any
	Annotations              map[string]bool
}

func defined(t *testing.T, raw []byte) (d definition) {
	t.Helper()
	if err := json.Unmarshal(raw, &d, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return d
}

// fits checks a result's structured content against the tool's own output schema.
func fits(t *testing.T, tool, result []byte) (text string) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("x:y", defined(t, tool).OutputSchema); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("x:y")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Content           []struct{ Type, Text string } `json:"content"`
		StructuredContent any                           `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &r, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	if err := schema.Validate(r.StructuredContent); err != nil {
		t.Errorf("%s: %v", result, err)
	}
	return r.Content[0].Text
}

func TestResultsFitTheToolsOwnSchemas(t *testing.T) {
	life := handle.Lifetime{Idle: time.Hour, Age: 48 * time.Hour}
	run := handle.Run{Handle: "r\"1", State: "planning", Expires: time.Unix(0, 0)}
	text := fits(t, handle.Start("run_id", life), handle.Started("run_id", run, life, "Allowed now: a."))
	const want = `Run started. Give run_id "r"1" with every call. ` +
		`It ends when it has not been used for 1 hour, and at the latest 2 days after it began. Allowed now: a.`
	if text != want {
		t.Error(text)
	}
	fits(t, handle.Start("run_id", handle.Lifetime{}), handle.Started("run_id", handle.Run{}, handle.Lifetime{}, ""))
	fits(t, handle.Again(), handle.StartedAgain("planning", ""))
	fits(t, handle.End("run_id"), handle.Ended())
	fits(t, handle.List("run_id"), handle.Listed("run_id", nil))
	text = fits(t, handle.List("run_id"), handle.Listed("run_id", []handle.Run{run, {Complete: true}}))
	if !strings.Contains(text, `"expires_at":"1970-01-01T00:00:00Z"`) {
		t.Error(text)
	}
}

func TestTheDescriptionSaysTheLifetime(t *testing.T) {
	for _, x := range []struct {
		life handle.Lifetime
		want string
	}{
		{handle.Lifetime{Idle: time.Hour, Age: 24 * time.Hour}, "A run ends when it has not been used for 1 hour, and at the latest 1 day after it began."},
		{handle.Lifetime{Idle: 90 * time.Second}, "A run ends when it has not been used for 90 seconds."},
		{handle.Lifetime{Age: 36 * time.Hour}, "A run ends 36 hours after it began."},
		{handle.Lifetime{Age: 1500 * time.Millisecond}, "A run ends 1.5s after it began."},
		{handle.Lifetime{}, "A run ends when fsm_end_run is called."},
	} {
		d := defined(t, handle.Start("fsm_run", x.life))
		if !strings.HasSuffix(d.Description, x.want) || !strings.Contains(d.Description, "handle, fsm_run,") {
			t.Error(d.Description)
		}
	}
}

func TestTheToolsAreNamedAndTakeWhatTheySay(t *testing.T) {
	for _, raw := range [][]byte{handle.Start("fsm_run", handle.Lifetime{}), handle.Again(), handle.End("fsm_run"), handle.List("fsm_run")} {
		if d := defined(t, raw); !handle.Own(d.Name) || d.Title == "" || len(d.Annotations) != 4 {
			t.Errorf("%s", raw)
		}
	}
	if handle.Own("fsm_run") || handle.Own("FSM_START_RUN") {
		t.Error("only these names are its own")
	}
	if _, reason := handle.AddArgument(handle.End("fsm_run"), "fsm_run"); reason != handle.ArgumentTaken {
		t.Error(reason)
	}
}
