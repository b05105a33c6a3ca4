package refusal

import (
	"errors"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Reasons for which the proxy itself gives up an answer.
var (
	ErrGivenUp   = errors.New("no answer in time")
	ErrBrokenOff = errors.New("the proxy had to end before an answer came")
	ErrOver      = errors.New("the run goes on elsewhere, or has ended")
)

// ErrAsksTooMuch is an answer that is not passed on. Nothing has been done yet.
var ErrAsksTooMuch = &wire.CallError{Err: errors.New("the upstream asks the client for what the policy does not let it")}

// Patience is how long an answer may take, and what says so.
type Patience struct {
	For  time.Duration
	Says string
}

// PatienceFor is that of all calls, or else what the policy says of one; 0: it says nothing.
func PatienceFor(all, own time.Duration) Patience {
	if own > 0 {
		return Patience{own, "the policy's timeout"}
	}
	return Patience{all, "--call-timeout"}
}

// Unanswered says why a request that was sent has no answer, and in parentheses what
// says how long one may take: says is empty where nothing does.
func Unanswered(err error, patience Patience) (why, says string) {
	switch lost, _ := errors.AsType[*wire.CallError](err); {
	case lost == nil:
	case lost.Err == ErrGivenUp:
		return "no answer came in " + brevity(patience.For), " (" + patience.Says + ")"
	case lost.Err == ErrBrokenOff:
		return "no answer came before the proxy had to end", ""
	case lost.Err == ErrOver:
		return "no answer came before its run was ended, or went on in another process", ""
	case errors.Is(lost.Err, run.ErrLeft):
		return "what became of it could not be kept, since another process has this run now, or may have it soon", ""
	case lost.Err == run.ErrUnwritten:
		return "what became of it could not be written to the store in time", " (--store-timeout)"
	}
	return "no readable answer came (" + err.Error() + ")", ""
}

// brevity is a duration without what is zero in it: 5m, not 5m0s.
func brevity(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// OutOfReach is the result that a client with a session reads of a stateless upstream's task, which it did not ask for
// and cannot ask about.
func OutOfReach(k policy.Kind, name string) []byte {
	text := Called(k, name) + " was begun, and goes on at the server as a task, which a client of this protocol revision cannot follow. " +
		"Its result will not be told; the lists may change when it ends."
	return append(wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text), "}]}"...)
}

// TooLate is said of a request that has come during a drain.
const TooLate = "fsm-proxy is ending and takes no more calls: this one was not sent. Try again, with a new session if this one is unknown by then"
