package proxy

import "github.com/fsm-proxy/fsm-proxy/internal/wire"

// Opening is what [Config.Dial] may open a connection with.
type Opening struct {
	// Initialize opens a connection of the legacy era, Discover (server/discover with
	// all of its _meta) one of the modern era. Nil: not of that era.
	Initialize, Discover *wire.Message
	// Prefer is the era that is tried first where both can be.
	Prefer wire.Era
}
