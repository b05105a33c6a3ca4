package cli

import "net"

// privately leaves it to the folder who can open the socket: Windows has no
// modes.
func privately(listen func() (*net.UnixListener, error)) (*net.UnixListener, error) { return listen() }
