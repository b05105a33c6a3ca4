package proxy

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// hint is the sentence on the dynamic surface that is added to the upstream's
// instructions, and opaqueHint the one where refusals say nothing of that.
const (
	hint       = "Tools appear and disappear as the work goes on; a refusal says what is allowed now."
	opaqueHint = "Tools appear and disappear as the work goes on; tools/list says which there are now."
)

// hello is what initialize settled for a session.
type hello struct {
	version  string
	client   string // clientInfo.name
	release  string // clientInfo.version, escaped and cut
	static   bool   // the static surface
	annotate surface.Annotate
	may      policy.UpstreamMay // what the client can be asked
	// As a client with a session has introduced itself, raw; nil: it has not.
	capabilities, clientInfo []byte
	from                     *wire.Message // of a run's session: what the upstream said of itself
	server                   []byte        // likewise: how the upstream introduces itself; nil: it does not
	bridge.Offered

	operations observe.Operations // where the session's are measured; nil: nowhere
	begun      time.Duration      // as deadline.Now
}

// initialize opens the upstream with the client's own request, so that it sees
// the client that there is, and answers with the upstream's answer.
func (c *call) initialize() wire.Pending {
	s := c.s
	s.mu.Lock()
	again := s.opening || s.hello.Load() != nil
	s.opening = s.opening || !again
	s.mu.Unlock()
	if again {
		return c.fail(wire.CodeInvalidRequest, "the session is initialized already")
	}
	if code, refusal := s.p.keeps.Keep(&s.kept, surface.Initialize, c.m); refusal != "" {
		s.opened()
		return c.fail(code, refusal)
	}
	return c.later(c.open)
}

func (c *call) open() {
	s := c.s
	c.Snapshot = s.run.Where()
	may := c.mayAsk()
	request, err := wire.Read(c.initializeUpstream(may), wire.FromClient)
	if err != nil {
		c.failed(wire.CodeInvalidParams, err.Error())
		return
	}
	over := c.seen.Waiting()
	conn, err := s.link.OpenFor(s, c.opening(request, may))
	over()
	if err != nil {
		c.refusedHello(err)
		return
	}
	c.welcome(conn.Server.InitializeResult(conn.Hello(), c.m), may)
}

// opening introduces a client to the upstream: with its own request, and to a stateless
// one with what that says of it.
func (c *call) opening(request *wire.Message, may policy.UpstreamMay) bridge.Opening {
	capabilities, info := c.introduced(may)
	opening := c.client.Opening(bridge.Introduction{Capabilities: capabilities, Info: info})
	opening.Initialize = request
	return opening
}

// introduced is what initialize says of the client: its capabilities, as far as
// the upstream may use them, and its name.
func (c *call) introduced(may policy.UpstreamMay) (capabilities, info []byte) {
	capabilities, info = []byte("{}"), []byte(`{"name":"unknown","version":""}`)
	c.eachParam(func(key string, value []byte) {
		switch {
		case key == "capabilities" && len(value) > 0 && value[0] == '{':
			capabilities = c.clientCapabilities(value, may)
		case key == "clientInfo" && len(value) > 0 && value[0] == '{':
			info = value
		}
	})
	return capabilities, info
}

// HelloError is an upstream's refusal of initialize, as [Config.Dial] tells it.
type HelloError struct {
	// Answer is what the upstream said: a Failure.
	Answer *wire.Message
}

// Error has the upstream's own error object.
func (e *HelloError) Error() string {
	return "the upstream refused initialize: " + string(e.Answer.Bytes(e.Answer.Error))
}

// refusedHello answers an initialize that the upstream did not accept, with its
// own error if it sent one.
func (c *call) refusedHello(err error) {
	if err == link.ErrEnding {
		c.s.opened()
		c.tooLate()
		return
	}
	if said, ok := errors.AsType[*HelloError](err); ok {
		if said.Answer.ErrorCode == wire.CodeURLElicitation && !c.Snapshot.UpstreamMay().Permits("elicitation") {
			c.failed(wire.CodeInternal, "the server asks the user to visit a URL first, which the policy does not let it")
			return
		}
		c.s.opened() // before the answer, since the client may try again at once
		c.seen.Failed(observe.Fault{RPC: said.Answer.ErrorCode})
		c.answer(c.withID(said.Answer))
		return
	}
	c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
	c.failed(wire.CodeInternal, "The upstream server is not available: "+err.Error())
}

func (c *call) failed(code int, text string) {
	c.s.log.Warn("initialize was refused", c.about("reason", text)...)
	c.s.opened()
	c.fail(code, text)
}

// mayAsk is what the policy and the client together let the upstream ask.
func (c *call) mayAsk() policy.UpstreamMay {
	may := c.Snapshot.UpstreamMay()
	has := map[string]bool{}
	c.eachParam(func(key string, value []byte) {
		if key == "capabilities" {
			_ = wire.Members(value, func(name string, _ wire.Span) error { has[name] = true; return nil })
		}
	})
	may.Sampling = may.Sampling && has["sampling"]
	may.Elicitation = may.Elicitation && has["elicitation"]
	may.Roots = may.Roots && has["roots"]
	return may
}

func (c *call) eachParam(f func(key string, value []byte)) {
	params := c.m.Bytes(c.m.Params)
	if params == nil {
		return
	}
	_ = wire.Members(params, func(key string, at wire.Span) error {
		f(key, params[at.Start:at.End])
		return nil
	})
}

// initializeUpstream is the client's request with the capabilities that the
// upstream may use, and a revision that the proxy knows.
func (c *call) initializeUpstream(may policy.UpstreamMay) []byte {
	params := c.m.Bytes(c.m.Params)
	if params == nil {
		return c.m.Raw
	}
	var edits []wire.Edit
	_ = wire.Members(params, func(key string, at wire.Span) error {
		switch key {
		case "capabilities":
			edits = append(edits, wire.Edit{At: at, With: c.clientCapabilities(params[at.Start:at.End], may)})
		case "protocolVersion":
			if v, _ := wire.Text(params[at.Start:at.End]); !bridge.Opens(v) {
				edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, bridge.Latest)})
			}
		}
		return nil
	})
	return wire.Splice(c.m.Raw, wire.Edit{At: c.m.Params, With: wire.Splice(params, edits...)})
}

func (c *call) clientCapabilities(raw []byte, may policy.UpstreamMay) []byte {
	if c.Snapshot.Shadow {
		return raw
	}
	p := c.s.policyNow()
	return wire.Pick(raw, func(name string, value []byte) []byte {
		if may.Permits(name) || p.Passthrough(name) {
			return value
		}
		return nil
	})
}

// welcome answers initialize with the upstream's own answer, less what is
// refused here.
func (c *call) welcome(m *wire.Message, may policy.UpstreamMay) {
	h := &hello{may: may}
	h.capabilities, h.clientInfo = c.introduced(may)
	name, version := c.clientInfo()
	h.client, h.release = name, wire.Clip(version)
	h.static = c.static(h.client)
	h.annotate = c.s.p.annotateOn(h.static)
	result := c.helloResult(m.Bytes(m.Result), h)
	if !bridge.Opens(h.version) {
		c.failed(wire.CodeInternal, "the upstream speaks revision "+wire.Clip(h.version)+" of the protocol, which fsm-proxy does not know")
		return
	}
	h.operations, h.begun = c.s.p.cfg.Telemetry.Operations(h.version), deadline.Now()
	c.s.hello.Store(h)
	said := c.about("client", wire.Clip(h.client), "protocol", h.version, "surface", surfaceOf(h).String())
	if c.s.peer.Remote != "" {
		said = append(said, "remote", c.s.peer.Remote)
	}
	c.s.log.Info("session begun", said...)
	if c.Snapshot.Shadow && !c.s.link.Shared() {
		c.answer(c.withID(m))
	} else {
		c.result(result)
	}
	c.s.opened()
}

// neverListAgain are the clients known never to list again, by clientInfo.name.
// The sources stand in docs/clients.md.
var neverListAgain = []string{"codex-mcp-client", "claude-ai"}

// static reports whether a client gets the static surface.
func (c *call) static(client string) bool {
	switch c.s.p.cfg.Surface {
	case surface.Dynamic:
		return false
	case surface.Static:
		return true
	}
	name, _, _ := strings.Cut(client, " (via ") // what mcp-remote appends to the name of its client
	return slices.Contains(neverListAgain, name)
}

func surfaceOf(h *hello) surface.Surface {
	if h.static {
		return surface.Static
	}
	return surface.Dynamic
}

func (c *call) clientInfo() (name, version string) {
	c.eachParam(func(key string, value []byte) {
		if key != "clientInfo" {
			return
		}
		_ = wire.Members(value, func(k string, at wire.Span) error {
			switch k {
			case "name":
				name, _ = wire.Text(value[at.Start:at.End])
			case "version":
				version, _ = wire.Text(value[at.Start:at.End])
			}
			return nil
		})
	})
	return name, version
}

// helloResult edits the upstream's initialize result.
func (c *call) helloResult(result []byte, h *hello) []byte {
	var edits []wire.Edit
	instructed := false
	_ = wire.Members(result, func(key string, at wire.Span) error {
		value := result[at.Start:at.End]
		switch key {
		case "protocolVersion":
			h.version, _ = wire.Text(value)
			if shared := c.m.P.ProtocolVersion; c.s.link.Shared() && bridge.Opens(shared) {
				h.version = shared
				edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, shared)})
			}
		case "capabilities":
			h.Offered = c.client.Offered(value)
			if !c.Snapshot.Shadow {
				edits = append(edits, wire.Edit{At: at, With: c.client.Carried(value, c.s.policyNow().Passthrough)})
			}
		case "instructions":
			instructed = true
			said, _ := wire.Text(value)
			if text := c.instructions(said, h); text != said { // else its bytes stay
				edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, text)})
			}
		}
		return nil
	})
	if text := c.instructions("", h); !instructed && text != "" {
		end := int32(len(result)) - 1
		with := wire.AppendString([]byte(`,"instructions":`), text)
		edits = append(edits, wire.Edit{At: wire.Span{Start: end, End: end}, With: with})
	}
	return wire.Splice(result, edits...)
}

func (c *call) instructions(upstream string, h *hello) string {
	if c.Snapshot.Shadow {
		return upstream
	}
	parts := []string{upstream, c.s.policyNow().Instructions()}
	if c.client.Stateless() && c.s.p.handles != nil && !c.s.p.cfg.NoHint {
		parts = append(parts, c.s.p.handles.Hint)
	}
	said := hint
	if c.opaquely() {
		said = opaqueHint
	}
	if !h.static && !c.s.p.cfg.NoHint && !strings.Contains(upstream, said) { // an upstream may be a proxy of this kind
		parts = append(parts, said)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, "\n\n")
}
