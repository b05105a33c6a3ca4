package run

import "github.com/fsm-proxy/fsm-proxy/policy"

// Request is what a decision is asked for.
type Request struct {
	Kind   policy.Kind
	Name   string
	Listed bool // the upstream lists the name, or may: see Known
	Known  bool // Listed is known
}

// Call is a request's part in a run: what was asked for, and what was decided where.
type Call struct {
	Request
	Snapshot Snapshot
	Verdict  policy.Verdict
}
