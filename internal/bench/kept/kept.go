// Package kept measures runs that are kept: what a store adds to their steps, how many are made at once, how many bytes
// each takes, and how soon runs are there again after a restart.
package kept

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bench/inprocess"
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// Config says what is measured.
type Config struct {
	URL    string // of the store
	Rounds int
	Window time.Duration // for which each figure is measured in a round
	Runs   int           // that are stored for a restart
	Dial   func() (bridge.Conn, error)
}

// Many is how many runs have their steps at once.
const Many = 64

// Figure is what was measured: medians over the rounds.
type Figure struct {
	Bare      time.Duration // of one bare commit of 400 bytes, p50
	Memory    time.Duration // of a step of a run in memory, p50
	Step      time.Duration // of one that is kept, p50
	Commits   float64       // how many bare commits it adds
	One, Many float64       // steps a second of one run, and of so many at once
	Times     float64       // the second by the first
	Bytes     float64       // that a step takes
	Restart   time.Duration // from the opening of the store to the first answer, with Runs in it
}

// Policy is what the runs go by: each echo is a step.
const Policy = `version: 1
initial: first
states:
  first: {tools: {echo: second}}
  second: {tools: {echo: first}}
`

func compile(source []byte) (*policy.Policy, error) {
	p, findings := policy.Parse("bench.yaml", source)
	return p, findings.Err()
}

// rig is a proxy over a store, "" for memory.
type rig struct {
	*inprocess.Crowd
	store *durable.Store
}

func (c *Config) open(ctx context.Context, url string) (r *rig, err error) {
	p, err := compile([]byte(Policy))
	if err != nil {
		return nil, err
	}
	r = &rig{}
	if url != "" {
		journal, err := stores.Open(ctx, stores.Config{URL: url, Run: "bench", Holder: "the benchmark"})
		if err != nil {
			return nil, err
		}
		r.store = durable.Open(durable.Config{Journal: journal, Compile: compile, Log: hclog.NewNullLogger()})
		if err := r.store.Keep(p, []byte(Policy)); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	r.Crowd, err = inprocess.NewCrowd(inprocess.Config{Policy: p, Runs: c.Runs + Many + 1, RunIdle: time.Hour, Dial: c.Dial, Store: r.store})
	return r, err
}

func (r *rig) close() error {
	if r.Crowd != nil {
		r.Crowd.Close()
	}
	if r.store == nil {
		return nil
	}
	return r.store.Close(context.Background())
}

// Measure measures a store, which is new.
func Measure(ctx context.Context, c Config) (f Figure, err error) {
	commits, err := openBare(ctx, c.URL)
	if err != nil {
		return f, err
	}
	defer commits.close()
	memory, err := c.open(ctx, "")
	if err != nil {
		return f, err
	}
	defer memory.close()
	kept, err := c.open(ctx, c.URL)
	if err != nil {
		return f, err
	}
	var id string
	if err = c.steps(ctx, &f, commits, memory, kept); err == nil {
		id, err = c.fill(ctx, kept)
	}
	if err := errors.Join(err, kept.close()); err != nil {
		return f, err
	}
	return f, c.restart(ctx, &f, id)
}

// steps measures commits, and steps with and without the store, in turns.
func (c *Config) steps(ctx context.Context, f *Figure, bare *bare, memory, kept *rig) error {
	ids := make([]string, Many)
	for i := range ids {
		var err error
		if ids[i], err = kept.Begin(); err != nil {
			return err
		}
	}
	free, err := memory.Begin()
	if err != nil {
		return err
	}
	var commits, plain, steps []time.Duration
	var added, one, many, times []float64
	empty, made := kept.store.Size(), 0
	for range c.Rounds {
		b, _, err := during(ctx, c.Window, 1, func(int) error { return bare.commit(ctx) })
		if err != nil {
			return err
		}
		m, _, err := during(ctx, c.Window/4, 1, func(int) error { return memory.Call(free, "echo") })
		if err != nil {
			return err
		}
		s, rate, err := during(ctx, c.Window, 1, func(int) error { return kept.Call(ids[0], "echo") })
		if err != nil {
			return err
		}
		all, rates, err := during(ctx, c.Window, Many, func(i int) error { return kept.Call(ids[i], "echo") })
		if err != nil {
			return err
		}
		made += len(s) + len(all)
		commits, plain, steps = append(commits, median(b)), append(plain, median(m)), append(steps, median(s))
		added = append(added, float64(median(s)-median(m))/float64(median(b)))
		one, many, times = append(one, rate), append(many, rates), append(times, rates/rate)
	}
	*f = Figure{Bare: median(commits), Memory: median(plain), Step: median(steps), Commits: median(added), One: median(one), Many: median(many), Times: median(times),
		Bytes: float64(kept.store.Size()-empty) / float64(made)}
	return nil
}

// during has callers do something over and over for a while, and returns how long each took, and how many it was a second.
func during(ctx context.Context, window time.Duration, callers int, do func(caller int) error) (took []time.Duration, rate float64, err error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		wait.Go(func() {
			var own []time.Duration
			var failed error
			for failed == nil && (len(own) == 0 || time.Since(begun) < window) {
				at := time.Now()
				failed = errors.Join(ctx.Err(), do(i))
				own = append(own, time.Since(at))
			}
			mu.Lock()
			took, err = append(took, own...), errors.Join(err, failed)
			mu.Unlock()
		})
	}
	wait.Wait()
	return took, float64(len(took)) / time.Since(begun).Seconds(), err
}

func median[T time.Duration | float64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// fill stores runs that have made a step each, and returns the handle of one.
func (c *Config) fill(ctx context.Context, kept *rig) (id string, err error) {
	var left atomic.Int64
	left.Store(int64(c.Runs))
	var wait sync.WaitGroup
	ids, errs := make([]string, Many), make([]error, Many)
	for i := range Many {
		wait.Go(func() {
			for errs[i] == nil && left.Add(-1) >= 0 {
				if ids[i], errs[i] = kept.Begin(); errs[i] == nil {
					errs[i] = errors.Join(ctx.Err(), kept.Call(ids[i], "echo"))
				}
			}
		})
	}
	wait.Wait()
	return slices.Max(ids), errors.Join(errs...) // some may have come too late for one
}

// restart measures how soon a run that is stored among many goes on.
func (c *Config) restart(ctx context.Context, f *Figure, id string) error {
	begun := time.Now()
	again, err := c.open(ctx, c.URL)
	if err != nil {
		return err
	}
	err = again.Call(id, "echo")
	f.Restart = time.Since(begun)
	return errors.Join(err, again.close())
}
