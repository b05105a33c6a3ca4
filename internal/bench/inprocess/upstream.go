package inprocess

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// latest is the revision of the protocol that the upstream speaks.
const latest = "2025-11-25"

// Upstream is a shared upstream that answers at once.
type Upstream struct {
	hello *wire.Message
	tools *wire.List
	none  *wire.List
	done  chan struct{}
	call  []byte
}

// NewUpstream returns an upstream whose answers are these results, of tools/list and of each call.
func NewUpstream(tools, call []byte) (*Upstream, error) {
	u := &Upstream{done: make(chan struct{}), call: call}
	var err error
	if u.hello, err = answer(`{"protocolVersion":"` + latest + `","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"instant","version":"1"}}`); err != nil {
		return nil, err
	}
	page, err := answer(string(tools))
	if err != nil {
		return nil, err
	}
	if u.tools, err = wire.NewList(wire.Tools, []*wire.Message{page}); err != nil {
		return nil, err
	}
	page, err = answer(`{"resources":[]}`)
	if err == nil {
		u.none, err = wire.NewList(wire.Resources, []*wire.Message{page})
	}
	return u, err
}

func answer(result string) (*wire.Message, error) {
	return wire.Read(wire.ResultAnswer([]byte("0"), []byte(result)), wire.FromUpstream)
}

func (u *Upstream) Era() wire.Era                        { return wire.Legacy }
func (u *Upstream) Hello() *wire.Message                 { return u.hello }
func (u *Upstream) Listen([]string) error                { return nil }
func (u *Upstream) Start(*wire.Message, any) wire.Call   { return call{u} }
func (u *Upstream) Notify([]byte) error                  { return nil }
func (u *Upstream) Cached(kind wire.ListKind) *wire.List { return u.list(kind) }
func (u *Upstream) Done() <-chan struct{}                { return u.done }
func (u *Upstream) Close()                               {}

func (u *Upstream) List(_ context.Context, kind wire.ListKind) (*wire.List, error) {
	return u.list(kind), nil
}

func (u *Upstream) list(kind wire.ListKind) *wire.List {
	if kind == wire.Tools {
		return u.tools
	}
	return u.none
}

type call struct{ *Upstream }

func (c call) Wait(context.Context) (*wire.Message, error) {
	return answer(string(c.Upstream.call))
}
func (c call) Then(func(*wire.Message, error)) (func(), bool) { return nil, false }
func (c call) Cancel([]byte)                                  {}
func (c call) Overdue()                                       {}
