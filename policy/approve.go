package policy

import "github.com/fsm-proxy/fsm-proxy/policy/syntax"

// Approve says that somebody has to say yes to a call before it goes.
type Approve struct {
	By      Approver
	Message string // what they are asked; "": only whether the call may go
	Seconds int    // for how long
	Place   Place
}

// Approver is who says yes. The zero value is ByOperator.
type Approver uint8

// The approvers.
const (
	ByOperator Approver = iota
	ByClient            // whoever sits in front of the client that calls, as far as that can be trusted
)

// String returns "operator" or "client".
func (a Approver) String() string { return word(syntax.Approvers, a) }

// MarshalText returns the approver's word, for JSON.
func (a Approver) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// equal reports whether two say the same.
func (a *Approve) equal(b *Approve) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.By == b.By && a.Message == b.Message && a.Seconds == b.Seconds
}

// approve compiles who has to say yes, nil for nobody.
func (c *compiler) approve(x *syntax.Approve) *Approve {
	if !x.Given {
		return nil
	}
	c.p.guarded = true // what operators are shown is what the run remembers
	return &Approve{By: Approver(x.By.Index), Message: x.Message, Seconds: x.Seconds, Place: x.Place}
}
