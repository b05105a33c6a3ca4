package run

import "github.com/fsm-proxy/fsm-proxy/policy/guard"

// Note notes what entries tell of the arguments of a call, once. They may be long: nobody is to wait meanwhile.
func (c *Call) Note() {
	if c.Noted != nil || c.Arguments == nil {
		return
	}
	c.Noted = &Noted{}
	if digest, err := guard.Digest(c.Arguments.JSON()); err == nil { // else others may read them otherwise
		c.Noted.Digest = digest
	}
}
