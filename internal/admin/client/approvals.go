package client

import (
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/visible"
)

// Approvals are the calls that wait.
type Approvals struct {
	Items []admin.Approval `json:"items"`
	// Absent are the processes that have not said which they have.
	Absent []string `json:"absent"`
}

// approvalsText is a line for each call that waits.
func approvalsText(all Approvals) string {
	var b strings.Builder
	if len(all.Items) == 0 {
		b.WriteString("no call waits for an approval\n")
	}
	for _, x := range all.Items {
		fmt.Fprintf(&b, "%s\n", strictyaml.Printable(fmt.Sprintf("%s  run %s  %s %s  until %s", x.ID, x.Run, x.Kind, x.Name, x.Expires.Format(time.RFC3339))))
	}
	for _, x := range all.Absent {
		fmt.Fprintf(&b, "%s\n", strictyaml.Printable("not listed is what waits in "+x+": it did not answer in time"))
	}
	return b.String()
}

// approvalText is a call that waits in lines, with its arguments as the proxy has escaped them.
func approvalText(x admin.Approval) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, strictyaml.Printable(value))
		}
	}
	line("approval", x.ID)
	line("run", x.Run)
	line("state", x.State)
	line("seq", fmt.Sprint(x.Seq))
	line(x.Kind, x.Name)
	line("who", x.Who)
	line("message", x.Message)
	line("rule", x.Rule)
	line("expires", x.Expires.Format(time.RFC3339))
	for _, part := range []struct {
		name string
		json jsontext.Value
	}{{"registers", jsontext.Value(x.Registers)}, {"arguments", jsontext.Value(x.Arguments)}} {
		if part.json.Indent() == nil && string(part.json) != "{}" {
			fmt.Fprintf(&b, "%s\n%s\n", part.name, visible.JSON(part.json))
		}
	}
	return b.String()
}
