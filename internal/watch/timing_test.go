package watch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// A clockwork is a Watch with the default times, in a bubble with its own clock,
// to which a test says the events.
type clockwork struct {
	t      *testing.T
	path   string
	events chan fsnotify.Event
	errors chan error
	kick   chan struct{}
	log    bytes.Buffer
	addErr error
	opened int
	began  time.Time
	got    chan delivery
}

type delivery struct {
	after time.Duration
	File
}

// inBubble runs test beside a Watch whose source is opened by open.
func inBubble(t *testing.T, open func(c *clockwork) (*source, error), test func(c *clockwork)) {
	t.Helper()
	path := policyIn(t, page(0))
	synctest.Test(t, func(t *testing.T) {
		c := &clockwork{t: t, path: path, kick: make(chan struct{}), got: make(chan delivery, 100), began: time.Now()}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		cfg := Config{Path: path, Trigger: c.kick, Log: hclog.New(&hclog.LoggerOptions{Output: &c.log})}
		go func() {
			ended <- watchWith(ctx, cfg, Config{Path: path}.Read().Digest, c.take, func() (*source, error) { return open(c) })
		}()
		synctest.Wait()
		test(c)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// spoken is a source whose events the test says.
func spoken(c *clockwork) (*source, error) {
	c.opened++
	c.events, c.errors = make(chan fsnotify.Event), make(chan error)
	return &source{
		events: c.events, errors: c.errors,
		add:    func(string) error { return c.addErr },
		remove: func(string) error { return nil },
		close:  func() {},
	}, nil
}

// silent is a system that has no events to give.
func silent(c *clockwork) (*source, error) { return nil, syscall.EMFILE }

func (c *clockwork) take(f File) { c.got <- delivery{time.Since(c.began), f} }

func (c *clockwork) say() {
	c.events <- fsnotify.Event{Name: c.path, Op: fsnotify.Write}
}

// save writes the file and says so.
func (c *clockwork) save(content string) {
	write(c.t, c.path, content)
	c.say()
}

func (c *clockwork) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// one is the only delivery since it was asked last.
func (c *clockwork) one() delivery {
	c.t.Helper()
	if len(c.got) != 1 {
		c.t.Fatalf("after %v there were %d deliveries, want 1", time.Since(c.began), len(c.got))
	}
	return <-c.got
}

// expect checks that one more file was delivered, when and which; "" stands for an
// error.
func (c *clockwork) expect(after time.Duration, content string) {
	c.t.Helper()
	got := c.one()
	if got.after != after || string(got.Content) != content || (got.Err != nil) != (content == "") {
		c.t.Errorf("after %v came %.20q, error %v; want %.20q after %v", got.after, got.Content, got.Err, content, after)
	}
}

func (c *clockwork) expectNothing() {
	c.t.Helper()
	if len(c.got) > 0 {
		c.t.Fatalf("%+v was delivered", <-c.got)
	}
}

func TestDebounceBeginsAnew(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		for n := range 10 {
			c.save(page(n + 1))
			c.pass(150 * time.Millisecond)
		}
		c.expectNothing()
		c.pass(time.Second)
		c.expect(9*150*time.Millisecond+defaultDebounce, page(10))
	})
}

func TestDebounceHasAnEnd(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		for n := range 39 {
			c.save(page(n + 1))
			c.pass(150 * time.Millisecond)
			if c.began.Add(2100 * time.Millisecond).Equal(time.Now()) {
				c.expect(2*time.Second, page(14))
			}
		}
		c.expect(4100*time.Millisecond, page(28)) // begun by the event at 2.1s
	})
}

func TestTruncatedFileWaits(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		c.save("")
		c.pass(300 * time.Millisecond)
		c.save(page(1))
		c.pass(time.Second)
		c.expect(500*time.Millisecond, page(1))
	})
}

// An empty file is delivered too, if it stays so.
func TestEmptyFile(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		c.save("")
		c.pass(time.Second)
		if f := c.one(); len(f.Content) > 0 || f.Err != nil || f.after != 2*defaultDebounce {
			t.Errorf("delivered %+v, want an empty file after twice the debounce", f)
		}
	})
}

// Under events without end an error comes out as well, later than a file.
func TestErrorUnderEvents(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		must(t, os.Remove(c.path))
		for range 45 {
			c.say()
			c.pass(100 * time.Millisecond)
		}
		c.expect(2*defaultMaxDebounce, "")
	})
}

func TestLostEvents(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		write(t, c.path, page(1))
		c.errors <- fsnotify.ErrEventOverflow
		c.pass(time.Second)
		c.expect(defaultDebounce, page(1))
	})
}

// Events of other files put off nothing.
func TestEventsOfOthers(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		c.save(page(1))
		for range 10 {
			c.events <- fsnotify.Event{Name: c.path + ".swp", Op: fsnotify.Write}
			c.pass(50 * time.Millisecond)
		}
		c.expect(defaultDebounce, page(1))
	})
}

// A database beside the file, which is written all the time, wakes nobody for each of its writes, and hides nothing.
func TestFloodOfOthers(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		const each = 100 * time.Microsecond
		taken, saved := 0, false
		for at := time.Now(); time.Since(at) < 2*time.Second; time.Sleep(each) {
			if !saved && time.Since(at) > time.Second {
				c.save(page(1))
				saved = true
			}
			select {
			case c.events <- fsnotify.Event{Name: c.path + ".db-wal", Op: fsnotify.Write}:
				taken++
			case <-time.After(each):
			}
		}
		if taken < 2000/int(rest/time.Millisecond) || taken > 1000 {
			t.Errorf("%d of the others' events were taken in 2 s", taken)
		}
		if f := c.one(); string(f.Content) != page(1) || f.after > time.Second+defaultDebounce+2*rest {
			t.Errorf("after %v came %.20q, error %v", f.after, f.Content, f.Err)
		}
	})
}

func TestPollBeneath(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		c.pass(time.Second)
		write(t, c.path, page(1)) // and nobody says so
		c.pass(time.Minute)
		c.expect(defaultPoll+defaultDebounce, page(1))
	})
}

// A source that ends is opened anew with the next poll.
func TestSourceEnds(t *testing.T) {
	inBubble(t, spoken, func(c *clockwork) {
		close(c.events)
		c.pass(time.Second)
		write(t, c.path, page(1))
		c.pass(time.Minute)
		c.expect(defaultPoll+defaultDebounce, page(1))
		if c.opened != 2 {
			t.Errorf("opened %d times, want 2", c.opened)
		}
		c.save(page(2))
		c.pass(time.Second)
		c.expect(61*time.Second+defaultDebounce, page(2))
	})
}

func TestPollOnly(t *testing.T) {
	inBubble(t, silent, func(c *clockwork) {
		c.pass(time.Second)
		write(t, c.path, page(1)[:100]) // in the middle of a save
		c.pass(44*time.Second + 100*time.Millisecond)
		write(t, c.path, page(1))
		c.pass(time.Second)
		c.expect(defaultPoll+2*defaultDebounce, page(1))
		c.pass(time.Hour)
		c.expectNothing()
		must(t, os.Remove(c.path))
		c.pass(time.Minute)
		if f := c.one(); f.Err == nil {
			t.Errorf("delivered %.20q, want an error", f.Content)
		}
		if warnings := strings.Count(c.log.String(), "polling only"); warnings != 1 {
			t.Errorf("%d warnings, want one: %s", warnings, c.log.String())
		}
	})
}

func TestTriggerWhenPolling(t *testing.T) {
	inBubble(t, silent, func(c *clockwork) {
		c.kick <- struct{}{}
		c.pass(time.Second)
		c.expect(0, page(0))
		write(t, c.path, page(1))
		c.kick <- struct{}{}
		c.pass(time.Second)
		c.expect(time.Second+defaultDebounce, page(1))
		close(c.kick)
		c.pass(time.Second)
		c.expectNothing()
	})
}

// Where a folder cannot be watched, the poll sees what happens.
func TestNoWatchesLeft(t *testing.T) {
	refuse := func(c *clockwork) (*source, error) {
		c.addErr = syscall.ENOSPC
		return spoken(c)
	}
	inBubble(t, refuse, func(c *clockwork) {
		write(t, c.path, page(1))
		c.pass(10 * time.Minute)
		c.expect(defaultPoll+defaultDebounce, page(1))
		if warnings := strings.Count(c.log.String(), "polling only"); warnings != 1 {
			t.Errorf("%d warnings, want one: %s", warnings, c.log.String())
		}
	})
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Path: "p", Debounce: -1}, {Path: "p", MaxSize: -1}} {
		if err := Watch(t.Context(), cfg, [32]byte{}, nil); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	cfg := Config{Path: "p", Debounce: 5 * time.Second}
	if err := cfg.validate(); err != nil || cfg.MaxDebounce != cfg.Debounce {
		t.Errorf("got %+v, %v", cfg, errors.Unwrap(err))
	}
}
