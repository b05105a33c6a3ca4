// Package stdio frames messages as lines, as MCP does over standard input and
// output: a [Reader] and a [Writer] for either end, and [Serve], the whole
// server end.
package stdio
