//go:build !unix

package streamhttp

import "net"

// aliveFunc returns a check of an idle connection. Without sockets that can be
// read without waiting there is none: that connections are idle for 2 s at
// most has to do.
func aliveFunc(net.Conn) func() bool { return func() bool { return true } }
