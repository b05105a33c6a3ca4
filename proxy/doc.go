// Package proxy is the relay: it stands between clients and the wrapped server
// and lets the policy decide what exists. It holds the only mutable automaton
// state there is, the runs.
//
// A request goes one way through it: Handle reads what arrived (wire), the run
// decides (policy), the call goes upstream, its answer is classified and steps
// the run (policy), the client is told which lists changed, and gets the answer
// (wire). What is not bound now does not exist now.
package proxy
