// Package policy is the policy language of fsm-proxy: it reads a policy file,
// checks it, compiles it to one immutable edge table, and answers from that
// table what exists in a state, what may be called, and where each outcome
// leads.
//
// The package is pure. It does no I/O, starts no goroutine, reads no clock and
// writes no log; a [Policy] never changes after [Parse] and may be used from
// any number of goroutines. Who rests in which [Configuration] is the caller's
// business: [Policy.Decide] and [Policy.Next] take one and return a value.
//
// The way through the package is one direction: bytes → YAML nodes
// (internal/strictyaml) → what the file says (fields.go, values.go, bindings.go, source.go)
// → the edge table (compile.go, table.go) → findings about it (check.go,
// overlap.go, against.go) → decisions and steps (decide.go, step.go, machine.go)
// → pictures of it (text.go, graph.go, json.go). Of two policies, adopt.go says
// where the runs of one stand under the other, and compare.go what differs.
package policy
