package stdio

import "io"

// direct would write to a file without ever waiting for the other end.
type direct struct{}

func newDirect(io.Writer) *direct { return nil }

func (*direct) try([]byte) (int, error) { return 0, nil }
