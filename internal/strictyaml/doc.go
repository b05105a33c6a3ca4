// Package strictyaml reads YAML files of a language of our own, strictly: one
// document, no tags, bounded size and expansion, each key once, and nothing that
// the tables of fields do not know. What is wrong is found all at once, each with
// its place, the offending text, and what was perhaps meant. The JSON Schema of
// such a language comes from the same tables.
//
// The package is pure, as the policy language that is built on it. It does no I/O
// and keeps no state between files.
package strictyaml
