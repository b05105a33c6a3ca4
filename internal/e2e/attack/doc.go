// Package attack holds the tests of what goes wrong in proxies like this one, each under the name of what goes
// wrong. All of them drive the real binary from outside, as a client or as a server that means no good, and
// each looks at both ends: what the client got, and what reached the upstream, which counts every message.
package attack
