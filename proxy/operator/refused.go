package operator

import (
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// Why is why an operator gets nothing. The zero value is [Denied].
type Why uint8

// The reasons.
const (
	Denied       Why = iota // the run does not allow it: see the code
	NoRun                   // no run has this name
	NoSignal                // no state has this signal
	Ambiguous               // several runs have this name
	Moved                   // the run has moved since the operator looked
	Shadow                  // nothing is enforced
	Stranded                // a reload has taken the run's state
	Ended                   // the run has ended meanwhile
	Ending                  // the proxy is ending
	Cancelled               // the operator waits no longer
	NoApproval              // nobody asks that
	Answered                // somebody has answered before
	NotKept                 // it cannot be written
	PerhapsKept             // it is not written yet
	Unwritable              // the store has something else of the run than was confirmed
	Damaged                 // what the store has of the run is not what was written
	Unacceptable            // there is nothing to accept
	Irreversible            // what a call has done cannot be undone
	Busy                    // something is under way in the run
	Unshared                // nobody else can go on with the run
)

// reasons are each reason in a word, one of policy.Code's where that has it, and what there is to do.
var reasons = [...]struct{ word, text string }{
	NoRun:      {"run_not_found", "there is no such run: GET /v1/runs names those that there are"},
	NoSignal:   {"unknown_action", "no state has this signal"},
	Ambiguous:  {"run_ambiguous", "several runs have this id, or ids that begin so: give more of it. Where the short ids of sessions are the same, wait until one of them has ended, keep runs (--store), or use another --run-key"},
	Moved:      {"run_moved", "the run has moved since: look at it again, and give the seq that it has then"},
	Shadow:     {"shadow", "the policy is not enforced (--mode shadow), and where nothing is refused nothing is released: start with --mode enforce"},
	Stranded:   {"not_available", "a reload has taken the run's state, and nothing is allowed until it moves: POST /v1/runs/migrate has it begin anew"},
	Ended:      {"run_expired", "the run has ended"},
	Ending:     {"ending", "fsm-proxy is ending and takes no more signals: nothing was done"},
	NoApproval: {"approval_not_found", "no call waits for this approval: it was answered long ago, its state was left, or nobody asks any more. GET /v1/approvals names those that do"},
	Answered:   {"approval_answered", "it was answered before, or its time has run out"},
	NotKept:    {"store_unavailable", "the store (--store) cannot be written now: nothing was done, and the call waits on. Answer it again later"},
	PerhapsKept: {"outcome_unknown", "the answer is not written within --store-timeout: it counts when it is, unless the run has left the state by then. Look whether " +
		"the call waits still"},
	Unwritable:   {"run_shut", "the store has something else of this run than it has confirmed, or another process writes it: nothing more is written of it, and nothing is allowed in it, until 'fsm-proxy runs accept' has it go on as the store has it"},
	Damaged:      {"run_damaged", "what is kept of this run is not what was written, and is not accepted"},
	Unacceptable: {"not_accepted", "nothing was accepted"},
	Irreversible: {"irreversible", "a fork does not go back behind what cannot be undone: fork the run at that entry once the call has ended, or later, or start one"},
	Busy:         {"busy", "a call is under way in the run, or waits for an approval, and so it stays here: wait until it has ended, or have its client cancel it, and ask again"},
	Unshared:     {"not_available", "the run is not kept where other processes find it, and cannot go on in another one"},
	Cancelled:    {"cancelled", "nobody waits for the answer any more: nothing was done"},
}

// Refused is why an operator gets nothing.
type Refused struct {
	Why     Why
	Code    policy.Code // where it is denied
	Because []string    // what the file tells of guards that do not hold
	Signal  string      // "" where none was to be sent
	At      Standing    // where the run stands; zero where there is none
	Missing error       // why the run is not here; nil: it is, or that is not why
}

// Unwrap is why the run is not here.
func (r *Refused) Unwrap() error { return r.Missing }

// String is the reason in a word.
func (r *Refused) String() string {
	if r.Why == Denied {
		return r.Code.String()
	}
	return reasons[r.Why].word
}

func (r *Refused) reason() string {
	if r.Why == Denied {
		return r.Code.Text()
	}
	return reasons[r.Why].text
}

// Error says what was refused, why, and what there is instead.
func (r *Refused) Error() string {
	where := ". The run is in state '" + r.At.State + "', seq " + strconv.FormatUint(r.At.Seq, 10)
	switch {
	case r.Signal == "" && r.At.State != "":
		return strings.Join(append([]string{r.reason()}, r.Because...), ": ") + where
	case r.Signal == "":
		return strings.Join(append([]string{r.reason()}, r.Because...), ": ")
	}
	why := strings.TrimSuffix(strings.Join(append([]string{r.reason()}, r.Because...), ". "), ".")
	text := "signal '" + wire.Clip(r.Signal) + "' was not taken: " + why + where
	if names := r.At.Names(); len(names) > 0 {
		text += ". It takes now: " + surface.Some(names)
	}
	return text
}

// Names are those of the signals.
func (s Standing) Names() []string {
	names := make([]string, len(s.Signals))
	for i, x := range s.Signals {
		names[i] = x.Name
	}
	return names
}
