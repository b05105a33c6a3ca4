//go:build !unix

package watch

import "os"

func open(path string) (*os.File, error) { return os.Open(path) }
