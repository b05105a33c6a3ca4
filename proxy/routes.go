package proxy

import (
	"maps"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// allRoutes are what becomes of each request that is known. What is not here, and no
// passthrough names, is not found.
func allRoutes() routes {
	sessions := map[string]route{
		"initialize":            (*call).initialize,
		"ping":                  (*call).pong,
		"resources/subscribe":   (*call).subscribe,
		"resources/unsubscribe": (*call).unsubscribe,
		"logging/setLevel":      (*call).setLevel,
		"tasks/result":          (*call).ofTask,
		"tasks/list":            (*call).listTasks,
	}
	stateless := map[string]route{
		"server/discover":      (*call).discover,
		"subscriptions/listen": (*call).listen,
		"tasks/update":         (*call).ofTask,
	}
	for _, routes := range []map[string]route{sessions, stateless} {
		maps.Copy(routes, map[string]route{
			"tools/list":               func(c *call) wire.Pending { return c.list(wire.Tools) },
			"resources/list":           func(c *call) wire.Pending { return c.list(wire.Resources) },
			"prompts/list":             func(c *call) wire.Pending { return c.list(wire.Prompts) },
			"resources/templates/list": (*call).templates,
			"tools/call":               (*call).callTool,
			"resources/read":           (*call).readResource,
			"prompts/get":              (*call).getPrompt,
			"completion/complete":      (*call).complete,
			"tasks/get":                (*call).ofTask,
			"tasks/cancel":             (*call).ofTask,
		})
	}
	r := routes{other: (*call).relay, shadow: (*call).shadowed, task: (*call).started, approval: (*call).approve, unfinished: (*call).giveUnfinished}
	r.of[bridge.Client{}.Index()], r.of[bridge.Stateless.Index()] = sessions, stateless
	return r
}
