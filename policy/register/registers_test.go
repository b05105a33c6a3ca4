package register_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
	"pgregory.net/rapid"
)

func schema() *register.Schema {
	return register.NewSchema([]register.Declaration{
		{Name: "plan", Kind: guard.Text}, {Name: "total", Kind: guard.Number}, {Name: "done", Kind: guard.Boolean},
		{Name: "n", Kind: guard.Counter}, {Name: "reads", Kind: guard.TextSet, Max: 3}, {Name: "tags", Kind: guard.TextSet, Max: 5},
	})
}

func assign(name string, v any) register.Change {
	return register.Change{Register: name, Values: []any{v}}
}

func empty(name string) register.Change {
	return register.Change{Register: name, Operation: register.Empty}
}

func add(name string, values ...any) register.Change {
	return register.Change{Register: name, Operation: register.Add, Values: values}
}

func remove(name string, values ...any) register.Change {
	return register.Change{Register: name, Operation: register.Remove, Values: values}
}

// an edge with what stands on it.
func edge(changes ...register.Change) []register.Change { return changes }

// edges are those of a call.
func edges(all ...[]register.Change) [][]register.Change { return all }

// reason returns why something was refused, "" if it was not.
func reason(err error) string {
	if err == nil {
		return ""
	}
	own, ok := errors.AsType[*register.Error](err)
	if !ok {
		return fmt.Sprintf("%T", err)
	}
	return own.Reason.String()
}

// do makes changes as a call of its own.
func do(t testing.TB, r *register.Registers, changes ...register.Change) []string {
	t.Helper()
	res, err := r.Reserve(edges(changes))
	if err != nil {
		t.Fatal(err)
	}
	settled, err := r.Settle(res, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Apply(settled)
}

func show(r *register.Registers) string { return string(r.View().AppendJSON(nil)) }

const begun = `{"plan":null,"total":null,"done":null,"n":0,"reads":[],"tags":[]}`

func TestRegistersBeginAndChange(t *testing.T) {
	r := register.New(schema(), 1<<10)
	if got := show(r); got != begun {
		t.Errorf("begun: %s", got)
	}
	for _, c := range []struct {
		change register.Change
		want   []string
		json   string
	}{
		{assign("plan", "a\n\u00e4"), []string{"plan"}, `"a\nä"`},
		{assign("plan", "a\n\u00e4"), nil, `"a\nä"`},
		{empty("plan"), []string{"plan"}, `null`},
		{empty("plan"), nil, `null`},
		{assign("total", 1e21), []string{"total"}, `1e+21`},
		{assign("done", false), []string{"done"}, `false`},
		{add("n", int64(3), int64(-1)), []string{"n"}, `2`},
		{add("n", int64(-2)), []string{"n"}, `0`},
		{assign("n", int64(0)), nil, `0`},
		{assign("n", int64(-7)), []string{"n"}, `-7`},
		{empty("n"), []string{"n"}, `0`},
		{add("reads", "b", "a", "b"), []string{"reads"}, `["b","a"]`},
		{add("reads", "a"), nil, `["b","a"]`},
		{add("reads"), nil, `["b","a"]`},
		{remove("reads", "b", "x"), []string{"reads"}, `["a"]`},
		{remove("reads", "x"), nil, `["a"]`},
		{add("reads", "b"), []string{"reads"}, `["a","b"]`},
		{empty("reads"), []string{"reads"}, `[]`},
		{empty("reads"), nil, `[]`},
		{remove("reads", "a"), nil, `[]`},
	} {
		if got := do(t, r, c.change); !slices.Equal(got, c.want) {
			t.Errorf("%+v changes %q", c.change, got)
		}
		if got := string(r.View().AppendRegister(nil, c.change.Register)); got != c.json {
			t.Errorf("%+v: %s, not %s", c.change, got, c.json)
		}
	}
	do(t, r, assign("plan", "x"), add("reads", "x"), add("n", int64(1)))
	r.Begin()
	if got := show(r); got != begun || r.Bytes() != 0 {
		t.Errorf("begun anew: %s, %d bytes", got, r.Bytes())
	}
}

func TestWhatDoesNotFit(t *testing.T) {
	long := strings.Repeat("x", register.MaxText+1)
	r := register.New(schema(), 10<<10)
	for _, c := range []struct {
		change register.Change
		want   string
	}{
		{assign("plan", long), "unfit"}, {add("reads", long), "unfit"}, {remove("reads", long), "unfit"},
		{assign("plan", "\xff"), "unfit"}, {assign("plan", int64(1)), "unfit"}, {assign("plan", nil), "unfit"}, {add("plan", "x"), "unfit"},
		{assign("total", math.NaN()), "unfit"}, {assign("total", math.Inf(1)), "unfit"}, {assign("total", int64(1)), "unfit"},
		{assign("done", "true"), "unfit"}, {add("done", true), "unfit"}, {assign("n", 1.0), "unfit"}, {remove("n", int64(1)), "unfit"},
		{assign("reads", "x"), "unfit"}, {add("reads", int64(1)), "unfit"}, {assign("typo", "x"), "unfit"},
		{add("n", int64(register.MaxCounter), int64(1)), "no room"}, {assign("n", int64(math.MinInt64)), "no room"},
		{add("reads", "a", "b", "c", "d"), "no room"}, {add("reads", "a", "b", "c", "a"), ""}, {assign("plan", long[1:]), ""},
		{register.Change{Register: "plan"}, "unfit"}, {register.Change{Register: "plan", Operation: 9, Values: []any{"x"}}, "unfit"},
	} {
		res, err := r.Reserve(edges(edge(c.change)))
		if reason(err) != c.want {
			t.Errorf("%+v: %v", c.change, err)
		}
		res.GiveBack()
		if r.Bytes() != 0 || show(r) != begun {
			t.Fatalf("%+v is left behind: %d, %s", c.change, r.Bytes(), show(r))
		}
	}
}

func TestOneHundredAndOneCallsAgainstASetOfOneHundred(t *testing.T) {
	r := register.New(register.NewSchema([]register.Declaration{{Name: "reads", Kind: guard.TextSet, Max: 100}}), 256<<10)
	var held []*register.Reservation
	for i := range 150 {
		x := edge(add("reads", fmt.Sprint("file", i)))
		// The same on each of its edges, as a set beside a list of outcomes has it, and once elsewhere.
		all := edges(x, x, nil, x)
		if i%2 == 1 {
			all = append(all, edge(add("reads", "other")))
		}
		res, err := r.Reserve(all)
		if want := map[bool]string{true: "no room"}[i >= 100]; reason(err) != want {
			t.Fatalf("call %d: %v", i, err)
		}
		if res != nil {
			held = append(held, res)
		}
	}
	for i, res := range held {
		changes, err := r.Settle(res, 3, nil)
		if err != nil || len(r.Apply(changes)) != 1 {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if n := r.View().Register("reads").(guard.Set).Len(); n != 100 {
		t.Errorf("%d texts", n)
	}
	if _, err := r.Reserve(edges(edge(add("reads", "file7")))); err != nil {
		t.Errorf("a text that is in the full set: %v", err)
	}
}

func TestOfSeveralEdgesTheMostIsKept(t *testing.T) {
	r := register.New(schema(), 300)
	res, err := r.Reserve(edges(edge(assign("plan", strings.Repeat("x", 200))), edge(assign("done", true)), edge(add("reads", "a"))))
	if err != nil || r.Bytes() != 248 {
		t.Fatalf("%d bytes, %v", r.Bytes(), err)
	}
	if _, err := r.Reserve(edges(edge(add("reads", "b")))); reason(err) != "no room" {
		t.Errorf("%v", err)
	}
	changes, _ := r.Settle(res, 1, nil)
	r.Apply(changes)
	do(t, r, add("reads", "b"))
}

func TestACounterHasRoomForWhatItMayBeSetTo(t *testing.T) {
	r := register.New(schema(), 300)
	res, err := r.Reserve(edges(edge(assign("n", int64(register.MaxCounter)))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reserve(edges(edge(add("n", int64(1))))); reason(err) != "no room" {
		t.Errorf("one more than it may be set to: %v", err)
	}
	do(t, r, add("n", int64(-1)))
	res.GiveBack()
	do(t, r, add("n", int64(1)))
}

// A text that calls under way replace keeps its room, whatever another makes of it.
func TestATextThatIsReplacedKeepsItsRoom(t *testing.T) {
	r := register.New(schema(), 300)
	long := strings.Repeat("x", 200)
	do(t, r, assign("plan", long))
	res, err := r.Reserve(edges(edge(assign("plan", strings.Repeat("y", 200)))))
	if err != nil {
		t.Fatal(err)
	}
	do(t, r, empty("plan"))
	if _, err := r.Reserve(edges(edge(add("reads", "b")))); reason(err) != "no room" {
		t.Errorf("%v", err)
	}
	res.GiveBack()
	if r.Bytes() != 0 {
		t.Errorf("%d bytes are kept for nobody", r.Bytes())
	}
}

// What is in a set, or is sure to come, takes no room; and keeps it if it is removed meanwhile.
func TestTextsThatAreThereTakeNoRoom(t *testing.T) {
	r := register.New(schema(), 10<<10)
	do(t, r, add("reads", "a", "b", "c"))
	again, err := r.Reserve(edges(edge(add("reads", "a"))))
	if err != nil {
		t.Fatal(err)
	}
	do(t, r, remove("reads", "a"))
	if _, err := r.Reserve(edges(edge(add("reads", "d")))); reason(err) != "no room" {
		t.Fatalf("the room of a text that a call under way adds again: %v", err)
	}
	same, err := r.Reserve(edges(edge(add("reads", "a"))))
	if err != nil {
		t.Fatal(err)
	}
	again.GiveBack()
	if _, err := r.Reserve(edges(edge(add("reads", "d")))); reason(err) != "no room" {
		t.Fatalf("the room of a text that another call under way adds: %v", err)
	}
	same.GiveBack()
	same.GiveBack()
	do(t, r, add("reads", "d"))
	if got := string(r.View().AppendRegister(nil, "reads")); got != `["b","c","d"]` {
		t.Error(got)
	}
}

func TestLateChangesFitOrNothingIsDone(t *testing.T) {
	r := register.New(schema(), 10<<10)
	do(t, r, add("reads", "a", "b"))
	res, err := r.Reserve(edges(edge(add("reads", "c"), assign("plan", "p")), edge(assign("total", 1.0))))
	if err != nil {
		t.Fatal(err)
	}
	before := r.Bytes()
	for _, late := range [][]register.Change{edge(add("reads", "d")), edge(add("tags", "x"), add("tags", 1.0)), edge(assign("done", "x"))} {
		if _, err := r.Settle(res, 0, late); err == nil || r.Bytes() != before {
			t.Fatalf("%+v: %v, %d bytes, of %d", late, err, r.Bytes(), before)
		}
	}
	if _, err := r.Reserve(edges(edge(add("reads", "e")))); reason(err) != "no room" {
		t.Fatalf("what is reserved is gone: %v", err)
	}
	changes, err := r.Settle(res, 1, edge(add("reads", "z"), assign("done", true), assign("gone", "x")))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Apply(changes); !slices.Equal(got, []string{"total", "reads", "done"}) {
		t.Errorf("changed: %q", got)
	}
	if got, want := show(r), `{"plan":null,"total":1,"done":true,"n":0,"reads":["a","b","z"],"tags":[]}`; got != want {
		t.Error(got)
	}
}

func TestAViewIsAsOfItsTime(t *testing.T) {
	r := register.New(schema(), 10<<10)
	do(t, r, add("reads", "a", "b"), assign("plan", "p"))
	then := r.View()
	was := string(then.AppendJSON(nil))
	do(t, r, add("reads", "c"), assign("plan", "q"), add("n", int64(1)))
	do(t, r, remove("reads", "a"))
	r.Begin()
	do(t, r, add("reads", "z"))
	set := then.Register("reads").(guard.Set)
	if got := string(then.AppendJSON(nil)); got != was || set.Contains("c") || set.Contains("z") || !set.Contains("a") || set.Len() != 2 {
		t.Errorf("%s, and then %s", was, got)
	}
	if then.Register("typo") != nil {
		t.Error("a register that is not declared has a value")
	}
	now := r.View()
	if now != r.View() {
		t.Error("a view of what has not changed is made twice")
	}
}

func TestCallsOfBeforeTheRunBeganAnew(t *testing.T) {
	r := register.New(schema(), 10<<10)
	res, _ := r.Reserve(edges(edge(add("reads", "a"), assign("plan", "p"), add("n", int64(1)))))
	r.Begin()
	if r.Bytes() != 0 {
		t.Errorf("%d bytes are kept", r.Bytes())
	}
	changes, err := r.Settle(res, 0, edge(assign("plan", "late")))
	if err != nil || len(r.Apply(changes)) > 0 || show(r) != begun || r.Bytes() != 0 {
		t.Errorf("%v, %v, %s", changes, err, show(r))
	}
}

func TestAdopt(t *testing.T) {
	r := register.New(schema(), 10<<10)
	do(t, r, add("reads", "a", "b", "c"), add("tags", "x"), assign("plan", "p"), assign("total", 2.0), add("n", int64(5)))
	under, err := r.Reserve(edges(edge(add("tags", "y"), add("n", int64(1)), assign("total", 3.0)), edge(add("tags", "z"))))
	if err != nil {
		t.Fatal(err)
	}
	alone, err := r.Reserve(edges(edge(add("tags", "alone"))))
	if err != nil {
		t.Fatal(err)
	}
	then, was := r.View(), show(r)
	r = r.Adopt(register.NewSchema([]register.Declaration{
		{Name: "new", Kind: guard.Counter}, {Name: "n", Kind: guard.Counter}, {Name: "plan", Kind: guard.TextSet, Max: 9},
		{Name: "reads", Kind: guard.TextSet, Max: 2}, {Name: "total", Kind: guard.Text},
	}), 10<<10)
	if got, want := show(r), `{"new":0,"n":5,"plan":[],"reads":["a","b","c"],"total":null}`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if string(then.AppendJSON(nil)) != was {
		t.Error("a view of before has changed")
	}
	if _, err := r.Reserve(edges(edge(add("reads", "d")))); reason(err) != "no room" {
		t.Errorf("a smaller max takes more: %v", err)
	}
	do(t, r, add("reads", "a"))
	do(t, r, remove("reads", "a"))
	changes, err := r.Settle(under, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Apply(changes); !slices.Equal(got, []string{"n"}) {
		t.Errorf("changed: %q", got)
	}
	alone.GiveBack()
	do(t, r, empty("reads"))
	if r.Bytes() != 0 {
		t.Errorf("%d bytes are left", r.Bytes())
	}
	if r.Adopt(nil, 1) != nil || register.New(nil, 1) != nil || (*register.Registers)(nil).Adopt(schema(), 1) == nil {
		t.Error("a policy without registers has some")
	}
}

func TestNoRegistersCostNothing(t *testing.T) {
	r := register.New(register.NewSchema(nil), 1<<10)
	if n := testing.AllocsPerRun(10, func() {
		res, err := r.Reserve(nil)
		changes, late := r.Settle(res, 1, nil)
		r.Begin()
		if r != nil || err != nil || late != nil || r.Apply(changes) != nil || r.View().Register("x") != nil || r.Bytes() != 0 {
			t.Error("there are registers")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if got := show(r); got != "{}" {
		t.Error(got)
	}
	if _, err := r.Reserve(edges(edge(add("x", "y")))); reason(err) != "unfit" {
		t.Error(err)
	}
}

// What registers cost is about what they take, for sets of short texts and of long ones.
func TestBytesAreAboutWhatIsTaken(t *testing.T) {
	const runs, budget = 100, 256 << 10
	for _, length := range []int{6, 100, 4000} {
		s := register.NewSchema([]register.Declaration{{Name: "a", Kind: guard.TextSet}, {Name: "b", Kind: guard.TextSet}})
		held := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := held()
		all := make([]*register.Registers, runs)
		for i := range all {
			all[i] = register.New(s, budget)
			for n := 0; ; n++ {
				res, err := all[i].Reserve(edges(edge(add([]string{"a", "b"}[n%2], fmt.Sprintf("%0*d", length, n)))))
				if err != nil {
					break
				}
				changes, _ := all[i].Settle(res, 0, nil)
				all[i].Apply(changes)
			}
			if got := all[i].Bytes(); got > budget || got < budget-length-200 {
				t.Fatalf("%d bytes, of %d", got, budget)
			}
		}
		took := float64(held()-before) / runs / budget
		t.Logf("texts of %d: %.2f of the budget", length, took)
		if took > 1.2 {
			t.Errorf("texts of %d take %.2f of the budget", length, took)
		}
		runtime.KeepAlive(all)
	}
}

// naive is a run's registers as one would write them down.
type naive struct {
	values map[string]any // string, float64, bool, int64, []string
}

func (n *naive) apply(x register.Change) {
	set, _ := n.values[x.Register].([]string)
	switch x.Operation {
	case register.Assign:
		n.values[x.Register] = x.Values[0]
	case register.Empty:
		delete(n.values, x.Register)
	case register.Add:
		for _, v := range x.Values {
			switch v := v.(type) {
			case int64:
				sum, _ := n.values[x.Register].(int64)
				n.values[x.Register] = sum + v
			case string:
				if !slices.Contains(set, v) {
					set = append(slices.Clone(set), v)
				}
				n.values[x.Register] = set
			}
		}
	case register.Remove:
		n.values[x.Register] = slices.DeleteFunc(slices.Clone(set), func(text string) bool { return slices.Contains(x.Values, any(text)) })
	}
}

// compare says what a view has other than the naive registers.
func (n *naive) compare(v *register.View) string {
	for _, name := range []string{"plan", "total", "done", "n", "reads", "tags"} {
		got, want := v.Register(name), n.values[name]
		if set, ok := got.(guard.Set); ok {
			got = set.Values()
			if texts, _ := want.([]string); !slices.Equal(set.Values(), texts) {
				return fmt.Sprintf("%s is %q, not %q", name, got, want)
			}
			for _, text := range set.Values() {
				if !set.Contains(text) {
					return name + " does not contain what is in it"
				}
			}
			continue
		}
		if texts, ok := want.([]string); ok && len(texts) == 0 || want == any(int64(0)) {
			want = nil
		}
		if got != want {
			return fmt.Sprintf("%s is %v, not %v", name, got, want)
		}
	}
	return ""
}

// bytes returns what the values cost by the book.
func (n *naive) bytes() (sum int) {
	for _, v := range n.values {
		switch v := v.(type) {
		case string:
			sum += 48 + len(v)
		case []string:
			for _, text := range v {
				sum += 96 + len(text)
			}
		}
	}
	return sum
}

func drawChange(t *rapid.T) register.Change {
	text := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "gggggggggggggggggggggggggggggggggggggggggg"})
	number := rapid.SampledFrom([]int64{-2, -1, 0, 1, 2, register.MaxCounter - 1, -register.MaxCounter + 1})
	set := rapid.SampledFrom([]string{"reads", "tags"})
	texts := func() (out []any) {
		for range rapid.IntRange(1, 3).Draw(t, "texts") {
			out = append(out, text.Draw(t, "text"))
		}
		return out
	}
	switch rapid.IntRange(0, 11).Draw(t, "change") {
	case 0:
		return assign("plan", strings.Repeat(text.Draw(t, "plan"), 3))
	case 1:
		return assign("total", rapid.SampledFrom([]float64{0, 1.5, -1}).Draw(t, "total"))
	case 2:
		return assign("done", rapid.Bool().Draw(t, "done"))
	case 3:
		return assign("n", number.Draw(t, "n"))
	case 4, 5:
		return add("n", number.Draw(t, "delta"))
	case 6:
		return empty(rapid.SampledFrom([]string{"plan", "total", "done", "n", "reads", "tags"}).Draw(t, "empty"))
	case 7:
		return remove(set.Draw(t, "set"), texts()...)
	default:
		return add(set.Draw(t, "set"), texts()...)
	}
}

// underWay is a call under way.
type underWay struct {
	res   *register.Reservation
	edges [][]register.Change
	life  int
}

// In whatever order calls are decided and end, what was reserved fits, what is not done is given back, and the values
// are what a list of the changes makes them.
func TestRegistersAreWhatWasDone(t *testing.T) {
	refused, late := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.SampledFrom([]int{300, 700, 1 << 20}).Draw(t, "budget")
		r := register.New(schema(), budget)
		model := &naive{map[string]any{}}
		var calls []underWay
		life := 0
		type look struct {
			*register.View
			naive
		}
		var looks []look
		fits := func(t *rapid.T) {
			n, _ := model.values["n"].(int64)
			reads, _ := model.values["reads"].([]string)
			tags, _ := model.values["tags"].([]string)
			if len(reads) > 3 || len(tags) > 5 || n > register.MaxCounter || n < -register.MaxCounter || model.bytes() > budget {
				t.Fatalf("more than there is room for: %v", model.values)
			}
		}
		take := func(t *rapid.T) underWay {
			i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
			c := calls[i]
			calls = slices.Delete(calls, i, i+1)
			return c
		}
		t.Repeat(map[string]func(*rapid.T){
			"decide": func(t *rapid.T) {
				edges := make([][]register.Change, rapid.IntRange(1, 3).Draw(t, "edges"))
				for i := range edges {
					for range rapid.IntRange(0, 2).Draw(t, "changes") {
						edges[i] = append(edges[i], drawChange(t))
					}
				}
				before := r.Bytes()
				res, err := r.Reserve(edges)
				switch {
				case err == nil:
					calls = append(calls, underWay{res, edges, life})
				case r.Bytes() != before:
					t.Fatalf("refused, and %d bytes of %d", r.Bytes(), before)
				default:
					refused++
				}
			},
			"end": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip("none under way")
				}
				c := take(t)
				i := rapid.IntRange(0, len(c.edges)-1).Draw(t, "edge")
				var result []register.Change
				if rapid.Bool().Draw(t, "late") && (c.res != nil || c.life == life) {
					result = edge(drawChange(t))
				}
				changes, err := r.Settle(c.res, i, result)
				if err != nil {
					if len(result) == 0 {
						t.Fatalf("what was reserved does not fit: %v", err)
					}
					late++
					result = nil
					if changes, err = r.Settle(c.res, i, nil); err != nil {
						t.Fatal(err)
					}
				}
				changed := r.Apply(changes)
				if c.life != life {
					if len(changed) > 0 {
						t.Fatalf("a call of before changes %q", changed)
					}
					return
				}
				was := &naive{maps.Clone(model.values)}
				for _, x := range append(slices.Clip(c.edges[i]), result...) {
					model.apply(x)
				}
				fits(t)
				if (was.compare(r.View()) != "") && len(changed) == 0 {
					t.Fatal("something is other than before, and nothing has changed")
				}
			},
			"give back": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip("none under way")
				}
				take(t).res.GiveBack()
			},
			"begin": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					t.Skip("not now")
				}
				r.Begin()
				life++
				model.values = map[string]any{}
			},
			"look": func(t *rapid.T) {
				if len(looks) < 5 {
					looks = append(looks, look{r.View(), naive{maps.Clone(model.values)}})
				}
			},
			"": func(t *rapid.T) {
				if wrong := model.compare(r.View()); wrong != "" {
					t.Fatal(wrong)
				}
				for _, l := range looks {
					if wrong := l.compare(l.View); wrong != "" {
						t.Fatalf("a view of before: %s", wrong)
					}
				}
				if r.Bytes() > budget || r.Bytes() < model.bytes() {
					t.Fatalf("%d bytes are accounted for, of %d there are, and %d there may be", r.Bytes(), model.bytes(), budget)
				}
				if len(calls) == 0 && r.Bytes() != model.bytes() {
					t.Fatalf("%d bytes are kept for nobody", r.Bytes()-model.bytes())
				}
				again, err := register.Read(schema(), budget, r.View().AppendJSON(nil))
				if err != nil || show(again) != show(r) || again.Bytes() != model.bytes() {
					t.Fatalf("%s is read as %s: %v", show(r), show(again), err)
				}
			},
		})
	})
	if refused == 0 || late == 0 {
		t.Errorf("%d refused, %d late ones", refused, late)
	}
}

// One call alone is refused what does not fit, and nothing else.
func TestACallAloneIsRefusedWhatDoesNotFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := register.New(register.NewSchema([]register.Declaration{{Name: "reads", Kind: guard.TextSet, Max: 4}, {Name: "n", Kind: guard.Counter}}), 1<<20)
		members := map[string]bool{}
		for _, text := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 4, rapid.ID).Draw(t, "members") {
			members[text] = true
			r.Apply(edge(add("reads", text)))
		}
		edges, most := make([][]register.Change, 3), 0
		for i := range edges {
			texts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 0, 4).Draw(t, "texts")
			if len(texts) == 0 {
				continue
			}
			after := maps.Clone(members)
			var values []any
			for _, text := range texts {
				values = append(values, text)
				after[text] = true
			}
			edges[i] = edge(add("reads", values...))
			most = max(most, len(after))
		}
		res, err := r.Reserve(edges)
		if want := most > 4; (err != nil) != want {
			t.Fatalf("%v on %v: %v", edges, members, err)
		}
		res.GiveBack()
		if r.Bytes() != 97*len(members) {
			t.Fatalf("%d bytes for %v", r.Bytes(), members)
		}
	})
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{
		begun, `{"plan":"x","total":-0,"n":-5,"reads":["a","b","c","d"],"done":true}`, `{}`, `{"reads":["a","a"]}`, `{"reads":null}`, `{"n":1.5}`, `{"n":9007199254740992}`,
		`{"plan":"\ud800"}`, `{"plan":"x","plan":"y"}`, `{"total":1e999}`, `{"typo":1}`, `[]`, `{} {}`, ``, `{"plan":{}}`, `{"tags":[[]]}`, `{"total":5}x`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := register.Read(schema(), 1<<10, text)
		if err != nil {
			if r != nil {
				t.Fatal("registers beside an error")
			}
			return
		}
		again, err := register.Read(schema(), 1<<10, r.View().AppendJSON(nil))
		if err != nil || show(again) != show(r) || again.Bytes() != r.Bytes() {
			t.Fatalf("%s, and then %s: %v", show(r), show(again), err)
		}
	})
}

func TestWhatIsNoRegistersIsNotRead(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `null`, `{`, `{} {}`, `{}x`, `{"typo":1}`, `{"plan":1}`, `{"plan":"x","plan":"y"}`, `{"reads":["a","a"]}`, `{"reads":[1]}`, `{"reads":"a"}`, `{"n":1.5}`,
		`{"n":9007199254740992}`, `{"total":1e999}`, `{"plan":{}}`, `{"plan":["x"]}`, `{"plan":"\ud800"}`, `{"done":0}`, `{"plan":"` + strings.Repeat("x", register.MaxText+1) + `"}`,
	} {
		if r, err := register.Read(schema(), 1<<10, []byte(text)); err == nil {
			t.Errorf("%.40s is read as %s", text, show(r))
		}
	}
	if _, err := register.Read(nil, 0, []byte(`{}`)); err != nil {
		t.Error(err)
	}
}
