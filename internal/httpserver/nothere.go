package httpserver

// HeaderNotHere is the header by which a process says to the one that has passed a request on to it that nothing was done, since the
// request is for another one. The status is 421 then.
const HeaderNotHere = "Fsm-Proxy-Not-Here"

// What it says, where more than that is known.
const (
	Elsewhere = "elsewhere" // the process is the right one, but does not have what the request is about
	Gone      = "gone"      // so it is, and what the request is about may have been here until just now
	Ending    = "ending"    // the process is ending: somebody else will have what the request is about
)
