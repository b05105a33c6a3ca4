// Package checks holds deploy/ to what Kubernetes, Kustomize, Helm and Prometheus themselves say of it: everything is
// rendered by their libraries, decoded strictly, given their defaults and validated by them. It is a module of its own,
// so that these libraries are none of fsm-proxy's.
package checks
