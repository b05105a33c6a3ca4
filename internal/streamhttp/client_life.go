package streamhttp

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// atEnd is [context.AfterFunc] for an f that does not block.
func atEnd(ctx context.Context, f func()) (stop func() bool) {
	if l, ok := ctx.(*wire.Life); ok && l.Hold(f) {
		return l.Drop
	}
	return context.AfterFunc(ctx, f)
}
