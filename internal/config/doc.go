// Package config is the configuration file of `fsm-proxy run`: what flags make
// clumsy, grouped by noun and read as strictly as a policy.
//
// One table, in keys.go, says of each key which flag it stands for, what it holds
// and what it is for. Reading, suggestions and the JSON Schema come from it. The
// package knows no flags beyond their names: what it returns are values as the
// command line would give them, each with its place, for whoever sets the flags
// that neither the command line nor the environment has set.
package config
