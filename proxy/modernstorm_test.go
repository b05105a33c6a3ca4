package proxy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// TestModernStorm is the storm of the modern era: several principals and legacy
// sessions at once, over each era upstream, asked in the middle of calls, of which
// some come back, some are cancelled, and some never come; the mode changes, and
// connections die. Every request has one answer, and a question reaches the one alone
// whose call it belongs to.
func TestModernStorm(t *testing.T) {
	for _, key := range []runs.Kind{runs.Process, runs.Principal} {
		for _, share := range []bool{false, true} {
			for _, era := range []func(*proxy.Config, *server){func(*proxy.Config, *server) {}, modernUpstream} {
				r := newRig(t, review, era, keys(key), sharing(true), with(func(c *proxy.Config) {
					c.Share, c.TurnTimeout, c.CancelGrace, c.CallTimeout = share, 50*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
				}))
				r.up.detach = share
				modernStorm(r)
			}
		}
	}
}

func modernStorm(r *rig) {
	var clients, answering sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		answering.Go(func() { r.weather(stop) })
	}
	for n := range 6 {
		clients.Go(func() { r.wander(n) })
	}
	clients.Wait()
	r.p.Close()
	close(stop)
	answering.Wait()
}

// weather is the upstream.
func (r *rig) weather(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case k := <-r.up.arrived:
			switch n := rand.IntN(20); {
			case n < 5 && strings.HasPrefix(k.m.Method, "tools/"):
				tool := k.m.P.Name + string(k.m.Bytes(k.m.P.Arguments))
				k.conn.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":%q}}`, k.id, tool), k)
				if n < 3 {
					k.result(ok)
				}
			case n < 7:
				k.result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}},"requestState":"s"}`)
			case n < 8:
				k.conn.end()
			case n < 9:
				k.conn.says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, k)
				k.result(failed)
			case n < 10:
				k.fail(-32601)
			default:
				k.result(ok)
			}
		}
	}
}

// wander is a client of the modern era.
func (r *rig) wander(n int) {
	c := r.as(observe.Peer{Principal: wire.Principal{Issuer: "i", Subject: fmt.Sprint(n % 3)}})
	var all []*reply
	for turn := range 60 {
		tool := reviewTools[rand.IntN(len(reviewTools))]
		params := fmt.Sprintf(`{"name":%q,"arguments":{"s":%d}}`, tool, n)
		switch rand.IntN(12) {
		case 0:
			all = append(all, c.request("tools/list", meta("")))
		case 1:
			s := c.stream("listen")
			raw := `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":` + meta(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///plan"]}}`) + "}"
			rest := c.s.Handle(read(c.t, raw, wire.FromClient), s)
			cancelSoon(rest)
			if rest != nil {
				go rest.Wait()
			}
			all = append(all, &reply{stream: s, id: 9})
		case 2:
			s := c.stream("cancelled")
			rest := c.s.Handle(read(c.t, `{"jsonrpc":"2.0","id":10,"method":"tools/call","params":`+meta(params)+"}", wire.FromClient), s)
			cancelSoon(rest)
			if rest != nil && !rest.Detach(func() {}) {
				go rest.Wait()
			}
			all = append(all, &reply{stream: s, id: 10})
		case 3:
			if n == 0 {
				r.p.SetMode([]runs.Mode{runs.Enforce, runs.Shadow}[turn%2])
			}
		default:
			call := c.request("tools/call", meta(params))
			all = append(all, call)
			if turn%2 == 0 {
				all = append(all, c.follow(call, params, fmt.Sprintf(`{\"s\":%d}`, n))...)
			}
		}
	}
	for _, reply := range all {
		select {
		case <-reply.answered:
		case <-time.After(20 * time.Second):
			r.t.Errorf("request %d (%s) has no answer", reply.id, reply.name)
		}
		reply.mu.Lock()
		if len(reply.answers) > 1 {
			r.t.Errorf("request %d has answers %q", reply.id, reply.answers)
		}
		reply.mu.Unlock()
	}
}

func cancelSoon(rest wire.Pending) {
	if c, ok := rest.(wire.Cancellable); ok {
		time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, c.Cancel)
	}
}

// follow comes back with what a call is asked for, as long as it is asked.
func (c *client) follow(call *reply, params, mine string) (all []*reply) {
	for range 5 {
		select {
		case <-call.answered:
		case <-time.After(20 * time.Second):
			return all
		}
		var m struct {
			Result struct {
				InputRequests map[string]json.RawMessage `json:"inputRequests"`
				RequestState  string                     `json:"requestState"`
			} `json:"result"`
		}
		answer := call.wait()
		if json.Unmarshal([]byte(answer), &m) != nil || !strings.HasPrefix(m.Result.RequestState, "fsm1.") {
			return all
		}
		var responses []string
		for key, asked := range m.Result.InputRequests {
			responses = append(responses, fmt.Sprintf(`%q:{"action":"accept"}`, key))
			if strings.Contains(string(asked), `\"s\"`) && !strings.Contains(string(asked), mine) {
				c.t.Errorf("asked what belongs to another's call: %s", answer)
			}
		}
		call = c.request("tools/call", meta(strings.TrimSuffix(params, "}")+fmt.Sprintf(`,"inputResponses":{%s},"requestState":%q}`,
			strings.Join(responses, ","), m.Result.RequestState)))
		all = append(all, call)
	}
	return all
}
