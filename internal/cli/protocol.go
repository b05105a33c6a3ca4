package cli

import (
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// protocolOf is the protocol as it is served: whoever names a key for the modern era
// wants clients to speak it.
func (f *runsFlags) protocolOf(given proxy.Protocol) proxy.Protocol {
	if given == proxy.ProtocolAuto && slices.ContainsFunc(f.keys, func(key string) bool { return strings.HasPrefix(key, "modern=") }) {
		return proxy.ProtocolBoth
	}
	return given
}

// eras has the HTTP side serve the eras that --protocol names.
func (s *service) eras(cfg streamhttp.ServerConfig) streamhttp.ServerConfig {
	if s.flags.protocol != proxy.ProtocolModern {
		cfg.Open = func(own wire.Stream, from streamhttp.PeerInfo) (wire.Session, error) {
			return s.relay.OpenFor(s.peer(from), own)
		}
		cfg.Key = s.sessionKey()
	}
	if s.flags.protocol != proxy.ProtocolLegacy {
		cfg.Modern = func(m *wire.Message, out wire.Stream, from streamhttp.PeerInfo) wire.Pending {
			return s.relay.Serve(m, out, s.peer(from))
		}
	}
	return cfg
}
