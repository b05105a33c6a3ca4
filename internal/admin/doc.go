// Package admin is what operators and the kubelet ask of a running proxy over
// HTTP, apart from what clients ask: [Health] for probes and metrics, read-only
// and for everybody who can reach it, and [Admin] for a look inside, and a few
// levers, for those who may.
//
// The package knows no proxy: it is given functions that answer.
package admin
