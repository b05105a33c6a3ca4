package run

import (
	"cmp"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// What changes nothing is told by entries of a run that lasts, too: that a call was refused, or has ended and moved
// nothing. Nobody waits for them to be durable, and the fold of a run passes over them.

// Said is what an entry tells of a call beside what has become of the run.
type Said struct {
	Code            policy.Code   // why it was refused; CodeNone: it was not
	Times           uint64        // how many refusals the entry stands for, the last of which came at its time; 0: one
	Since           time.Time     // when the first of them came; zero: there is one
	Took            time.Duration // from sending it to its answer; 0: nobody knows
	Issuer, Subject string        // on whose behalf it came; "": nobody is known
	Noted                         // zero: what was sent is not told

	named string // its outcome, of an entry that was read
}

// Noted is what is noted of the arguments of a call.
type Noted struct {
	Digest    string // as guards have it; "": they have none
	Arguments []byte // an object; nil: they are not told
	Bytes     int    // how many they have that are not told since they are long; 0: they are told, or are not to be
}

// said is what of a call every entry tells that has a Said.
func (c *Call) said() *Said {
	s := &Said{}
	if who := cmp.Or(c.sender, c.Who); who != nil {
		s.Issuer, s.Subject = strings.ToValidUTF8(who.Issuer, "�"), strings.ToValidUTF8(who.Subject, "�")
	}
	return s
}

// SentBy says who has sent the call on nobody's behalf, for entries alone.
func (c *Call) SentBy(issuer, subject string) {
	c.sender = &guard.Who{Issuer: issuer, Subject: subject}
}

// sent is said with what was sent, and why it would not have been but for the shadow.
func (c *Call) sent() *Said {
	s := c.said()
	s.Code = c.Overlooked
	if c.Noted != nil {
		s.Noted = *c.Noted
	}
	return s
}

// ended is what the entry of a call's end tells of it: the one of its begin has told the rest.
func (c *Call) ended(e *Entry, took time.Duration) (s *Said) {
	switch {
	case e.Begun == 0:
		s = c.sent()
	case took == 0:
		return nil
	default:
		s = &Said{}
	}
	s.Took = took
	return s
}

// Stay has the entries of a run that lasts tell that a call has ended of which they tell nothing yet: it has changed
// nothing. Elsewhere the entry has no number.
func (r *Run) Stay(c *Call, end End, now time.Time) Entry {
	e := Entry{Type: Stayed, Time: now, Outcome: end.Outcome, Shadow: c.Snapshot.Shadow}
	if r.untold() || c.told != 0 {
		return e
	}
	e.Call, e.Said, e.Irreversible = c.asked(), c.ended(&e, end.Took), c.irreversible()
	e = r.record(e)
	c.tell(e.Seq)
	return e
}

// untold reports whether no entry tells of what changes nothing.
func (r *Run) untold() bool { return r.ahead == nil || r.Runless || r.shut }

// How refusals are counted that come one after the other, with no other entry of the run between them. The first is an
// entry at once. From then on one entry stands for those that are alike and come within a time that doubles with each
// entry; and from some entries on it stands for all that come, and tells what they have in common: whoever hammers at
// a run does not fill a disk.
const (
	firstWindow = 100 * time.Millisecond
	lastWindow  = time.Minute
	lull        = 10 * time.Second // after one of these the next is a first
	maxApart    = 8                // entries, until what comes is told apart no more
)

// declined is what of refusals is counted.
type declined struct {
	open  *Entry    // stands for those that come: it has its number, and is not made yet; nil: there is none
	until time.Time // when it is made at the latest
	last  uint64    // the number of the last entry of refusals
	at    time.Time // when the last refusal came
	row   int       // how many entries follow each other, before the last
}

// Decline has the entries of a run that lasts tell that a call was refused. The one that does may be made only when
// [Run.DeclinedUntil] says.
func (r *Run) Decline(c *Call, code policy.Code, now time.Time) {
	if r.untold() {
		return
	}
	r.Declined(now)
	d := &r.ahead.declined
	e := Entry{Type: Declined, Time: now, Call: c.asked(), Shadow: c.Snapshot.Shadow, Details: Details{Said: c.said()}}
	e.Said.Code = code
	switch {
	case d.last != r.seq || now.Sub(d.at) > lull:
		d.row = 0
	case d.open != nil && (d.row >= maxApart || d.open.alike(&e)):
		d.at = now
		c.tell(d.last)
		d.open.join(&e)
		return
	default:
		d.row++
	}
	r.record(e)
	c.tell(d.last)
}

// Told is the number of the last entry that tells of the call, 0: none does.
func (c *Call) Told() uint64 { return c.told }

// Line is the number of the entry of which a line of the audit tells that is made now, the first of which is the
// decision; 0: it tells of none. No other line of the call does.
func (c *Call) Line() (seq uint64) {
	seq, c.line, c.decided = c.line, 0, true
	return seq
}

// asked is the call as far as what changes nothing tells of it: what it asked for is its client's, and may be long.
func (c *Call) asked() *Call {
	name := c.Name
	if len(name) > maxName {
		name = name[:maxName] + "…"
	}
	out := &Call{Request: Request{Kind: c.Kind, Name: strings.ToValidUTF8(name, "�")}}
	out.Verdict.Alternative = c.Verdict.Alternative // which names outcomes
	out.Verdict.Rule, out.Verdict.Symbol = c.Verdict.Rule, policy.Symbol{Kind: c.Kind, Name: out.Name, Case: c.Verdict.Symbol.Case, Alternative: c.Verdict.Symbol.Alternative}
	return out
}

// maxName is how much of a name is told, in bytes.
const maxName = 256

// decline takes an entry of a refusal, which is made at once where it is the first.
func (a *ahead) decline(e Entry) {
	a.closeDeclined()
	d := &a.declined
	d.last, d.at = e.Seq, e.Time
	if d.row == 0 {
		a.made = append(a.made, e)
		return
	}
	d.open, d.until = &e, e.Time.Add(min(firstWindow<<min(d.row-1, 16), lastWindow))
}

// alike reports whether refusals differ in nothing but when they came.
func (e *Entry) alike(other *Entry) bool {
	a, b := e.Said, other.Said
	return a.Code == b.Code && a.Issuer == b.Issuer && a.Subject == b.Subject && e.Shadow == other.Shadow && e.Call != nil &&
		e.Call.Verdict.Symbol == other.Call.Verdict.Symbol && e.Call.Verdict.Rule == other.Call.Verdict.Rule
}

// join counts another refusal. Of those that differ what they have in common is left.
func (e *Entry) join(other *Entry) {
	s, o := e.Said, other.Said
	if s.Times == 0 {
		s.Times, s.Since = 1, e.Time
	}
	s.Times++
	e.Time = other.Time
	if e.Call != nil && (e.Call.Verdict.Symbol != other.Call.Verdict.Symbol || e.Call.Verdict.Rule != other.Call.Verdict.Rule) {
		e.Call = nil
	}
	if s.Code != o.Code {
		s.Code = policy.CodeNone
	}
	if s.Issuer != o.Issuer || s.Subject != o.Subject {
		s.Issuer, s.Subject = "", ""
	}
}

// DeclinedUntil is when an entry is to be made by [Run.Declined]; zero: there is none.
func (r *Run) DeclinedUntil() (until time.Time) {
	if r.ahead != nil && r.ahead.declined.open != nil {
		until = r.ahead.declined.until
	}
	return until
}

// Declined makes the entry that stands for refusals, where its time is over.
func (r *Run) Declined(now time.Time) {
	if r.ahead != nil && r.ahead.declined.open != nil && !now.Before(r.ahead.declined.until) {
		r.ahead.closeDeclined()
		r.checkpoint(now)
	}
}

// closeDeclined makes the entry that stands for refusals, where there is one: before another one is, or nobody counts on.
func (a *ahead) closeDeclined() {
	if e := a.declined.open; e != nil {
		a.made = append(a.made, *e)
		a.declined.open = nil
	}
}
