package run

import (
	"bytes"
	"encoding/json/jsontext"

	"github.com/fsm-proxy/fsm-proxy/internal/redact"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// Recording is what entries tell of the arguments of calls.
type Recording struct {
	Arguments bool              // themselves, beside their digest
	Redact    *redact.Redaction // what of them is told by nothing; nil: nothing
}

// maxNoted is how long arguments may be that are told.
const maxNoted = 64 << 10

// Note notes what entries tell of the arguments of a call, once. They may be long: nobody is to wait meanwhile.
func (c *Call) Note(as *Recording) {
	if c.Noted != nil || c.Arguments == nil {
		return
	}
	c.Noted = &Noted{}
	sent := c.Arguments.JSON()
	if len(sent) == 0 {
		sent = []byte("{}")
	}
	told, err := as.Redact.Of(sent)
	if err == nil {
		c.Noted.Digest, err = guard.Digest(told)
	}
	switch {
	case !as.Arguments:
	case err != nil || len(told) > maxNoted || !jsontext.Value(told).IsValid(): // others may read them otherwise
		c.Noted.Bytes = len(sent)
	default:
		c.Noted.Arguments = bytes.Clone(told)
	}
}
