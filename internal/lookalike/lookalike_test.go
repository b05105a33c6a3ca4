package lookalike_test

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/lookalike"
)

func TestIs(t *testing.T) {
	for name, want := range map[string]bool{
		"path": false, "Path": true, "PATH": true, "pat": false, "paths": false, "path\x00x": true,
	} {
		if got := lookalike.Is(name, "path"); got != want {
			t.Errorf("Is(%q, path) = %v", name, got)
		}
	}
	for _, name := range []string{"\u0131d", "\u0130D", "Id"} {
		if !lookalike.Is(name, "id") || lookalike.Fold(name) != lookalike.Fold("id") {
			t.Errorf("%q is not taken for id", name)
		}
	}
	if !lookalike.Is("\u212aey", "key") {
		t.Error("the sign of Kelvin is not taken for a k")
	}
}

// Who looks a name up by its fold misses none that Is finds.
func FuzzFoldFindsWhatIsFinds(f *testing.F) {
	f.Add("Path", "path")
	f.Add("\u0131d", "id")
	f.Add("path\x00", "path")
	f.Add("\u212aey", "key")
	f.Add("\u017f", "S")
	f.Fuzz(func(t *testing.T, name, key string) {
		if lookalike.Is(name, key) && lookalike.Fold(name) != lookalike.Fold(key) {
			t.Errorf("%q is taken for %q, and folds to %q, not %q", name, key, lookalike.Fold(name), lookalike.Fold(key))
		}
	})
}
