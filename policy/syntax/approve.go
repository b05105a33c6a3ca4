package syntax

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// Approve says that somebody has to say yes to a call before it goes.
type Approve struct {
	Place
	Given   bool
	By      Choice // of Approvers
	Message string // what they are asked
	Seconds int    // for how long
}

// Approvers are those who may say yes.
var Approvers = []string{"operator", "client"}

// How long a question may stay open, in seconds.
const (
	defaultApproval = 10 * 60
	maxApproval     = 7 * 24 * 60 * 60
)

// approveKeys are the keys of approve.
func approveKeys() []field[Approve] {
	return []field[Approve]{
		key("by", "Who says yes: operator, over the admin interface, or client: whoever sits in front of the client that calls.", strictyaml.Enum(Approvers),
			readChoice(Approvers, func(a *Approve) *Choice { return &a.By })),
		key("message", "What they are asked, beside the call itself.", textSchema, readText(func(a *Approve) *string { return &a.Message })),
		key("timeout", "For how long: 1s to 168h. Default: 10m.", strictyaml.DurationSchema, func(r *reader, e entry, into *Approve) { into.Seconds = r.Duration(e, 1, maxApproval) }),
	}
}

func approveSchema() *schema {
	s := strictyaml.ObjectOf(approveKeys())
	s.Required = []string{"by"}
	return s
}

func readApprove(r *reader, e entry, into *Value) {
	a := &into.Approve
	a.Place, a.Given, a.Seconds = e.Place(), true, defaultApproval
	if !r.Mapping(e, "a mapping that says who approves, such as {by: operator, timeout: 10m}") {
		return
	}
	strictyaml.ReadFields(r, e.Value, "approve", approveKeys(), a)
	if !a.By.Given {
		r.Errorf(strictyaml.PlaceOf(e.Value), "approve", "approve: nobody is named who approves; write by: operator, or by: client")
	}
}
