// Package telemetry holds no code: its tests look at the metrics, the traces and
// the audit of the real binary, from outside.
package telemetry
