//go:build !unix

package http1

import "errors"

// canTry says that a connection can be read from and written to without waiting.
const canTry = false

var errNothing = errors.New("nothing to read")

func readNow(int, []byte) (int, error) { return 0, errNothing }

func writeNow(int, []byte) (int, error) { return 0, errNothing }
