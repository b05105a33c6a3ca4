package httpserver

import (
	"testing"
	"testing/synctest"
	"time"
)

// claimed is a body that has asked for room.
type claimed struct {
	*BodyClaim
	raw    []byte
	result chan error
}

// claimOf asks for a buffer of so many KiB for a body that may wait; holders are whose it is.
func (b *BodyBudget) claimOf(kib int, holders ...any) *claimed {
	c := &claimed{BodyClaim: &BodyClaim{budget: b, known: true, patience: bodyWait, Holders: holders}}
	c.grow(kib)
	return c
}

func (c *claimed) grow(kib int) {
	answer := make(chan error, 1)
	c.result = answer
	go func() {
		raw, err := c.enlarge(c.raw, kib<<10)
		if err == nil {
			c.raw = raw
		}
		answer <- err
	}()
	synctest.Wait()
}

// state is what has become of the claim: "waits", "has" or "refused".
func (c *claimed) state() string {
	synctest.Wait()
	select {
	case err := <-c.result:
		c.result <- err
		if err != nil {
			return "refused"
		}
		return "has"
	default:
		return "waits"
	}
}

func (c *claimed) want(t *testing.T, state string) {
	t.Helper()
	if got := c.state(); got != state {
		t.Errorf("the body %s, want %s", got, state)
	}
}

// empty fails the test if anything is left in the budget.
func (b *BodyBudget) empty(t *testing.T) {
	t.Helper()
	if b.all.used != 0 || b.strangers.used != 0 || b.small.used != 0 || b.all.waiting != 0 || len(b.shares) != 0 || b.queue.Len() != 0 {
		t.Errorf("left over: %+v", b)
	}
}

func TestBodyBudgetIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodyBudget(1 << 20)
		first, second, third := b.claimOf(600), b.claimOf(600), b.claimOf(300)
		first.want(t, "has")
		second.want(t, "waits")
		third.want(t, "waits") // it would fit, but came later
		first.Release()
		second.want(t, "has")
		third.want(t, "has")
		second.Release()
		third.Release()
		b.empty(t)
	})
}

func TestBodyBudgetRefusesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodyBudget(1 << 20)
		first, second := b.claimOf(900), b.claimOf(900)
		time.Sleep(bodyWait - time.Millisecond)
		second.want(t, "waits")
		time.Sleep(time.Millisecond)
		second.want(t, "refused")
		second.Release()
		stranger := &claimed{BodyClaim: &BodyClaim{budget: b}}
		stranger.grow(300)
		stranger.want(t, "refused") // at once
		stranger.Release()
		first.Release()
		b.empty(t)
	})
}

// Who waits for a share of its own holds up nobody else.
func TestBodyBudgetShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodyBudget(1 << 20)
		first, second, other := b.claimOf(400, "ann"), b.claimOf(400, "ann"), b.claimOf(400, "bob")
		first.want(t, "has")
		second.want(t, "waits")
		other.want(t, "has")
		first.Release()
		second.want(t, "has")
		second.Release()
		other.Release()
		b.empty(t)
	})
}

// Where all wait for each other, the last to come gives way.
func TestBodyBudgetIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodyBudget(1 << 20)
		first, second := b.claimOf(500), b.claimOf(500)
		first.grow(600)
		first.want(t, "waits")
		second.grow(600)
		second.want(t, "refused")
		first.want(t, "waits") // until what was refused is given up
		second.Release()
		first.want(t, "has")
		first.Release()
		b.empty(t)
	})
}

// What is alone has room whatever its size.
func TestBodyBudgetLetsOneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodyBudget(100 << 10)
		c := b.claimOf(400)
		c.want(t, "has")
		c.grow(800)
		c.want(t, "has")
		if c.used != 800<<10 {
			t.Errorf("%d bytes are used after copying", c.used)
		}
		c.Release()
		b.empty(t)
	})
}

// Small bodies of strangers have room of their own; those of others need none.
func TestBodyBudgetOfSmallBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBodyBudget(256 << 10)
		full := b.claimOf(256)
		small := b.claimOf(64)
		small.want(t, "has")
		strangers := make([]*claimed, 3)
		for i := range strangers {
			strangers[i] = &claimed{BodyClaim: &BodyClaim{budget: b}}
			strangers[i].grow(32)
		}
		strangers[0].want(t, "has")
		strangers[1].want(t, "has")
		strangers[2].want(t, "refused")
		for _, c := range append(strangers, full, small) {
			c.Release()
		}
		b.empty(t)
	})
}
