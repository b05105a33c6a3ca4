package proxy

import (
	"errors"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// errExcess ends a search: what it was for is found.
var errExcess = errors.New("found")

// errAsksTooMuch is an answer that is not passed on. Nothing has been done yet.
var errAsksTooMuch = &wire.CallError{Err: errors.New("the upstream asks the client for what the policy does not let it")}

// asksTooMuch reports whether an answer asks the client for what the policy does not let
// the upstream ask: by an "input required" result, in the state of a task, or by the
// error that sends the user to a URL.
func (c *call) asksTooMuch(m *wire.Message) bool {
	method, excess := "", false
	switch meaning := c.server.Meaning(c.m, m); {
	case m.Kind == wire.Failure:
		method = "elicitation/create"
		excess = m.ErrorCode == wire.CodeURLElicitation && !c.s.policyNow().UpstreamMay().Permits("elicitation")
	case meaning == bridge.InputRequired, meaning == bridge.Task, strings.HasPrefix(c.m.Method, "tasks/"):
		method, excess = c.s.excessIn(m.Bytes(m.Result), 2)
	}
	return excess && !c.s.overlooksAsk(method)
}

// excessIn finds the first input request that the upstream may not make in a result, in the
// task that stands in it and in the result of that: so many levels more. Members that some
// reader takes for those count as well.
func (s *session) excessIn(result []byte, more int) (method string, found bool) {
	is := func(name, key string) bool { return name == key || wire.Lookalike(name, key) }
	_ = wire.Members(result, func(name string, at wire.Span) error {
		value := result[at.Start:at.End]
		switch {
		case is(name, "inputRequests"):
			method, found = s.excess(value)
		case more > 0 && (is(name, "task") || is(name, "result")) && value[0] == '{':
			method, found = s.excessIn(value, more-1)
		}
		if found {
			return errExcess
		}
		return nil
	})
	return method, found
}

// excess finds the first of some input requests that the upstream may not make. A member
// that some reader takes for the method counts as one.
func (s *session) excess(requests []byte) (method string, found bool) {
	if requests == nil || string(requests) == "null" {
		return "", false
	}
	err := wire.Members(requests, func(_ string, at wire.Span) error {
		request, named := requests[at.Start:at.End], false
		err := wire.Members(request, func(name string, at wire.Span) error {
			if name != "method" && !wire.Lookalike(name, "method") {
				return nil
			}
			named = true
			if method, _ = wire.Text(request[at.Start:at.End]); !s.mayAsk(method) {
				return errExcess
			}
			return nil
		})
		if err == nil && !named {
			method, err = "", errExcess
		}
		return err
	})
	return method, err != nil
}

// giveUnfinished gives the client an answer that is no result yet, or may be none, where that
// means something else to it, or is not to reach it.
func (c *call) giveUnfinished(m *wire.Message) (wire.Pending, bool) {
	if told := c.outOfReach(m); told != nil {
		return c.answer(told), true
	}
	if c.asksTooMuch(m) {
		return c.denyAsk(m), true
	}
	if asked := c.client.Visit(c.m, m); asked != nil {
		return c.answer(asked), true
	}
	return nil, false
}

// denyAsk answers a call in place of an answer that asks its client too much.
func (c *call) denyAsk(m *wire.Message) wire.Pending {
	switch {
	case m.Kind == wire.Failure:
		return c.fail(wire.CodeInternal, "The server asks the user to visit a URL, which the policy does not let it. Nothing was done.")
	case c.gated && c.server.TaskState(c.m, m) != nil:
		c.s.log.Warn("a call was sent and may have happened: its outcome is unknown",
			c.aboutTarget(nil, "reason", "it has begun a task that asks the client for what upstream_may does not let it")...)
		c.interrupted(policy.OutcomeUnknown, refusal.Called(c.Kind, c.Name)+" was begun as a task that "+
			"asks the client for what the policy does not let it; it may still happen, or wait for ever.")
	default:
		c.unavailable(errAsksTooMuch)
	}
	return nil
}
