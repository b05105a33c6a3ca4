package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// A million refusals of a run, a thousand a second, take less than a megabyte of a file, and each of them is counted.
func TestManyRefusals(t *testing.T) {
	t.Parallel()
	url := store(t)
	p, findings := policy.Parse("p.yaml", []byte(steps))
	if p == nil {
		t.Fatal(findings)
	}
	disk, err := stores.Open(t.Context(), stores.Config{URL: url, Run: "r", Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	s := durable.Open(durable.Config{Journal: disk, Log: hclog.NewNullLogger(), Compile: func([]byte) (*policy.Policy, error) { return p, nil }})
	if err := s.Keep(p, []byte(steps)); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	place := s.Begin("R", durable.KeyOf("process", "r"), wire.Principal{}, now)
	r := run.New(run.Config{Policy: p, Lasts: true}, now)
	write := func() {
		if made := r.Made(); len(made) > 0 {
			ticket, err := place.Write(made, time.Time{}, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			<-ticket.Done()
			if ticket.Err() != nil {
				t.Fatal(ticket.Err())
			}
		}
	}
	const many = 1_000_000
	for i := range many {
		now = now.Add(time.Millisecond)
		name := "nothing"
		if i%7 == 0 {
			name = fmt.Sprint("nothing", i)
		}
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true}}
		if a, _ := r.Enter(c, 1, now); a != run.Refused {
			t.Fatal(a)
		}
		r.Decline(c, c.Verdict.Code, now)
		write()
	}
	r.Declined(r.DeclinedUntil())
	write()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	files, _ := filepath.Glob(strings.TrimPrefix(url, "sqlite:") + "*")
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	times := uint64(0)
	for _, e := range entriesOf(t, url)["R"] {
		if e.Type == "refused" {
			times += max(e.Times, 1)
		}
	}
	if times != many || size > 1_000_000 || size == 0 {
		t.Errorf("%d refusals take %d bytes, and are told of as %d", many, size, times)
	}
}
