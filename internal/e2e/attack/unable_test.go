package attack

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A client is asked for nothing that it has not said it can give: the server's question is declined, and the call is
// answered, whatever other clients of the same run can do.
func TestClientIsNotAskedForWhatItCannot(t *testing.T) {
	t.Parallel()
	for _, front := range []way{web, webPipe} {
		t.Run(front.client+" to "+front.upstream, func(t *testing.T) {
			t.Parallel()
			r := alone(t, front.under(asking))
			unable := r.beside()
			unable.Modern(mcptest.Modern{Capabilities: "{}"})
			if answer := unable.Tool("elicit", `{}`); strings.Contains(answer.String(), "input_required") || !denied(answer.String()) {
				t.Errorf("answered %s", answer)
			}
			if q := r.asked("elicit", `{}`); !strings.Contains(r.reply(q, "honest").String(), "honest") {
				t.Error("who can is not asked")
			}
		})
	}
}
