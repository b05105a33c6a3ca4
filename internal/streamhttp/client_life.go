package streamhttp

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// held is what ends with a context.
type held struct {
	life *wire.Life  // holds it; nil: a function of the standard library does
	undo func() bool // that function
}

// holdBy has e, which must not block, ended with ctx: [context.AfterFunc], which
// needs no memory where ctx is a [wire.Life].
func holdBy(ctx context.Context, e wire.Ender) held {
	if l, ok := ctx.(*wire.Life); ok && l.Hold(e) {
		return held{life: l}
	}
	return held{undo: context.AfterFunc(ctx, e.End)}
}

// drop lets go of it. It reports false if it was ended.
func (h held) drop() bool {
	if h.life != nil {
		return h.life.Drop()
	}
	return h.undo()
}
