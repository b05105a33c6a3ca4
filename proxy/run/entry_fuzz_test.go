package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// FuzzReadEntry reads entries of a journal that somebody has edited: what is read makes a run, or is an error.
func FuzzReadEntry(f *testing.F) {
	p := parse(f, remembering)
	f.Add([]byte(`{"type":"ended","time":"1970-01-01T00:16:40Z","from":"work","to":{"state":"work","policy":"d"},"set":[{"register":"calls","operation":"add","values":[1]}],"counted":[{"limit":"a","span":"hour","at_most":3}]}`))
	f.Add([]byte(`{"type":"reset","time":"1970-01-01T00:16:40Z","from":"planned","to":{"state":"work","policy":"d","complete":true,"stranded":"1970-01-01T00:16:40Z"},"set":[{"register":"reads","operation":"add","values":["a",null,[1]]},{"register":"plan","operation":"assign","values":[]}]}`))
	f.Add([]byte(`{"type":"checkpoint","time":"1970-01-01T00:16:40Z","from":"work","to":{"state":"work","policy":"d"},"remembers":{"moved":3,"memory":{"began":"1970-01-01T00:16:40Z","entered":"1970-01-01T00:16:40Z","registers":{"reads":["a"],"plan":null,"calls":2},"counts":{"time":"1970-01-01T00:16:42Z","counters":[{"limit":"x","span":"run","at_most":6,"count":1},{"limit":"","span":"hour","at_most":40,"ages":[2000000000,0]}],"taken":[{"counters":[1],"age":0}]}},"open":[{"seq":4,"entry":{"type":"begun","time":"1970-01-01T00:16:41Z","kind":"tool","name":"plan","turn":true,"from":"work","to":{"state":"work","policy":"d"},"set_unknown":[{"register":"calls","operation":"add","values":[1]}],"counted":[{"limit":"","span":"hour","at_most":40}]}}]}}`))
	f.Add([]byte(`{"type":"forked","time":"1970-01-01T00:16:40Z","from":"work","to":{"state":"work","policy":"d"},"parent":"R","fork":3,"remembers":{"memory":{"began":"1970-01-01T00:16:40Z","entered":"1970-01-01T00:16:40Z","registers":{"reads":["a"],"plan":null,"calls":2},"counts":{"time":"1970-01-01T00:16:42Z"}}}}`))
	f.Add([]byte(`{"type":"answered","time":"1970-01-01T00:16:40Z","kind":"tool","name":"read","rule":"test.yaml:6:5","from":"work","to":{"state":"work","policy":"d"},"answer":{"approval":"Q","said":"allow","until":"1970-01-01T00:17:40Z","policy":"d","next":"e","pattern":"pay","principal":{"issuer":"i","subject":"ann"},"digest":"0"}}`))
	const answered = `{"type":"answered","time":"1970-01-01T00:16:40Z","kind":"tool","name":"read","rule":"test.yaml:6:5","from":"work","to":{"state":"work","policy":"TO"},"answer":{"approval":"Q","said":"allow","until":"1970-01-01T00:17:40Z","policy":"BY","next":"NEXT","pattern":"pay","digest":"0"}}`
	f.Add([]byte(`{"type":"checkpoint","time":"1970-01-01T00:16:40Z","from":"work","to":{"state":"work","policy":"d"},"remembers":{"open":[{"seq":4,"entry":{"type":"begun","time":"1970-01-01T00:16:41Z","kind":"tool","name":"plan","from":"work","to":{"state":"work","policy":"e"}},` +
		`"answer":{"seq":3,"entry":` + strings.NewReplacer("TO", "f", "BY", "g", "NEXT", "h").Replace(answered) + `}}],"answers":[{"seq":2,"entry":` + strings.NewReplacer("TO", "i", "BY", "j", "NEXT", "k").Replace(answered) + `}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var asked []string
		e, err := run.ReadEntry(text, func(digest string) *policy.Policy {
			asked = append(asked, digest)
			return p
		})
		if err != nil {
			return
		}
		names, err := run.NamedPolicies(text)
		for _, digest := range asked {
			if err != nil || digest != "" && !slices.Contains(names, digest) {
				t.Fatalf("policy %q is not one of those named, %q, %v", digest, names, err)
			}
		}
		now := time.Unix(2000, 0)
		r := run.Replay(run.Config{Policy: p}, func(yield func(run.Entry) bool) { yield(e) }, now)
		r.Registers().AppendJSON(nil)
		r.Counts(now)
		r.Snapshot(now)
	})
}
