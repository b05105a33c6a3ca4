package register_test

import (
	"fmt"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// full returns registers with a set of so many texts.
func full(b *testing.B, texts int) *register.Registers {
	b.Helper()
	r := register.New(register.NewSchema([]register.Declaration{{Name: "reads", Kind: guard.TextSet}, {Name: "plan", Kind: guard.Text}, {Name: "n", Kind: guard.Counter}}), 8<<20)
	for i := range texts {
		r.Apply(edge(add("reads", fmt.Sprint("/work/some/file", i))))
	}
	return r
}

// What a call costs that sets something, from its decision to its end, with a view of the values before and after.
func BenchmarkCall(b *testing.B) {
	for name, e := range map[string][]register.Change{
		"add what is there": edge(add("reads", "/work/some/file7")), "count": edge(add("n", int64(1))), "assign": edge(assign("plan", "p")),
		"add and remove": nil,
	} {
		b.Run(name, func(b *testing.B) {
			r := full(b, 1000)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x := e
				if x == nil {
					x = edge(add("reads", "/work/a"))
					if i%2 == 1 {
						x = edge(remove("reads", "/work/a"))
					}
				}
				r.View()
				res, err := r.Reserve(edges(x, nil))
				if err != nil {
					b.Fatal(err)
				}
				changes, _ := r.Settle(res, 0, nil)
				r.Apply(changes)
			}
		})
	}
}
