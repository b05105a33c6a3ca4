// Package telemetry tells operators what the proxy decides and does: metrics for
// Prometheus ([Metrics]), traces over OTLP ([Traces]) and a line of JSON for each
// decision ([Audit]). Each is one of the parts that [observe.Telemetry] names.
// docs/telemetry.md lists every metric, span attribute and field.
package telemetry
