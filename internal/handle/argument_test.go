package handle_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
)

const added = `"fsm_run":{"type":"string","description":"The run that this call belongs to, as fsm_start_run returned it."}`

func TestAnArgumentIsAddedByInsertionsAlone(t *testing.T) {
	for _, x := range []struct{ schema, want string }{
		{`{}`, `{"properties":{` + added + `},"required":["fsm_run"]}`},
		{`{ "type":"object" }`, `{"properties":{` + added + `},"required":["fsm_run"], "type":"object" }`},
		{`{"type":"object","properties":{}}`, `{"required":["fsm_run"],"type":"object","properties":{` + added + `}}`},
		{`{"properties":{ "a":{"x":1e400} },"additionalProperties":false}`,
			`{"required":["fsm_run"],"properties":{` + added + `, "a":{"x":1e400} },"additionalProperties":false}`},
		{`{"required":["a"],"properties":{"a":true}}`, `{"required":["fsm_run","a"],"properties":{` + added + `,"a":true}}`},
		{`{"properties":{"a":true},"required":[ ]}`, `{"properties":{` + added + `,"a":true},"required":["fsm_run" ]}`},
		{`{"required":["a"]}`, `{"properties":{` + added + `},"required":["fsm_run","a"]}`},
		{`{"minProperties":1}`, `{"properties":{` + added + `},"required":["fsm_run"],"minProperties":1}`},
		{`{"$defs":{"a":{"$ref":"#/$defs/b"}}}`, `{"properties":{` + added + `},"required":["fsm_run"],"$defs":{"a":{"$ref":"#/$defs/b"}}}`},
		{`{"properties":{"$ref":{"type":"string"},"a":{"enum":["$ref","#"]}},"required":["a"]}`,
			`{"properties":{` + added + `,"$ref":{"type":"string"},"a":{"enum":["$ref","#"]}},"required":["fsm_run","a"]}`},
		{`{"patternProperties":{"^x-":{"type":"string"},"^fsm_runs":{}}}`,
			`{"properties":{` + added + `},"required":["fsm_run"],"patternProperties":{"^x-":{"type":"string"},"^fsm_runs":{}}}`},
		{`{"properties":{"n":{"oneOf":[{"propertyNames":{}}],"maxProperties":1}},"required":["n"]}`,
			`{"properties":{` + added + `,"n":{"oneOf":[{"propertyNames":{}}],"maxProperties":1}},"required":["fsm_run","n"]}`},
		{`{"properties":{"place":{"$ref":"https://example.com/geo.json"}},"required":[]}`,
			`{"properties":{` + added + `,"place":{"$ref":"https://example.com/geo.json"}},"required":["fsm_run"]}`},
		{`{"dependentRequired":{"a":["b"]}}`, `{"properties":{` + added + `},"required":["fsm_run"],"dependentRequired":{"a":["b"]}}`},
	} {
		got, reason := handle.AddArgument([]byte(tool(x.schema)), "fsm_run")
		if reason != handle.Fits || string(got) != tool(x.want) {
			t.Errorf("%s\n got %s (%s)\nwant %s", x.schema, got, reason, tool(x.want))
		}
	}
}

func tool(schema string) string {
	return ` {"name":"t","inputSchema": ` + schema + ` ,"_meta":{"n":12345678901234567890}}`
}

func TestWhereTheArgumentCannotBe(t *testing.T) {
	for _, x := range []struct {
		schema string
		want   handle.Reason
	}{
		{`true`, handle.NoSchema}, {`null`, handle.NoSchema}, {`[]`, handle.NoSchema},
		{`{},"inputSchema":{}`, handle.Ambiguous}, {`{},"inputschema":{}`, handle.Ambiguous}, {`{},"\u0069nputSchema":{}`, handle.Ambiguous},
		{`{"properties":{},"properties":{}}`, handle.Ambiguous}, {`{"required":[],"\u0072equired":["a"]}`, handle.Ambiguous},
		{`{"type":"array"}`, handle.NotObject}, {`{"type":["object","null"]}`, handle.NotObject}, {`{"type":null}`, handle.NotObject},
		{`{"properties":[]}`, handle.NotObject}, {`{"required":true}`, handle.NotObject}, {`{"patternProperties":true}`, handle.NotObject},
		{`{"$ref":"#/$defs/a"}`, handle.Reference}, {`{"$dynamicRef":"#a"}`, handle.Reference}, {`{"$recursiveRef":"#"}`, handle.Reference},
		{`{"properties":{"c":{"items":{"$ref":"#"}}}}`, handle.Recursive}, {`{"$defs":{"n":{"$ref":""}}}`, handle.Recursive},
		{`{"$anchor":"me","properties":{"c":{"$ref":"#me"}}}`, handle.Recursive},
		{`{"$id":"https://example.com/me","properties":{"c":{"$ref":"me"}}}`, handle.Recursive},
		{`{"properties":{"c":{"$ref":"#me"}},"$dynamicAnchor":"me"}`, handle.Recursive},
		{`{"properties":{"c":{"\u0024ref":"\u0023"}}}`, handle.Recursive},
		{`{"properties":{"c":{"$dynamicRef":"#/x"}}}`, handle.Recursive},
		{`{"allOf":[]}`, handle.Combined}, {`{"anyOf":[{}]}`, handle.Combined}, {`{"oneOf":[{}]}`, handle.Combined}, {`{"not":{}}`, handle.Combined},
		{`{"if":{}}`, handle.Combined}, {`{"then":{}}`, handle.Combined}, {`{"else":{}}`, handle.Combined},
		{`{"dependentSchemas":{}}`, handle.Combined}, {`{"dependencies":{}}`, handle.Combined},
		{`{"unevaluatedProperties":false}`, handle.Closed}, {`{"propertyNames":{}}`, handle.Closed}, {`{"maxProperties":9}`, handle.Closed},
		{`{"const":{}}`, handle.Closed}, {`{"enum":[{}]}`, handle.Closed},
		{`{"patternProperties":{".*":{"type":"number"}}}`, handle.Closed}, {`{"patternProperties":{"^fsm":{}}}`, handle.Closed},
		{`{"patternProperties":{"^x|run$":{}}}`, handle.Closed}, {`{"patternProperties":{"^fsmx*":{}}}`, handle.Closed},
		{`{"patternProperties":{"^fsmx{0}":{}}}`, handle.Closed}, {`{"patternProperties":{"^(x|y)":{}}}`, handle.Closed},
		{`{"patternProperties":{"":{}}}`, handle.Closed}, {`{"patternProperties":{"^a?fsm_run":{}}}`, handle.Closed},
		{`{"properties":{"fsm_run":{}}}`, handle.ArgumentTaken}, {`{"properties":{"FSM_Run":{}}}`, handle.ArgumentTaken},
		{`{"properties":{"f\u017fm_run":{}}}`, handle.ArgumentTaken}, {`{"properties":{"fsm_run\u0000x":{}}}`, handle.ArgumentTaken},
		{`{"required":["fsm_run"]}`, handle.ArgumentTaken}, {`{"dependentRequired":{"a":["fsm_run"]}}`, handle.ArgumentTaken},
		{`{"dependentRequired":{"fsm_run":["a"]}}`, handle.ArgumentTaken},
	} {
		if got, reason := handle.AddArgument([]byte(tool(x.schema)), "fsm_run"); reason != x.want || got != nil {
			t.Errorf("%s: %s, want %s", x.schema, reason, x.want)
		}
	}
	if _, reason := handle.AddArgument([]byte(`{"name":"t"}`), "fsm_run"); reason != handle.NoSchema {
		t.Errorf("a tool without an input schema: %s", reason)
	}
}

func TestReasonsHaveWordAndText(t *testing.T) {
	for r := handle.NoSchema; r <= handle.NameTaken; r++ {
		if r.String() == "" || !strings.HasPrefix(r.Text(), "it") && !strings.HasPrefix(r.Text(), "the proxy") {
			t.Errorf("reason %d: %q, %q", r, r, r.Text())
		}
	}
	if got := handle.Reason(99).String(); got != "Reason(99)" {
		t.Error(got)
	}
}

func TestNamesOfTheArgument(t *testing.T) {
	for _, name := range []string{"fsm_run", "run-id", "R2", strings.Repeat("x", 64)} {
		if err := handle.ValidArgument(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", "a.b", "ü", `"`, "$run", strings.Repeat("x", 65)} {
		if handle.ValidArgument(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

// FuzzAddArgument: what comes out is the tool that went in, and one required string
// argument more, whatever the tool was.
func FuzzAddArgument(f *testing.F) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, `{"required":[]}`, `{"properties":{ }}`, `{ }`,
		`{"properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"enum":["}"]}}}`, `{"\u0070roperties":{"\"":1},"x":[]}`,
	} {
		f.Add([]byte(tool(schema)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !(jsontext.Value(raw)).IsValid() || raw[0] != '{' {
			return
		}
		out, reason := handle.AddArgument(raw, "fsm_run")
		if reason != handle.Fits {
			return
		}
		var before, after map[string]any
		if json.Unmarshal(raw, &before) != nil {
			return
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		taken(t, after["inputSchema"].(map[string]any), before["inputSchema"].(map[string]any))
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s", raw, out)
		}
		if !subsequence(raw, out) {
			t.Fatalf("%s is not in %s", raw, out)
		}
	})
}

// taken takes the argument out of a schema, as it was put in.
func taken(t *testing.T, after, before map[string]any) {
	properties, required := after["properties"].(map[string]any), after["required"].([]any)
	if got := properties["fsm_run"].(map[string]any)["type"]; got != "string" || required[0] != "fsm_run" {
		t.Fatalf("%v", after)
	}
	delete(properties, "fsm_run")
	if _, there := before["properties"]; !there {
		delete(after, "properties")
	}
	if _, there := before["required"]; there {
		after["required"] = required[1:]
	} else {
		delete(after, "required")
	}
}

// subsequence reports whether out is raw with bytes put in.
func subsequence(raw, out []byte) bool {
	for _, c := range out {
		if len(raw) > 0 && raw[0] == c {
			raw = raw[1:]
		}
	}
	return len(raw) == 0
}
