// Package asker is what is known of those on whose behalf requests come: it is found out at the door, and read by
// the guards of policies.
package asker

import (
	"bytes"
	"encoding/json/v2"
	"slices"
	"time"
)

// Who is on whose behalf a request comes: no secret is in it. It is immutable: the requests that show the same token
// have the same pointer, as long as that is remembered.
type Who struct {
	Subject, Issuer string
	Scopes          []string
	Claims          []byte // a JSON object: what a token says, all of it; empty where there is none
}

// Equal reports whether two say the same.
func (w *Who) Equal(to *Who) bool {
	if w == nil || to == nil {
		return w == to
	}
	return w.Subject == to.Subject && w.Issuer == to.Issuer && slices.Equal(w.Scopes, to.Scopes) && bytes.Equal(w.Claims, to.Claims)
}

// Expires is when the token expires that says all this; the zero time: nothing says when.
func (w *Who) Expires() (at time.Time) {
	var says struct {
		Expires float64 `json:"exp"`
	}
	if w == nil || len(w.Claims) == 0 || json.Unmarshal(w.Claims, &says) != nil || !(says.Expires > 0 && says.Expires < 1<<40) {
		return at
	}
	return time.UnixMilli(int64(says.Expires * 1000))
}
