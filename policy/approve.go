package policy

import "github.com/fsm-proxy/fsm-proxy/policy/syntax"

// Approve says that somebody has to say yes to a call before it goes.
type Approve struct {
	By      Sender // Operator
	Message string // what they are asked; "": only whether the call may go
	Seconds int    // for how long
	Place   Place
}

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
	return &Approve{By: Operator, Message: x.Message, Seconds: x.Seconds, Place: x.Place}
}
