package main

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// listingTimeout bounds connecting and listing together.
const listingTimeout = time.Minute

// takeInventory connects to the target as a client and returns what it lists.
func takeInventory(ctx context.Context, t *target, log hclog.Logger) (inventory, error) {
	server, err := t.open(inheritAll, &limitFlags{}, nil, log)
	if err != nil {
		return inventory{}, err
	}
	defer server.Close()
	inEmergency(ctx, server.Kill)
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	l := newLister()
	conn, err := server.Dial(ctx, l.opening(), l)
	if _, other := errors.AsType[*upstream.EraError](err); other {
		return inventory{}, err
	}
	if err != nil {
		return inventory{}, fmt.Errorf("%w; see that the server runs by itself, or what it says with --log-level info", err)
	}
	defer conn.Close()
	inv, err := l.inventory(ctx, conn)
	if err != nil {
		return inventory{}, fmt.Errorf("listing what %s offers: %w", t, err)
	}
	return inv, nil
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
	var hints struct {
		Annotations struct {
			ReadOnly   bool `json:"readOnlyHint"`
			Idempotent bool `json:"idempotentHint"`
		} `json:"annotations"`
	}
	// Hints that cannot be read are no hints.
	if err := json.Unmarshal(item.Raw, &hints); err != nil {
		return policy.Offer{Kind: kind, Name: item.Name}
	}
	a := hints.Annotations
	return policy.Offer{Kind: kind, Name: item.Name, ReadOnly: a.ReadOnly, Idempotent: a.Idempotent}
}
