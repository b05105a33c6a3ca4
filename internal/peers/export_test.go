package peers

import (
	"context"
	"crypto/tls"
)

// To is how a process with the key connects to one with a certificate of a hash.
func (k *Key) To(hash [32]byte) *tls.Config { return k.to(hash) }

// From is how a process with the key takes connections from anybody who has a certificate.
func (k *Key) From() *tls.Config {
	return k.from(func(context.Context, [32]byte) bool { return true })
}

// LookEach is the least time between two lookups.
const LookEach = lookEach

// UnreachedFor is for how long a process is not reached at least before a warning says so.
const UnreachedFor = dialTime
