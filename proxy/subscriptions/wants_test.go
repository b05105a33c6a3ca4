package subscriptions

import (
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func TestLevelsCoverWhatIsAsSevere(t *testing.T) {
	for _, row := range []struct {
		asked, level string
		covers       bool
	}{
		{"debug", "debug", true}, {"debug", "emergency", true}, {"error", "warning", false}, {"error", "alert", true},
		{"", "emergency", false}, {"loud", "emergency", false}, {"debug", "loud", false},
	} {
		if got := Covers(row.asked, row.level); got != row.covers {
			t.Errorf("%q covers %q: %v", row.asked, row.level, got)
		}
	}
}

// A session's level is raised by what is more verbose, and by nothing else.
func TestLevelIsRaised(t *testing.T) {
	var w Wants
	if !w.Logs("debug") {
		t.Error("who has asked for no level gets what comes")
	}
	for _, row := range []struct {
		level  string
		raised bool
	}{{"loud", false}, {"error", true}, {"alert", false}, {"error", false}, {"info", true}} {
		if got := w.Raise(row.level); got != row.raised {
			t.Errorf("%s raised: %v", row.level, got)
		}
	}
	if w.Logs("debug") || !w.Logs("info") {
		t.Error("it is not at info")
	}
}

// A new connection is asked again for what the last one was asked for.
func TestWhatIsAskedAgain(t *testing.T) {
	var w Wants
	for _, uri := range []string{"a", "b"} {
		if entered, ok := w.enter(uri, 2); !entered || !ok {
			t.Errorf("%s: entered %v, room %v", uri, entered, ok)
		}
	}
	if entered, ok := w.enter("a", 2); entered || !ok {
		t.Error("a is there")
	}
	if _, ok := w.enter("c", 2); ok {
		t.Error("there is no room for c")
	}
	w.Asked("a")
	w.Asked("c")
	w.SetLevel(wire.Made([]byte(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)))
	var again []string
	for _, m := range w.again() {
		again = append(again, m.Method+" "+m.P.URI+m.P.Level)
	}
	if want := []string{"logging/setLevel info", "resources/subscribe a"}; !slices.Equal(again, want) {
		t.Errorf("again %v, want %v", again, want)
	}
	w.Leave("a")
	if w.Has("a") || !w.Has("b") || w.hasAsked("b") {
		t.Error("b alone is wanted, and was not asked for")
	}
}

func TestFollow(t *testing.T) {
	var w Wants
	follow := func(uris ...string) []string {
		changed := w.Follow(func() []string { return uris })
		slices.Sort(changed)
		return changed
	}
	for _, row := range [][2][]string{{{"a", "b"}, {"a", "b"}}, {{"b", "c"}, {"a", "c"}}, {{"b", "c"}, nil}, {nil, {"b", "c"}}} {
		if got := follow(row[0]...); !slices.Equal(got, row[1]) {
			t.Errorf("%v: changed %v, want %v", row[0], got, row[1])
		}
	}
}
