package asks

import (
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// errExcess ends a search: what it was for is found.
var errExcess = errors.New("found")

// Excess finds the first input request in a result that the upstream may not make, in the
// task that stands in it and in the result of that. Members that some
// reader takes for those count as well.
func Excess(result []byte, may func(method string) bool) (method string, found bool) {
	return excessIn(result, may, 2)
}

func excessIn(result []byte, may func(method string) bool, more int) (method string, found bool) {
	is := func(name, key string) bool { return name == key || wire.Lookalike(name, key) }
	_ = wire.Members(result, func(name string, at wire.Span) error {
		value := result[at.Start:at.End]
		switch {
		case is(name, "inputRequests"):
			method, found = excess(value, may)
		case more > 0 && (is(name, "task") || is(name, "result")) && value[0] == '{':
			method, found = excessIn(value, may, more-1)
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
func excess(requests []byte, may func(method string) bool) (method string, found bool) {
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
			if method, _ = wire.Text(request[at.Start:at.End]); !may(method) {
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
