// Package lock holds tools to the definitions that somebody has looked at. A lock
// is made from what an upstream lists and a policy binds, is kept as a file beside
// the policy, and says of any later list which tools are no longer what they were.
//
// What is compared is content, not bytes: a definition in which members stand in
// another order, or numbers and strings are written in another way, is the same.
//
// The package is pure: it does no I/O.
package lock
