package run

import (
	"cmp"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// Type is what an entry tells of.
type Type uint8

// The types. The zero value is that of no entry.
const (
	_          Type = iota
	Ended           // a call that had the turn, or moved the run in shadow
	Moved           // a reload has moved the run to the policy in force
	Stranded        // a reload has taken its state
	Reset           // the run was begun anew, by an outcome of no call
	Expired         // its state's clock has moved it
	Began           // the run
	Begun           // a call, before it was sent
	Unsent          // a call that had begun has no outcome
	Finished        // the run has ended: nobody finds it any more
	Stayed          // a call has ended that has changed nothing, and had not begun by an entry
	Declined        // a call was refused
	Checkpoint      // all that the entries before it come to
	Answered        // an operator has said yes or no to a call
	Annotated       // somebody has said something of the run, which changes nothing
	Accepted        // somebody has the run go on as its entries before this one say, though more was confirmed
	Forked          // the run begins where another one was after an entry of its own, and tells what it remembers of that
)

// Entry is one fact of a run. A run's recorded part is the fold of its entries, and
// nothing else.
type Entry struct {
	Type     Type
	Seq      uint64 // its number, from 1
	Time     time.Time
	Call     *Call             // that it is of
	Begun    uint64            // the number of the entry by which the call began; 0: it has none
	Outcome  policy.Outcome    // of the call
	By       *policy.Policy    // that stepped it
	Step     policy.Step       // zero: the outcome was one of a run before this
	Shadow   bool              // the call was decided in shadow
	Set      []register.Change // what became of registers
	Counted  []limit.Limit     // of the run, against which the call was counted: told by the first entry of a call
	Limits   string            // whose limits over all runs the call takes of, or gives back to, as a [limit.Principals] knows who that is; "": nobody's
	From, To Standing

	Turn    bool              // the call has the turn, of a run that was not begun anew since: told by Begun
	Unknown []register.Change // what becomes of registers if nobody learns how the call ended: likewise
	Resumed bool              // the call had no end when the run was read from its entries
	Details
	pending *Pending // it is not applied yet
	told    *fold    // what the entries before it come to: told by Checkpoint, and by Forked, of whose run they are not
}

// Details are what an entry tells beside what has become of the run, and what is said of calls that wait for it.
type Details struct {
	Said   *Said   // what else is told of the call; nil: nothing
	Remark Remark  // who had it be done; zero: nobody has asked for it
	Answer *Answer // that was given: told by Answered
	Yes    uint64  // the number of the entry of the answer that the call uses up; 0: it needs none that is kept: told by Begun, and by Unsent where that gives it back
	Origin *Origin // where the run was forked: told by Forked; nil by others

	Irreversible bool // what the call has done stays done, whatever the policy says since: told by the first entry of a call that was sent
	// Decided tells that the audit had the decision on the call before: told by Begun and Unsent, and not kept.
	Decided bool
}

// Remark is what somebody had be done to a run says of that.
type Remark struct {
	Who    string // as ISSUER|SUBJECT; "": it is not known
	Text   string // why; of an annotation, what
	Remote string // the address from which they had it be done, which is not kept
}

// Standing is where a run stands by its entries.
type Standing struct {
	Policy   *policy.Policy
	At       policy.Configuration
	Stranded time.Time // since when Policy's successor has no such state; zero: it has
}

// State is the name of the state.
func (s Standing) State() string { return s.Policy.StateName(s.At.State) }

// remembers reports whether the entry tells all that a run remembers: it is read from there on.
func (e *Entry) remembers() bool { return e.Type == Checkpoint || e.Type == Forked }

// Pending is the entry where it is not durable yet, nil for one that is applied.
func (e *Entry) Pending() *Pending { return e.pending }

// Pending is an entry that is not durable yet.
type Pending struct {
	Entry
	room    *register.Reservation // for what it sets
	unasked bool                  // it begins the run anew, and nobody has asked for that
	effects Effects               // what has come of it, once it is applied
}

var types = [...]string{Ended: "ended", Moved: "moved", Stranded: "stranded", Reset: "reset", Expired: "expired", Began: "began", Begun: "begun", Unsent: "unsent", Finished: "finished",
	Stayed: "stayed", Declined: "refused", Checkpoint: "checkpoint", Answered: "answered", Annotated: "annotated", Accepted: "accepted", Forked: "forked"}

// String is the type as entries have it.
func (t Type) String() string {
	if int(t) < len(types) && types[t] != "" {
		return types[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

var operations = [...]string{register.Assign: "assign", register.Empty: "empty", register.Add: "add", register.Remove: "remove"}

// kept is an entry as it is kept. What the fold of a run is made of is in it whole; the rest says what has happened.
type kept struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`
	called
	Begun     uint64    `json:"begun,omitzero"` // the number of the entry by which the call began
	Turn      bool      `json:"turn,omitzero"`
	Resumed   bool      `json:"resumed,omitzero"`
	Outcome   string    `json:"outcome,omitzero"`
	Shadow    bool      `json:"shadow,omitzero"`
	Rule      string    `json:"rule,omitzero"`
	From      string    `json:"from"` // the state
	To        place     `json:"to"`
	Changed   bool      `json:"changed,omitzero"`
	Restarted bool      `json:"restarted,omitzero"`
	Set       []change  `json:"set,omitzero"`
	Unknown   []change  `json:"set_unknown,omitzero"`
	Counted   []takenOf `json:"counted,omitzero"`
	telling
	said
	approving
	remark
}

// telling is what a run begins, or goes on, with.
type telling struct {
	Parent string    `json:"parent,omitzero"` // the run that it was forked of
	Fork   uint64    `json:"fork,omitzero"`   // the number of the entry at which
	Told   *keptFold `json:"remembers,omitzero"`
}

// called is which call an entry is of.
type called struct {
	Kind string `json:"kind,omitzero"`
	Name string `json:"name,omitzero"`
	Case string `json:"case,omitzero"`
	Of   uint32 `json:"alternative,omitzero"` // the number of the binding's alternative, from 0

	Irreversible bool `json:"irreversible,omitzero"`
}

// said is a [Said].
type said struct {
	Refusal string    `json:"refusal,omitzero"`
	Times   uint64    `json:"times,omitzero"`
	Since   time.Time `json:"since,omitzero"`
	Took    int64     `json:"microseconds,omitzero"`
	Issuer  string    `json:"issuer,omitzero"`
	Subject string    `json:"subject,omitzero"`

	Digest string         `json:"digest,omitzero"` // of the arguments
	Args   jsontext.Value `json:"args,omitzero"`
	Bytes  int            `json:"args_bytes,omitzero"`
}

// approving is what an entry has to do with approvals.
type approving struct {
	Yes    uint64  `json:"yes,omitzero"` // the number of the entry of the answer that is used up
	Answer *answer `json:"answer,omitzero"`
}

// remark is a [Remark].
type remark struct {
	Who    string `json:"who,omitzero"`
	Reason string `json:"reason,omitzero"`
	Text   string `json:"text,omitzero"` // of an annotation
}

// place is a [Standing].
type place struct {
	State    string            `json:"state"`
	Policy   string            `json:"policy"` // its digest
	Complete bool              `json:"complete,omitzero"`
	Returns  map[string]string `json:"returns,omitzero"` // where to, by what is returned from
	Stranded time.Time         `json:"stranded,omitzero"`
}

// change is a [register.Change].
type change struct {
	Register  string `json:"register"`
	Operation string `json:"operation"`
	Values    []any  `json:"values,omitzero"`
}

// takenOf is a [limit.Limit].
type takenOf struct {
	Limit  string `json:"limit"`
	Span   string `json:"span"`
	AtMost int    `json:"at_most"`
}

// OutcomeName is the name of the outcome that the entry tells of.
func (e *Entry) OutcomeName() string {
	if a := e.Call.Verdict.Alternative; e.Outcome > policy.Unknown && a != nil {
		return a.OutcomeName(e.Outcome)
	}
	return e.Outcome.String()
}

// AppendJSON appends the entry as a journal keeps it: an object, from which [ReadEntry] makes it again by way of kept, whose
// members these are. They are appended one by one, since most entries have few of them, and each step waits for two entries.
func (e *Entry) AppendJSON(to []byte) ([]byte, error) {
	o := object{to: append(to, '{')}
	o.text("type", e.Type.String())
	o.time("time", e.Time)
	if c := e.Call; c != nil {
		s := c.Verdict.Symbol
		o.text("kind", s.Kind.String())
		o.text("name", s.Name)
		o.text("case", s.Case)
		o.number("alternative", uint64(s.Alternative))
	}
	o.truth("irreversible", e.Irreversible)
	o.number("begun", e.Begun)
	o.truth("turn", e.Turn)
	o.truth("resumed", e.Resumed)
	if c := e.Call; c != nil && e.Outcome != 0 {
		o.text("outcome", e.OutcomeName())
	}
	o.truth("shadow", e.Shadow)
	if c := e.Call; c != nil {
		o.text("rule", c.Verdict.Rule.String())
	}
	o.text("from", e.From.State())
	o.open("to")
	o.text("state", e.To.State())
	o.text("policy", e.To.Policy.Digest())
	o.truth("complete", e.To.At.Complete)
	if origins := e.To.Policy.Origins(e.To.At); len(origins) > 0 {
		o.value("returns", origins)
	}
	o.time("stranded", e.To.Stranded)
	o.close()
	o.truth("changed", e.Step.Changed)
	o.truth("restarted", e.Step.Restarted)
	o.changes("set", e.Set)
	o.changes("set_unknown", e.Unknown)
	if len(e.Counted) > 0 {
		counted := make([]takenOf, len(e.Counted))
		for i, x := range e.Counted {
			counted[i] = takenOf{x.Key, x.Span.String(), x.Most}
		}
		o.value("counted", counted)
	}
	if e.Origin != nil {
		o.text("parent", e.Origin.Run)
		o.number("fork", e.Origin.Seq)
	}
	if e.told != nil {
		told, err := e.told.written()
		if err != nil {
			return to, err
		}
		o.value("remembers", told)
	}
	if s := e.Said; s != nil {
		o.text("refusal", s.Code.String())
		o.number("times", s.Times)
		o.time("since", s.Since)
		o.number("microseconds", uint64(max(0, s.Took.Microseconds())))
		o.text("issuer", s.Issuer)
		o.text("subject", s.Subject)
		o.text("digest", s.Digest)
		if s.Arguments != nil {
			o.value("args", jsontext.Value(s.Arguments))
		}
		o.number("args_bytes", uint64(s.Bytes))
	}
	o.number("yes", e.Yes)
	if e.Answer != nil {
		o.value("answer", e.Answer.written())
	}
	o.text("who", e.Remark.Who)
	if e.Type == Annotated {
		o.text("text", e.Remark.Text)
	} else {
		o.text("reason", e.Remark.Text)
	}
	o.close()
	return o.to, o.err
}

// object is one that is written member by member. Those without a value are left out.
type object struct {
	to  []byte
	err error // the first one
}

func (o *object) member(name string) {
	if o.to[len(o.to)-1] != '{' {
		o.to = append(o.to, ',')
	}
	o.to = append(append(append(o.to, '"'), name...), `":`...)
}

func (o *object) text(name, value string) {
	if value != "" {
		o.member(name)
		var err error
		o.to, err = jsontext.AppendQuote(o.to, value)
		o.err = cmp.Or(o.err, err)
	}
}

func (o *object) number(name string, value uint64) {
	if value != 0 {
		o.member(name)
		o.to = strconv.AppendUint(o.to, value, 10)
	}
}

func (o *object) truth(name string, value bool) {
	if value {
		o.member(name)
		o.to = append(o.to, "true"...)
	}
}

func (o *object) time(name string, value time.Time) {
	if !value.IsZero() {
		o.member(name)
		o.to = append(value.UTC().AppendFormat(append(o.to, '"'), time.RFC3339Nano), '"')
	}
}

// value writes what most entries have not.
func (o *object) value(name string, value any) {
	o.member(name)
	text, err := json.Marshal(value, json.Deterministic(true))
	o.to, o.err = append(o.to, text...), cmp.Or(o.err, err)
}

func (o *object) changes(name string, value []register.Change) {
	if len(value) > 0 {
		o.value(name, written(value))
	}
}

func (o *object) open(name string) {
	o.member(name)
	o.to = append(o.to, '{')
}

func (o *object) close() { o.to = append(o.to, '}') }

func written(changes []register.Change) (out []change) {
	for _, x := range changes {
		out = append(out, change{x.Register, operations[x.Operation], x.Values})
	}
	return out
}

// ReadEntry reads an entry that [Entry.AppendJSON] has written. policies finds a policy by its digest, nil for none. It
// has what a run is made of, and of the call what it is called.
func ReadEntry(text []byte, policies func(digest string) *policy.Policy) (e Entry, err error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return e, err
	}
	t := slices.Index(types[:], k.Type)
	if t <= 0 {
		return e, fmt.Errorf("there are no entries of type %q", k.Type)
	}
	e = Entry{Type: Type(t), Time: k.Time, Begun: k.Begun, Details: Details{Yes: k.Yes, Irreversible: k.Irreversible}, Turn: k.Turn, Resumed: k.Resumed, Shadow: k.Shadow, Step: policy.Step{Changed: k.Changed, Restarted: k.Restarted}}
	if e.Remark = (Remark{Who: k.Who, Text: k.Reason}); e.Type == Annotated {
		e.Remark.Text = k.Text
	}
	if k.Outcome != "" {
		e.Said = &Said{named: k.Outcome}
	}
	p := policies(k.To.Policy)
	if p == nil {
		return e, fmt.Errorf("there is no policy %s", k.To.Policy)
	}
	at, ok := p.Configuration(k.To.State, k.To.Complete, k.To.Returns)
	if !ok {
		return e, fmt.Errorf("policy %s has no state %q that is entered so", k.To.Policy, k.To.State)
	}
	e.To = Standing{Policy: p, At: at, Stranded: k.To.Stranded}
	if e.Set, err = read(k.Set, p); err == nil {
		e.Unknown, err = read(k.Unknown, p)
	}
	if err != nil {
		return e, err
	}
	if k.Name != "" || k.Kind != "" {
		i := slices.IndexFunc(policy.SymbolKinds[:], func(kind policy.Kind) bool { return kind.String() == k.Kind })
		if i < 0 {
			return e, fmt.Errorf("there is no kind %q", k.Kind)
		}
		e.Call = &Call{Request: Request{Kind: policy.SymbolKinds[i], Name: k.Name}}
		e.Call.Verdict.Symbol = policy.Symbol{Kind: e.Call.Kind, Alternative: k.Of, Name: k.Name, Case: k.Case}
	}
	if e.Type == Answered {
		if e.Answer, err = k.answered(e.Call, policies); err != nil {
			return e, err
		}
		e.Call.Verdict.Rule = e.Answer.Rule
	}
	for _, x := range k.Counted {
		span, ok := limit.SpanOf(x.Span)
		if !ok {
			return e, fmt.Errorf("there is no span %q", x.Span)
		}
		e.Counted = append(e.Counted, limit.Limit{Key: x.Limit, Span: span, Most: x.AtMost})
	}
	if e.remembers() {
		e.told, err = k.Told.read(e.To, policies)
	}
	if e.Type == Forked {
		if e.Origin = (&Origin{k.Parent, k.Fork}); k.Parent == "" || k.Fork == 0 {
			return e, errors.New("of which run it is a fork is not told")
		}
	}
	return e, err
}

func read(changes []change, p *policy.Policy) (out []register.Change, err error) {
	for i := range changes {
		x, err := changes[i].read(p)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// read reads a change of a register, whose type says what its values are. What the policy does not have is left as it is:
// nothing comes of it.
func (x *change) read(p *policy.Policy) (out register.Change, err error) {
	op := slices.Index(operations[:], x.Operation)
	if op < 0 {
		return out, fmt.Errorf("there is no operation %q", x.Operation)
	}
	out = register.Change{Register: x.Register, Operation: register.Operation(op), Values: x.Values}
	if out.Operation == register.Assign && len(x.Values) != 1 || out.Operation == register.Empty && len(x.Values) != 0 {
		return out, fmt.Errorf("register %q is to %s %d values", x.Register, x.Operation, len(x.Values))
	}
	i := slices.IndexFunc(p.Registers(), func(r policy.Register) bool { return r.Name == x.Register })
	if i < 0 {
		return out, nil
	}
	for n, v := range out.Values {
		fits := false
		switch p.Registers()[i].Kind {
		case guard.Counter:
			var number float64
			if number, fits = v.(float64); fits {
				fits = math.Abs(number) <= register.MaxCounter && number == math.Trunc(number)
				out.Values[n] = int64(number)
			}
		case guard.Number:
			_, fits = v.(float64)
		case guard.Boolean:
			_, fits = v.(bool)
		default:
			_, fits = v.(string)
		}
		if !fits {
			return out, fmt.Errorf("register %q has no value %v", x.Register, v)
		}
	}
	return out, nil
}

// named is what of an entry names policies.
type named struct {
	To struct {
		Policy string `json:"policy"`
	} `json:"to"`
	Answer struct {
		Policy string `json:"policy"`
		Next   string `json:"next"`
	} `json:"answer"`
	Told struct {
		Open []struct {
			Entry named `json:"entry"`
			Yes   struct {
				Entry named `json:"entry"`
			} `json:"answer"`
		} `json:"open"`
		Said []struct {
			Entry named `json:"entry"`
		} `json:"answers"`
	} `json:"remembers"`
}

// NamedPolicies are the digests of the policies by which [ReadEntry] reads an entry.
func NamedPolicies(text []byte) (digests []string, err error) {
	var n named
	if err := json.Unmarshal(text, &n); err != nil {
		return nil, err
	}
	return n.add(nil), nil
}

func (n *named) add(to []string) []string {
	for _, digest := range []string{n.To.Policy, n.Answer.Policy, n.Answer.Next} {
		if digest != "" && !slices.Contains(to, digest) {
			to = append(to, digest)
		}
	}
	for i := range n.Told.Open {
		to = n.Told.Open[i].Yes.Entry.add(n.Told.Open[i].Entry.add(to))
	}
	for i := range n.Told.Said {
		to = n.Told.Said[i].Entry.add(to)
	}
	return to
}
