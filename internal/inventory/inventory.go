// Package inventory asks a server, as a client of its own, for all that it lists.
package inventory

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yosida95/uritemplate/v3"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// Inventory is what a server lists, as far as a policy or its lock needs to know.
type Inventory struct {
	Server    string // its name
	Version   string // and version
	Offers    []report.Offer
	Templates []string // URI templates; a policy names concrete URIs

	Tools, Resources, Prompts *wire.List // what the offers are made of
}

// Unbound are the names of each kind that no state of a policy binds, as they
// can be printed.
func (inv *Inventory) Unbound(p *policy.Policy) (names [policy.Kinds][]string) {
	for _, o := range inv.Offers {
		if len(p.BoundIn(o.Kind, o.Name, true)) == 0 {
			names[o.Kind] = append(names[o.Kind], strictyaml.Comment(o.Name))
		}
	}
	return names
}

// TemplateServes reports whether one of the server's resource templates may serve
// a URI.
func (inv *Inventory) TemplateServes(uri string) bool {
	return slices.ContainsFunc(inv.Templates, func(text string) bool {
		t, err := uritemplate.New(text)
		return err == nil && t.Match(uri) != nil
	})
}

// Servers show different lists to different clients, and change them while a
// client settles in. So the client that takes an inventory claims to be able to
// do everything, and lists again as long as the server says that a list changed.
const (
	settleTime  = 300 * time.Millisecond // of silence, after which the lists count as final
	maxListings = 10
)

// Lister is the client that takes an inventory. It is what a connection to the
// server reports to.
type Lister struct {
	version string        // of fsm-proxy
	changed chan struct{} // holds one item when a list has changed

	mu     sync.Mutex // guards what follows
	answer func(raw []byte) error
	early  [][]byte // answers from before there was anybody to give them to
}

// New returns the client of an fsm-proxy of this version.
func New(version string) *Lister { return &Lister{version: version, changed: make(chan struct{}, 1)} }

// Opening introduces the client in both eras. The legacy one goes first: servers
// that do not know the other may leave it unanswered.
func (l *Lister) Opening() upstream.Opening {
	info := fmt.Sprintf(`{"name":"fsm-proxy","version":%s}`, wire.AppendString(nil, l.version))
	const asks = `"sampling":{},"elicitation":{"form":{},"url":{}}`
	return upstream.Opening{
		Initialize: request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{`+asks+`,"roots":{"listChanged":true}},"clientInfo":`+info+`}`),
		Discover: request("server/discover", `{"_meta":{"`+wire.MetaVersion+`":"`+wire.ModernRevision+`","`+
			wire.MetaCapabilities+`":{`+asks+`,"roots":{}},"`+wire.MetaClientInfo+`":`+info+`}}`),
	}
}

// request makes a request of params that are known to be right.
func request(method, params string) *wire.Message {
	m, err := wire.Read(wire.RequestMessage(1, method, []byte(params)), wire.FromClient)
	if err != nil {
		panic(err)
	}
	return m
}

// Receive notes that a list has changed and answers what the server asks: it has
// no roots to give, and nobody to put a question to.
func (l *Lister) Receive(m *wire.Message, _ any) {
	switch {
	case m.Kind == wire.Notification && strings.HasSuffix(m.Method, "/list_changed"):
		select {
		case l.changed <- struct{}{}:
		default:
		}
	case m.Kind != wire.Request:
	case m.Method == "ping":
		l.send(wire.ResultAnswer(m.Bytes(m.ID), []byte(`{}`)))
	case m.Method == "roots/list":
		l.send(wire.ResultAnswer(m.Bytes(m.ID), []byte(`{"roots":[]}`)))
	default:
		l.send(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInvalidRequest, "this client only lists", nil))
	}
}

// serve says where answers go, and gives it those that are waiting.
func (l *Lister) serve(conn interface{ Notify(raw []byte) error }) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = conn.Notify
	for _, raw := range l.early {
		_ = conn.Notify(raw)
	}
}

// send gives an answer to the server. One that does not reach it is no loss: the
// listing itself then fails, and says why.
func (l *Lister) send(raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answer == nil {
		l.early = append(l.early, raw)
		return
	}
	_ = l.answer(raw)
}

// settle waits until no list has changed for a while, and reports whether one
// had.
func (l *Lister) settle(ctx context.Context) (changed bool) {
	silence := time.NewTimer(settleTime)
	defer silence.Stop()
	for {
		select {
		case <-l.changed:
			changed = true
			silence.Reset(settleTime)
		case <-silence.C:
			return changed
		case <-ctx.Done():
			return changed
		}
	}
}

// Take lists until nothing changes any more.
func (l *Lister) Take(ctx context.Context, conn *upstream.Conn) (Inventory, error) {
	l.serve(conn)
	if err := conn.Notify(wire.NotificationMessage("notifications/initialized", nil)); err != nil {
		return Inventory{}, err
	}
	server, version, can := describe(conn.Hello())
	for range maxListings {
		l.settle(ctx)
		inv, err := list(ctx, conn, can)
		if err != nil || !l.settle(ctx) {
			inv.Server, inv.Version = server, version
			return inv, err
		}
	}
	return Inventory{}, fmt.Errorf("its lists changed %d times in a row; try again when it has come to rest", maxListings)
}

// describe reads the server's name and version, and which kinds it lists, from its
// answer to initialize or server/discover.
func describe(hello *wire.Message) (name, version string, can [4]bool) {
	var result struct {
		Capabilities struct{ Tools, Resources, Prompts *struct{} } `json:"capabilities"`
	}
	var info struct{ Name, Version string }
	_ = json.Unmarshal(hello.Bytes(hello.Result), &result, json.MatchCaseInsensitiveNames(true))
	_ = json.Unmarshal(hello.ServerInfo(), &info, json.MatchCaseInsensitiveNames(true))
	c := result.Capabilities
	can[wire.Tools], can[wire.Prompts] = c.Tools != nil, c.Prompts != nil
	can[wire.Resources], can[wire.Templates] = c.Resources != nil, c.Resources != nil
	return info.Name, info.Version, can
}

// offerKinds are the kinds of names, by what is listed.
var offerKinds = map[wire.ListKind]policy.Kind{
	wire.Tools: policy.Tool, wire.Resources: policy.Resource, wire.Prompts: policy.Prompt,
}

// list lists once. That the server has no templates to list is no error.
func list(ctx context.Context, conn *upstream.Conn, can [4]bool) (Inventory, error) {
	inv := Inventory{Tools: &wire.List{}}
	lists := [...]**wire.List{wire.Tools: &inv.Tools, wire.Resources: &inv.Resources, wire.Prompts: &inv.Prompts}
	for _, kind := range []wire.ListKind{wire.Tools, wire.Resources, wire.Prompts} {
		if !can[kind] {
			continue
		}
		l, err := conn.List(ctx, kind)
		if err != nil {
			return inv, err
		}
		*lists[kind] = l
		for _, item := range l.Items {
			inv.Offers = append(inv.Offers, offerOf(offerKinds[kind], item))
		}
	}
	if can[wire.Templates] {
		if l, err := conn.List(ctx, wire.Templates); err == nil {
			for _, item := range l.Items {
				inv.Templates = append(inv.Templates, item.Name)
			}
		}
	}
	return inv, nil
}

func offerOf(kind policy.Kind, item wire.Item) report.Offer {
	offer := report.Offer{Kind: kind, Name: item.Name, Argument: argumentsOf(kind, item.Raw), Result: resultOf(kind, item.Raw)}
	var hints struct {
		Annotations struct {
			ReadOnly   bool `json:"readOnlyHint"`
			Idempotent bool `json:"idempotentHint"`
		} `json:"annotations"`
	}
	// Hints that cannot be read are no hints.
	if err := json.Unmarshal(item.Raw, &hints); err == nil {
		offer.ReadOnly, offer.Idempotent = hints.Annotations.ReadOnly, hints.Annotations.Idempotent
	}
	return offer
}
