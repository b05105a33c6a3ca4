package cli

import (
	"math"
	"runtime/debug"
)

// What open files are kept for besides the connections of clients.
const (
	ownFiles     = 64 // the policy's and certificate's files and watches, the log, the audit, traces, listeners
	healthConns  = 32 // connections to --health
	adminConns   = 16 // connections to --admin
	processFiles = 4  // of a process of the wrapped server: three pipes, and what watches for its end
	urlFiles     = 3  // of a client of a server with a URL: its own connection, a call's, a stream's
)

// connectionMemory is what a connection may take before anybody knows whose it is: the head of a request as it comes
// in, and what the HTTP server keeps.
const connectionMemory = 128 << 10

// mostConnections is how many there are where nothing bounds them.
const mostConnections = 65_536

// connections is how many connections clients may have, by --max-connections or by what there is: open files that
// nothing else needs, and half the memory that the process may take.
func (f *runFlags) connections() int {
	if f.limits.connections > 0 {
		return f.limits.connections
	}
	most := mostConnections
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		most = min(most, max(int(limit/2/connectionMemory), 16))
	}
	files := openFiles()
	if files == 0 {
		return most
	}
	left := files - ownFiles - healthConns - adminConns
	switch {
	case len(f.command) == 0:
		left /= urlFiles
	case f.share:
		left -= processFiles
	default:
		left -= processFiles * f.limits.processes
	}
	return min(most, max(left, files/4))
}
