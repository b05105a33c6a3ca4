package streamhttp

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		sizes     []int
		sum, want int
	}{
		{nil, 100, math.MaxInt},
		{[]int{10, 90}, 100, math.MaxInt},
		{[]int{90, 20}, 100, 80},
		{[]int{90, 90, 10}, 100, 45},
		{[]int{50, 50, 50, 50}, 100, 25},
	} {
		got := level(slices.Clone(c.sizes), c.sum)
		after := 0
		for _, size := range c.sizes {
			after += min(size, got)
		}
		if got != c.want || after > c.sum {
			t.Errorf("%v to %d: cut to %d, which leaves %d; want %d", c.sizes, c.sum, got, after, c.want)
		}
	}
}

// Where all sessions together keep too much for clients that are away, the one that keeps the most forgets its oldest, and
// the others nothing.
func TestStoresHaveATotal(t *testing.T) {
	r := newRig(t, ServerConfig{StoreTotal: 16 << 10}, nil)
	greedy, modest := r.begin(revisionPriming), r.begin(revisionPriming)
	const few, many = 20, 200
	for i := range few {
		modest.own.Send(note(i))
	}
	for i := range many {
		greedy.own.Send(note(i))
	}
	total := func() int { return int(r.srv.stores.bytes.Load()) }
	eventually(t, "less is kept than there may be", func() bool { return total() <= 16<<10 })
	kept := modest.stream()
	for i := range few {
		kept.message(fmt.Sprintf(`{"data":%d}`, i))
	}
	var left []string
	greedy.own.Send(note(many))
	for rest := greedy.stream(); len(left) == 0 || left[len(left)-1] != string(note(many)); {
		if event := rest.next(); event.data != "" {
			left = append(left, event.data)
		}
	}
	if len(left) < many/5 || len(left) > many/2 {
		t.Errorf("of the greedy one's %d events %d are left", many, len(left))
	}
	modest.do(request("DELETE", "/mcp", "", modest.id)).want(t, 204, "")
	greedy.do(request("DELETE", "/mcp", "", greedy.id)).want(t, 204, "")
	if n := total(); n != 0 {
		t.Errorf("%d bytes are kept for nobody", n)
	}
}
