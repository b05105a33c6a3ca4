// Package runs plays clients of both eras on runs that are found by every kind of
// key, through the real binary: the walk through Crossroads, two clients on one
// run, one client on two, and who wants to reset a run or come by another's.
package runs
