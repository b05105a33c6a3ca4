// Package wire reads JSON-RPC messages of the Model Context Protocol strictly
// and once, keeps the bytes they came in, and changes those bytes in one way
// only: [Splice].
//
// Its other types are the words that the framings (stdio, streamhttp), the
// relay (proxy) and the connections to the wrapped server (upstream) share:
// [Stream], [Session] and [Pending] towards clients, [Receiver] and
// [CallError] towards upstreams, [List] for what a server offers.
package wire
