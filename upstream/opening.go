package upstream

import "github.com/fsm-proxy/fsm-proxy/internal/wire"

// Opening is what [Server.Dial] may open a connection with.
type Opening struct {
	// Initialize opens a connection of the legacy era, Discover (server/discover with
	// all of its _meta) one of the modern era. Nil: not of that era.
	Initialize, Discover *wire.Message
	// Prefer is the era that is tried first where both can be.
	Prefer wire.Era
}

// Era is the connection's, in which all messages given to [Conn.Start] must be.
func (c *Conn) Era() wire.Era { return wire.Legacy }

// Listen says of which resources' updates the upstream is to tell, in place of those
// before: all there are. It waits for nothing. In the legacy era, which has
// resources/subscribe for that, it does nothing.
func (c *Conn) Listen(uris []string) error { return nil }
