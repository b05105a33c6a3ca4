// Package surface is what clients are shown: what their introduction to the server settles, what they are shown
// of lists then, and which of those they are told have changed.
package surface

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// hint is the sentence on the dynamic surface that is added to the upstream's
// instructions, and opaqueHint the one where refusals say nothing of that.
const (
	hint       = "Tools appear and disappear as the work goes on; a refusal says what is allowed now."
	opaqueHint = "Tools appear and disappear as the work goes on; tools/list says which there are now."
)

// Config is what holds for the introductions of all clients.
type Config struct {
	Surface  Surface
	Annotate Annotate
	Opaque   bool   // refusals say nothing of what the policy allows
	NoHint   bool   // no sentence on changing tools in the instructions
	Shared   bool   // all clients use one connection
	Handles  string // what the instructions of stateless clients say of handles; "": they bring none
	Version  string // the proxy's own
}

// hello returns a Hello on a surface. By default results say nothing that opaque refusals keep to
// themselves.
func (c *Config) hello(static bool) *Hello {
	h := &Hello{Surface: Dynamic, Annotate: c.Annotate}
	if static {
		h.Surface = Static
	}
	switch {
	case c.Annotate != AnnotateAuto:
	case static && !c.Opaque:
		h.Annotate = AnnotateText
	default:
		h.Annotate = AnnotateOff
	}
	return h
}

// Greeting is a client's initialize on its way to the upstream.
type Greeting struct {
	*Config
	request *wire.Message
	at      run.Snapshot
	may     policy.UpstreamMay // what the policy and the client together let the upstream ask
	raw     []byte             // the request as it goes on
	bridge.Introduction
	name, version string // of the client
}

// Greet reads an initialize where its run stands.
func (c *Config) Greet(request *wire.Message, at run.Snapshot) *Greeting {
	g := &Greeting{Config: c, request: request, at: at, raw: request.Raw}
	g.Capabilities, g.Info = []byte("{}"), []byte(`{"name":"unknown","version":""}`)
	params := request.Bytes(request.Params)
	if params == nil {
		return g
	}
	var edits []wire.Edit
	_ = wire.Members(params, func(key string, at wire.Span) error {
		value := params[at.Start:at.End]
		isObject := len(value) > 0 && value[0] == '{'
		switch key {
		case "capabilities":
			carried := g.capabilities(value)
			edits = append(edits, wire.Edit{At: at, With: carried})
			if isObject {
				g.Capabilities = carried
			}
		case "clientInfo":
			name, _ := wire.Text(wire.Member(value, "name"))
			version, _ := wire.Text(wire.Member(value, "version"))
			g.name, g.version = name, wire.Clip(version)
			if isObject {
				g.Info = value
			}
		case "protocolVersion":
			if v, _ := wire.Text(value); !bridge.Opens(v) {
				edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, bridge.Latest)})
			}
		}
		return nil
	})
	g.raw = wire.Splice(request.Raw, wire.Edit{At: request.Params, With: wire.Splice(params, edits...)})
	return g
}

// capabilities are those of the client that the upstream may use.
func (g *Greeting) capabilities(raw []byte) []byte {
	permitted := g.at.UpstreamMayLater()
	_ = wire.Members(raw, func(name string, _ wire.Span) error {
		switch name {
		case "sampling":
			g.may.Sampling = permitted.Sampling
		case "elicitation":
			g.may.Elicitation = permitted.Elicitation
		case "roots":
			g.may.Roots = permitted.Roots
		}
		return nil
	})
	if g.at.Shadow {
		return raw
	}
	p := g.at.InForce()
	return wire.Pick(raw, func(name string, value []byte) []byte {
		if g.may.Permits(name) || p.Passthrough(name) {
			return value
		}
		return nil
	})
}

// Opening introduces the client to the upstream: with its own request, with the capabilities that the
// upstream may use, and to a stateless one with what that says of it. The error says what is wrong with
// the request.
func (g *Greeting) Opening() (bridge.Opening, error) {
	request, err := wire.Read(g.raw, wire.FromClient)
	opening := bridge.Client{}.Opening(g.Introduction)
	opening.Initialize = request
	return opening, err
}

// Welcome edits the upstream's answer by the policy in force, and returns it with what is settled. The
// error is one that the client can read.
func (g *Greeting) Welcome(answer *wire.Message, now *policy.Policy) ([]byte, *Hello, error) {
	h := g.hello(g.static())
	h.Client, h.Release, h.May, h.Introduction = g.name, g.version, g.may, g.Introduction
	result := answer.Bytes(answer.Result)
	instructed := false
	var edits []wire.Edit
	_ = wire.Members(result, func(key string, at wire.Span) error {
		value := result[at.Start:at.End]
		switch key {
		case "protocolVersion":
			h.Version, _ = wire.Text(value)
			if asked := g.request.P.ProtocolVersion; g.Shared && bridge.Opens(asked) {
				h.Version = asked
				edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, asked)})
			}
		case "capabilities":
			h.Offered = bridge.Client{}.Offered(value)
			if !g.at.Shadow {
				carried := bridge.Client{}.Carried(value, now.Passthrough)
				if now.HasSignals() {
					carried = withTools(h, carried)
				}
				edits = append(edits, wire.Edit{At: at, With: carried})
			}
		case "instructions":
			instructed = true
			said, _ := wire.Text(value)
			if text := g.instructions(h, said, "", g.at.Shadow, now); text != said { // else its bytes stay
				edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, text)})
			}
		}
		return nil
	})
	if text := g.instructions(h, "", "", g.at.Shadow, now); !instructed && text != "" {
		end := int32(len(result)) - 1
		with := wire.AppendString([]byte(`,"instructions":`), text)
		edits = append(edits, wire.Edit{At: wire.Span{Start: end, End: end}, With: with})
	}
	if !bridge.Opens(h.Version) {
		return nil, nil, errors.New("the upstream speaks revision " + wire.Clip(h.Version) + " of the protocol, which fsm-proxy does not know")
	}
	return wire.Splice(result, edits...), h, nil
}

// neverListAgain are the clients known never to list again, by clientInfo.name.
// The sources stand in docs/clients.md.
var neverListAgain = []string{"codex-mcp-client", "claude-ai"}

// static reports whether the client gets the static surface.
func (g *Greeting) static() bool {
	if g.Surface != Auto {
		return g.Surface == Static
	}
	name, _, _ := strings.Cut(g.name, " (via ") // what mcp-remote appends to the name of its client
	return slices.Contains(neverListAgain, name)
}

// instructions are the upstream's, the policy's, and what is to be said of handles and of the surface.
func (c *Config) instructions(h *Hello, upstream, handles string, shadow bool, now *policy.Policy) string {
	if shadow {
		return upstream
	}
	parts := []string{upstream, now.Instructions()}
	if !c.NoHint {
		parts = append(parts, handles)
	}
	said := hint
	if c.Opaque {
		said = opaqueHint
	}
	if !h.Static() && !c.NoHint && !strings.Contains(upstream, said) { // an upstream may be a proxy of this kind
		parts = append(parts, said)
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, "\n\n")
}

// withTools adds tools, of which the proxy has its own, to the capabilities of an upstream that offers none.
func withTools(h *Hello, capabilities []byte) []byte {
	if h.Lists[wire.Tools] {
		return capabilities
	}
	a := wire.Amend(capabilities, wire.Span{End: int32(len(capabilities))})
	a.Set(wire.Span{}, "tools", bridge.ListChanges(nil))
	return a.Bytes()
}

// What follows is for clients without sessions.

// Of settles what an upstream, by its introduction, offers the session of a run.
func (c *Config) Of(m *wire.Message) *Hello {
	h := c.hello(c.Surface != Dynamic)
	h.Version, h.From, h.Server = bridge.Revision, m, m.ServerInfo()
	h.May = policy.UpstreamMay{Sampling: true, Elicitation: true, Roots: true}
	h.Offered = bridge.Stateless.Offered(wire.Member(m.Bytes(m.Result), "capabilities"))
	return h
}

// Discovered is the result of server/discover: what the upstream said of itself, less what is refused by
// the policy in force.
func (c *Config) Discovered(h *Hello, revisions []string, shadow bool, now *policy.Policy) []byte {
	result := h.From.Bytes(h.From.Result)
	capabilities, instructions := []byte("{}"), ""
	_ = wire.Members(result, func(key string, at wire.Span) error {
		value := result[at.Start:at.End]
		switch key {
		case "capabilities":
			capabilities = bridge.Stateless.Carried(value, now.Passthrough)
		case "instructions":
			instructions, _ = wire.Text(value)
		}
		return nil
	})
	if (c.Handles != "" || now.HasSignals()) && !shadow {
		capabilities = withTools(h, capabilities)
	}
	return bridge.Discovered(revisions, capabilities, c.instructions(h, instructions, c.Handles, shadow, now))
}

// Opening introduces the client of a stateless request to the upstream, in either way. What the
// upstream may ask does not hang on the client of the first request: lists must not either. Who
// introduces itself at length goes by the proxy's name, since the run keeps it.
func (c *Config) Opening(m *wire.Message, may policy.UpstreamMay) bridge.Opening {
	info := c.info()
	if given := bridge.IntroductionIn(m).Info; given != nil && len(given) <= smallKept {
		info = given
	}
	return bridge.Stateless.Opening(bridge.Introduction{Capabilities: bridge.Askable(Hides(may)), Info: info})
}

// OpeningAgain introduces a client, that speaks so, as it was before: it can be asked for what it said, as far as nothing of
// that is hidden.
func (c *Config) OpeningAgain(as bridge.Client, was bridge.Introduction, may policy.UpstreamMay) bridge.Opening {
	info := was.Info
	if info == nil {
		info = c.info()
	}
	askable := bridge.Askable(Hides(may))
	return as.Opening(bridge.Introduction{Info: info, Capabilities: wire.Pick(was.Capabilities, func(name string, value []byte) []byte {
		if wire.Member(askable, name) == nil {
			return nil
		}
		return value
	})})
}

// SharedOpening introduces the proxy in either way to an upstream that all share. With a
// session is preferred: in it sampling and the like need no retries.
func (c *Config) SharedOpening(may policy.UpstreamMay) bridge.Opening {
	capabilities := wire.Pick(bridge.Askable(Hides(may)), func(string, []byte) []byte { return []byte("{}") })
	return bridge.Client{}.Opening(bridge.Introduction{Capabilities: capabilities, Info: c.info()})
}

// info is what the proxy calls itself towards upstreams.
func (c *Config) info() []byte {
	return append(wire.AppendString([]byte(`{"name":"fsm-proxy","version":`), c.Version), '}')
}

// Hides is what an upstream is not told of its clients.
func Hides(may policy.UpstreamMay) bridge.Hidden {
	return bridge.Hidden{Sampling: !may.Sampling, Elicitation: !may.Elicitation, Roots: !may.Roots}
}

// Unserved are the names of clients to which server/discover was refused. The zero value is none. It is safe for
// concurrent use.
type Unserved struct {
	mu    sync.Mutex // guards what follows
	names map[string]struct{}
}

// maxUnserved bounds the names that are kept: clients choose them.
const maxUnserved = 64

// First reports whether a name is new, and there is room for it.
func (u *Unserved) First(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, there := u.names[name]; there || len(u.names) >= maxUnserved {
		return false
	}
	if u.names == nil {
		u.names = make(map[string]struct{})
	}
	u.names[name] = struct{}{}
	return true
}
