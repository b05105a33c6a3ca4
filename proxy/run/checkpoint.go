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
		r.checkpoint(e.Time)
	}
}

// checkpoint makes a checkpoint behind an entry, where that is due, and all entries before it are made.
func (r *Run) checkpoint(now time.Time) {
	f := r.ahead.fold
	if f == nil || f.since < r.Checkpoint || f.finished || r.ahead.declined.open != nil {
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
	Open   []keptBegun `json:"open,omitzero"`    // the calls that have begun and not ended, in order
	Said   []keptEntry `json:"answers,omitzero"` // that hold, in the order in which they count
}

// keptEntry is an entry that counts still, less what does not count any more.
type keptEntry struct {
	Seq   uint64         `json:"seq"`
	Entry jsontext.Value `json:"entry"`
}

type keptMemory struct {
	Began     time.Time      `json:"began"`
	Entered   time.Time      `json:"entered"`
	Registers jsontext.Value `json:"registers"`
	Counts    limit.Snapshot `json:"counts"` // of whose Taken each is that of an open call
}

// keptBegun is a call by the entry by which it began.
type keptBegun struct {
	keptEntry
	Yes *keptEntry `json:"answer,omitzero"` // that it has used up
}

func (e *Entry) keep() (keptEntry, error) {
	text, err := e.AppendJSON(nil)
	return keptEntry{e.Seq, text}, err
}

// read reads an entry that is of a type, and of a call.
func (k *keptEntry) read(t Type, policies func(digest string) *policy.Policy) (*Entry, error) {
	e, err := ReadEntry(k.Entry, policies)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", k.Seq, err)
	}
	if e.Type != t || e.Call == nil || k.Seq == 0 {
		return nil, fmt.Errorf("there is no entry %d of type %s", k.Seq, t)
	}
	e.Seq, e.From = k.Seq, e.To
	return &e, nil
}

// written is the fold as a checkpoint has it.
func (f *fold) written() (*keptFold, error) {
	k := &keptFold{Moved: f.moved}
	calls := f.calls()
	for _, seq := range calls {
		b := f.open[seq]
		begun, err := b.keep()
		if err != nil {
			return nil, err
		}
		call := keptBegun{keptEntry: begun}
		if b.yes != nil {
			yes, err := b.yes.keep()
			if err != nil {
				return nil, err
			}
			call.Yes = &yes
		}
		k.Open = append(k.Open, call)
	}
	for _, e := range f.answers.given {
		given, err := e.keep()
		if err != nil {
			return nil, err
		}
		k.Said = append(k.Said, given)
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
	f := &fold{moved: k.Moved, stands: at, open: make(map[uint64]begun), answers: answers{visit: visit{policy: at.Policy, next: at.Policy, at: at.At}}}
	for _, x := range k.Open {
		e, err := x.read(Begun, policies)
		if err == nil && f.open[x.Seq].Seq != 0 {
			err = fmt.Errorf("call %d has begun twice", x.Seq)
		}
		b := begun{}
		if err == nil && x.Yes != nil {
			b.yes, err = x.Yes.read(Answered, policies)
		}
		if err != nil {
			return nil, err
		}
		if b.Entry = *e; b.yes != nil {
			f.answers.visit.next = b.yes.Answer.Next
		}
		f.open[x.Seq] = b
	}
	for _, x := range k.Said {
		e, err := x.read(Answered, policies)
		if err != nil {
			return nil, err
		}
		f.answers.visit.next = e.Answer.Next
		f.answers.given = append(f.answers.given, e)
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
