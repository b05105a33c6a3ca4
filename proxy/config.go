package proxy

import "github.com/fsm-proxy/fsm-proxy/proxy/settings"

// Config is what a Proxy works with.
type Config = settings.Config
