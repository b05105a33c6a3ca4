package telemetry_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// What telling costs one call, decided and relayed, over an upstream that answers
// at once.
func BenchmarkCall(b *testing.B) {
	for name, tell := range map[string]func(b *testing.B) observe.Telemetry{
		"nobody": func(*testing.B) observe.Telemetry { return observe.Telemetry{} },
		"metrics": func(*testing.B) observe.Telemetry {
			return observe.Telemetry{Meter: telemetry.NewMetrics(telemetry.About{})}
		},
		"audit": func(b *testing.B) observe.Telemetry {
			a, err := telemetry.NewAudit(telemetry.AuditConfig{Path: b.TempDir() + "/audit"})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = a.Shutdown(context.Background()) })
			return observe.Telemetry{Auditor: a}
		},
	} {
		b.Run(name, func(b *testing.B) { benchmarkCall(b, tell(b)) })
	}
}

func benchmarkCall(b *testing.B, tell observe.Telemetry) {
	p, _ := policy.Parse("plan.yaml", []byte(plan))
	relay, err := proxy.New(proxy.Config{Policy: p, Telemetry: tell,
		Dial: func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error) {
			return &echo{done: make(chan struct{})}, nil
		},
		Notifier: func(send func(uint8) bool) surface.Notifier { return notify.New(send) }})
	if err != nil {
		b.Fatal(err)
	}
	defer relay.Close()
	s := relay.Open(void{})
	s.Handle(message(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`), void{}).Wait()
	m := message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if p := s.Handle(m, void{}); p != nil && !p.Detach(func() {}) {
			p.Wait()
		}
	}
}

// echo is an upstream that answers at once.
type echo struct{ done chan struct{} }

func (*echo) Era() wire.Era         { return wire.Legacy }
func (*echo) Listen([]string) error { return nil }
func (*echo) Hello() *wire.Message {
	return answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
}
func (*echo) Start(*wire.Message, any) wire.Call { return echoed{} }
func (*echo) Notify([]byte) error                { return nil }
func (*echo) List(context.Context, wire.ListKind) (*wire.List, error) {
	return listed, nil
}
func (*echo) Cached(wire.ListKind) *wire.List { return listed }
func (e *echo) Done() <-chan struct{}         { return e.done }
func (e *echo) Close()                        { close(e.done) }

var listed = func() *wire.List {
	l, _ := wire.NewList(wire.Tools, []*wire.Message{answer(`{"tools":[{"name":"look"}]}`)})
	return l
}()

var echoAnswer = answer(`{"content":[{"type":"text","text":"look"}]}`)

func answer(result string) *wire.Message {
	m, err := wire.Read(wire.ResultAnswer([]byte(strconv.Itoa(1)), []byte(result)), wire.FromUpstream)
	if err != nil {
		panic(err)
	}
	return m
}

// echoed is a call that is over.
type echoed struct{}

func (echoed) Wait(context.Context) (*wire.Message, error) { return echoAnswer, nil }
func (echoed) Cancel([]byte)                               {}
func (echoed) Overdue()                                    {}
func (echoed) Then(done func(*wire.Message, error)) (func(), bool) {
	done(echoAnswer, nil)
	return func() {}, true
}

// void is a client that reads nothing.
type void struct{}

func (void) Send([]byte) bool { return true }
func (void) Answer([]byte)    {}
func (void) Listening() bool  { return true }
