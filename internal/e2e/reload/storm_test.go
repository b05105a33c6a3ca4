package reload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A wrong is a way in which a policy can be none.
type wrong struct {
	why  string
	fill func(path string) error // makes the file of a version's folder
}

// wrongs are all ways, each with an error of its own.
func wrongs() []wrong {
	all := []wrong{
		{"no YAML", file("version: 1\nstates: [home\n")},
		{"no policy", file(strings.Replace(version(0), "back: home", "back: hom", 1))},
		{"truncated", file(version(0)[:len(version(0))*2/3])},
		{"empty", file("")},
		{"too large", file(version(0) + strings.Repeat("# a long comment\n", 1<<16))},
		{"a loop of links", func(path string) error { return os.Symlink(filepath.Base(path), path) }},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o755) }},
		{"missing", func(string) error { return nil }},
	}
	if os.Geteuid() != 0 { // who can read all can read this
		all = append(all, wrong{"unreadable", func(path string) error { return os.WriteFile(path, nil, 0) }})
	}
	return all
}

// storm puts a number of policies in a row into a volume under load, every third of which is none, and some of which
// follow one another too fast to be seen.
func storm(t *testing.T, sessions, policies int) {
	v := newVolume(t, version(0))
	l := begin(t, sessions, v.path())
	bad := wrongs()
	put := func(content string) { v.swap(file(content)) }
	for i := 1; i <= policies; i++ {
		switch {
		case i%30 == 12:
			l.bad("nowhere", func() { v.Point("..gone") })
		case i%3 == 0:
			w := bad[i/3%len(bad)]
			l.bad(w.why, func() { v.swap(w.fill) })
		case i%20 < 4:
			l.good(put) // and do not wait
		default:
			l.good(put)
			l.arrived()
		}
		if i%25 == 0 {
			l.hangUp()
		}
	}
	l.good(put)
	l.settle()
}

// Through a volume that changes as the kubelet changes it, no call is lost and none is decided wrongly, whatever
// comes.
func TestKubelet(t *testing.T) {
	t.Parallel()
	storm(t, 8, 40)
}

// Nor when an editor saves the file in its own way.
func TestEditors(t *testing.T) {
	t.Parallel()
	edit(t, &editor{t: t, path: mcptest.WritePolicy(t, version(0))}, 8, 20)
}

// edit saves a number of policies in a row under load, each in the next of all ways.
func edit(t *testing.T, e *editor, sessions, policies int) {
	l := begin(t, sessions, e.path)
	saves := e.saves()
	for i := range policies {
		l.good(saves[i%len(saves)])
		l.arrived()
	}
	l.settle()
}
