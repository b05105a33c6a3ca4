package cli

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// takeInventory connects to the target as a client and returns what it lists. Either
// may take as long as --connect-timeout says; line shows what is waited for.
func takeInventory(ctx context.Context, t *target, log hclog.Logger, line *statusLine) (inventory, error) {
	server, err := t.open(inheritAll, &limitFlags{}, nil, log)
	if err != nil {
		return inventory{}, err
	}
	defer server.Close()
	inEmergency(ctx, server.Kill)
	l := newLister()
	verb := "to start"
	if t.url != "" {
		verb = "to answer"
	}
	stop := t.showWait(line, server, verb)
	conn, err := server.Dial(ctx, l.opening(), l)
	stop()
	if err != nil {
		return inventory{}, t.connectError(ctx, err)
	}
	defer conn.Close()
	defer t.showWait(line, server, "to list what it offers")()
	listing, cancel := context.WithTimeout(ctx, t.patience())
	defer cancel()
	inv, err := l.inventory(listing, conn)
	switch {
	case err == nil:
		return inv, nil
	case ctx.Err() != nil:
		return inventory{}, fmt.Errorf("interrupted while %s listed what it offers", t)
	case listing.Err() != nil:
		return inventory{}, fmt.Errorf("%s has not listed what it offers within %s; give it longer with --connect-timeout", t, brief(t.patience()))
	}
	if refused, ok := errors.AsType[*upstream.ListError](err); ok {
		err = fmt.Errorf("%w%s", err, messageOf(refused.Answer))
	}
	return inventory{}, fmt.Errorf("listing what %s offers: %w", t, err)
}

// mostOfMessage is how much of a server's error message is shown, in characters.
const mostOfMessage = 300

// messageOf is the message of a server's error, for who started the server; "" where
// there is none.
func messageOf(failure *wire.Message) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(failure.Raw, &body); err != nil || body.Error.Message == "" {
		return ""
	}
	text, _ := fitting(body.Error.Message, mostOfMessage)
	return fmt.Sprintf(": %q", text)
}

// inventory lists until nothing changes any more.
func (l *lister) inventory(ctx context.Context, conn *upstream.Conn) (inventory, error) {
	l.serve(conn)
	if err := conn.Notify(wire.NotificationMessage("notifications/initialized", nil)); err != nil {
		return inventory{}, err
	}
	server, version, can := describe(conn.Hello())
	for range maxListings {
		l.settle(ctx)
		inv, err := list(ctx, conn, can)
		if err != nil || !l.settle(ctx) {
			inv.server, inv.version = server, version
			return inv, err
		}
	}
	return inventory{}, fmt.Errorf("its lists changed %d times in a row; try again when it has come to rest", maxListings)
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
func list(ctx context.Context, conn *upstream.Conn, can [4]bool) (inventory, error) {
	inv := inventory{tools: &wire.List{}}
	lists := [...]**wire.List{wire.Tools: &inv.tools, wire.Resources: &inv.resources, wire.Prompts: &inv.prompts}
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
			inv.offers = append(inv.offers, offerOf(offerKinds[kind], item))
		}
	}
	if can[wire.Templates] {
		if l, err := conn.List(ctx, wire.Templates); err == nil {
			for _, item := range l.Items {
				inv.templates = append(inv.templates, item.Name)
			}
		}
	}
	return inv, nil
}

func offerOf(kind policy.Kind, item wire.Item) policy.Offer {
	offer := policy.Offer{Kind: kind, Name: item.Name, Argument: argumentsOf(kind, item.Raw)}
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
