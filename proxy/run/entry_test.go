package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// What stands in a journal is read by others, and after a restart: it is as it is here.
func TestEntryAsItIsKept(t *testing.T) {
	w := begin(t, remembering)
	check := func(e run.Entry, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		text, err := e.AppendJSON([]byte("["))
		want = strings.ReplaceAll(want, "DIGEST", e.To.Policy.Digest())
		if string(text) != "["+want || err != nil {
			t.Errorf("%s, %v\n%s", text, err, want)
		}
	}
	e, err := w.result(w.with("read", `{"path":"a"}`, policy.CodeNone), policy.Success, `{}`)
	check(e, err, `{"type":"ended","time":"1970-01-01T00:16:40Z","kind":"tool","name":"read","outcome":"success","rule":"test.yaml:11:7","from":"work","to":{"state":"work","policy":"DIGEST"},"set":[{"register":"reads","operation":"add","values":["a"]}]}`)
	w.now = w.now.Add(1500 * time.Millisecond)
	e, err = w.result(w.with("plan", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"id":"p7"}}`)
	check(e, err, `{"type":"ended","time":"1970-01-01T00:16:41.5Z","kind":"tool","name":"plan","outcome":"success","rule":"test.yaml:14:7","from":"work","to":{"state":"planned","policy":"DIGEST"},"changed":true,"set":[{"register":"plan","operation":"assign","values":["p7"]}]}`)
	check(w.Annotate(run.Remark{Who: "admin|olga", Text: "fine"}, w.now).Entries[0], nil, `{"type":"annotated","time":"1970-01-01T00:16:41.5Z","from":"planned","to":{"state":"planned","policy":"DIGEST"},"who":"admin|olga","text":"fine"}`)
	check(w.Finish(run.Remark{Who: "admin|olga", Text: "why"}, w.now).Entries[0], nil, `{"type":"finished","time":"1970-01-01T00:16:41.5Z","from":"planned","to":{"state":"planned","policy":"DIGEST"},"who":"admin|olga","reason":"why"}`)
	check(w.Restart(w.now).Entries[0], nil, `{"type":"reset","time":"1970-01-01T00:16:41.5Z","from":"planned","to":{"state":"work","policy":"DIGEST"}}`)
}

// An entry that is none, or that tells of what its policy does not have, is an error.
func TestEntriesThatAreNone(t *testing.T) {
	p := parse(t, remembering)
	policies := func(digest string) *policy.Policy {
		if digest == "d" {
			return p
		}
		return nil
	}
	const good = `{"type":"ended","time":"1970-01-01T00:16:40Z","from":"work","to":{"state":"work","policy":"d"},"set":[{"register":"calls","operation":"add","values":[1]}],"counted":[{"limit":"a","span":"hour","at_most":3}]}`
	if _, err := run.ReadEntry([]byte(good), policies); err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]string{
		{`"ended"`, `"ending"`}, {`"ended"`, `""`}, {`"ended"`, `1`}, {`"state":"work"`, `"state":"gone"`}, {`"policy":"d"`, `"policy":"e"`}, {`"add"`, `"append"`},
		{`[1]`, `[1.5]`}, {`[1]`, `["1"]`}, {`[1]`, `[1e300]`}, {`[1]`, `[true]`}, {`"add","values":[1]`, `"assign","values":[]`}, {`"add"`, `"empty"`}, {`"calls"`, `"plan"`}, {`"hour"`, `"week"`}, {`}]}`, `}]`}, {`"time":"1970`, `"time":"x`}, {`"from":`, `"type":"reset","from":`},
	} {
		bad := strings.Replace(good, x[0], x[1], 1)
		if e, err := run.ReadEntry([]byte(bad), policies); err == nil || bad == good {
			t.Errorf("%s: %+v", bad, e)
		}
	}
}
