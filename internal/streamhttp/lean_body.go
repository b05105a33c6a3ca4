package streamhttp

import (
	"context"
	"io"
)

// leanBody is the body of an answer. At its end the connection goes back to
// the pool.
type leanBody struct {
	lean   *Lean
	conn   *leanConn
	body   io.Reader
	ending held // with the request's context
	ctx    context.Context
	done   bool
}

func (b *leanBody) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.body.Read(p)
	if err == nil {
		return n, nil
	}
	b.finish(err == io.EOF)
	if err != io.EOF {
		err = ended(b.ctx, err)
	}
	return n, err
}

// Close ends the connection unless the body was read to its end.
func (b *leanBody) Close() error {
	if !b.done {
		b.finish(false)
	}
	return nil
}

// atEnd reports whether the rest of a chunked body is here already and empty,
// and reads it then.
func (b *leanBody) atEnd() bool {
	if b.done {
		return true
	}
	const last = "0\r\n\r\n"
	if b.conn.br.Buffered() < len(last) {
		return false
	}
	if rest, _ := b.conn.br.Peek(len(last)); string(rest) != last {
		return false
	}
	n, err := b.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

func (b *leanBody) finish(whole bool) {
	b.done = true
	if b.ending.drop() && whole && b.conn.keep && b.conn.br.Buffered() == 0 {
		b.lean.put(b.conn)
		return
	}
	b.conn.Close()
}
