package run

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// remembers takes an entry that was made into the fold, and makes a checkpoint of that where there was none for long.
// The run does not wait for it, and it changes nothing; but it is written behind the entry, and before the next one.
func (r *Run) remembers(e *Entry) {
	if f := r.ahead.fold; f != nil {
		f.add(e, r.Shared)
		r.checkpoint(e.Type, e.Time)
	}
}

// checkpoint makes a checkpoint behind an entry, where that is due, and all entries before it are made.
func (r *Run) checkpoint(behind Type, now time.Time) {
	f := r.ahead.fold
	if f == nil || f.since < r.Checkpoint || behind == Finished || r.ahead.declined.open != nil {
		return
	}
	r.seq++
	c := Entry{Type: Checkpoint, Seq: r.seq, Time: now, From: f.stands, To: f.stands, told: f.clone(r.Shared)}
	f.add(&c, r.Shared)
	r.ahead.made = append(r.ahead.made, c)
}

// keptFold is a fold as a checkpoint has it; where the run stands the entry says.
type keptFold struct {
	Moved  uint64      `json:"moved,omitzero"` // the number of the last entry that has moved the run
	Memory *keptMemory `json:"memory,omitzero"`
	Open   []keptBegun `json:"open,omitzero"` // the calls that have begun and not ended, in order
}

type keptMemory struct {
	Began     time.Time      `json:"began"`
	Entered   time.Time      `json:"entered"`
	Registers jsontext.Value `json:"registers"`
	Counts    limit.Snapshot `json:"counts"` // of whose Taken each is that of an open call
}

type keptBegun struct {
	Seq   uint64         `json:"seq"`
	Entry jsontext.Value `json:"entry"` // by which it began, less what does not count any more
}

// written is the fold as a checkpoint has it.
func (f *fold) written() (*keptFold, error) {
	k := &keptFold{Moved: f.moved}
	calls := f.calls()
	for _, seq := range calls {
		b := f.open[seq]
		text, err := b.AppendJSON(nil)
		if err != nil {
			return nil, err
		}
		k.Open = append(k.Open, keptBegun{seq, text})
	}
	if m := f.memory; m != nil {
		k.Memory = &keptMemory{Began: m.began.UTC(), Entered: m.entered.UTC(), Registers: m.view().AppendJSON(nil), Counts: *f.counts(calls)}
		k.Memory.Counts.Time = k.Memory.Counts.Time.UTC()
	}
	return k, nil
}

// read reads a fold that stands somewhere, and whose last entry [Replay] finds the number of.
func (k *keptFold) read(at Standing, policies func(digest string) *policy.Policy) (*fold, error) {
	if k == nil {
		return nil, errors.New("a checkpoint says nothing of what the run remembers")
	}
	f := &fold{moved: k.Moved, stands: at, open: make(map[uint64]begun)}
	for _, x := range k.Open {
		e, err := ReadEntry(x.Entry, policies)
		if err != nil {
			return nil, fmt.Errorf("call %d, which had begun: %w", x.Seq, err)
		}
		if e.Type != Begun || e.Call == nil || x.Seq == 0 || f.open[x.Seq].Seq != 0 {
			return nil, fmt.Errorf("there is no call %d that had begun", x.Seq)
		}
		e.Seq, e.From = x.Seq, e.To
		f.open[x.Seq] = begun{Entry: e}
	}
	if k.Memory == nil {
		return f, nil
	}
	registers, err := register.Read(at.Policy.Schema(), 0, k.Memory.Registers)
	if err != nil {
		return nil, err
	}
	counts, taken, err := k.Memory.Counts.Counts()
	if err == nil && len(taken) != len(k.Open) {
		err = fmt.Errorf("%d calls have taken something of limits, and %d had begun", len(taken), len(k.Open))
	}
	if err != nil {
		return nil, err
	}
	for i, x := range k.Open {
		b := f.open[x.Seq]
		b.taken = taken[i]
		f.open[x.Seq] = b
	}
	f.memory = &memory{policy: at.Policy, began: k.Memory.Began, entered: k.Memory.Entered, registers: registers, counts: counts}
	return f, nil
}
