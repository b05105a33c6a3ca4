// Package handle is what the run key `handle` does to bytes: a client of the modern
// era, which has no session, says by an argument of its calls which run they belong
// to. [AddArgument] adds that argument to the definition of a tool, [Take] takes it
// out of a call again, before anything is decided and before the upstream sees it.
// [Start], [End] and [List] are the tools by which a client gets, ends and finds
// handles.
//
// It knows no run: bytes in, bytes out.
package handle
