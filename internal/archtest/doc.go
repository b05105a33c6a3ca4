// Package archtest holds the tests of the architecture: which package may import which, that each says what it
// is for, and that the tree names no place of any one machine.
package archtest
