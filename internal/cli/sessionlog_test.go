package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// sessionLine is a line of the log with the session that it belongs to.
var sessionLine = regexp.MustCompile(`fsm-proxy: (session begun|refused): session=([0-9a-f]+) .*`)

// Where there are several clients each line of the log says whose it is, and
// where that client is, without the session's id, which is as good as a key.
func TestLogTellsSessionsApart(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	url, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--"}, u.Command()...)...)
	var ids []string
	for _, tool := range []string{"first", "second"} {
		s, w := mcptest.DialWeb(t, url)
		s.Initialize()
		s.Tool(tool, "")
		p.Log().Await(t, "tool="+tool)
		ids = append(ids, w.ID())
	}
	log := p.Log().String()
	found := sessionLine.FindAllStringSubmatch(log, -1)
	if len(found) != 4 || found[0][2] != found[1][2] || found[2][2] != found[3][2] || found[0][2] == found[2][2] {
		t.Fatalf("not two sessions of two lines each:\n%s", log)
	}
	contains(t, found[0][0], "remote=127.0.0.1:")
	contains(t, found[3][0], "tool=second")
	for _, id := range ids {
		if strings.Contains(log, id) {
			t.Errorf("the log has the session id %s", id)
		}
	}
}
