package run

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
)

// Reply is what somebody says of a call that waits for it.
type Reply struct {
	Answer   approval.State // Allowed, Denied or, of a client, Unanswered
	By, Note string         // who has said so, and why, as it is kept
}

// Answer is a yes or a no of an operator's that is kept. It holds for the visit of the state in which its entry stands.
type Answer struct {
	approval.Answer
	Next *policy.Policy // that the run went by then when its turn was free

	visit uint64 // of the table, since when nothing may have closed it; 0: it is read
}

// maxAnswer is how many bytes of an entry keep an answer: one that is longer is remembered as long as the process.
const maxAnswer = 16 << 10

// Answer answers a question that is open. An operator's yes or no to a call of a run that lasts counts when its entry is
// durable, which p awaits; all else at once, and p is nil. It reports false where the run is about to stand elsewhere, or
// somebody has answered before: then nothing comes of it.
func (r *Run) Answer(q *approval.Question, said Reply, now time.Time) (p *Pending, ok bool) {
	t := r.questions()
	if !q.IsOpen() {
		return nil, false
	}
	e, keep := r.answer(q, said, now)
	switch {
	case !keep:
		t.Answer(q, said.Answer, now)
		return nil, true
	case r.moving():
		return nil, false
	}
	e.Answer.visit = t.Visit()
	q.Answering()
	e = r.record(e)
	return e.pending, true
}

// answer is the entry by which an answer is kept. keep is false where none is to be: it ends with who gave it, or is of
// arguments of which nothing may be kept; or cannot be: read again it would be the answer to another call.
func (r *Run) answer(q *approval.Question, said Reply, now time.Time) (e Entry, keep bool) {
	if r.ahead == nil || q.Of != policy.ByOperator || said.Answer != approval.Allowed && said.Answer != approval.Denied ||
		r.Secret != nil && r.Secret(q.Symbol, q.Arguments) {
		return e, false
	}
	a := &Answer{Answer: approval.Answer{Key: q.Key, ID: q.ID, Said: said.Answer,
		By: strings.ToValidUTF8(said.By, "\uFFFD"), Note: strings.ToValidUTF8(said.Note, "\uFFFD")}, Next: r.asked.of.next}
	if said.Answer == approval.Allowed {
		a.Until = now.Add(q.Patience)
	}
	c := &Call{Request: Request{Kind: q.Symbol.Kind, Name: q.Symbol.Name}, Verdict: policy.Verdict{Symbol: q.Symbol, Rule: q.Rule}}
	at := r.asRecorded()
	e = Entry{Type: Answered, Time: now, Call: c, Details: Details{Answer: a}, From: at, To: at}
	text, err := e.AppendJSON(nil)
	if err != nil || len(text) > maxAnswer {
		return e, false
	}
	again, err := ReadEntry(text, func(digest string) *policy.Policy {
		for _, p := range []*policy.Policy{q.Policy, at.Policy, a.Next} {
			if p.Digest() == digest {
				return p
			}
		}
		return nil
	})
	return e, err == nil && again.Answer.Key == a.Key
}

// answered has an answer count that is durable. What has closed its question, but for the end of who asked, has ended it,
// too.
func (r *Run) answered(e *Entry, next *policy.Policy) {
	t := r.questionsOf(next)
	if a := e.Answer; a.visit == 0 || a.visit == t.Visit() {
		t.Enter(&a.Answer, e.Seq, e.Time)
	}
}

// answer is an [Answer] as it is kept: to which call it is, the entry tells beside.
type answer struct {
	ID        string     `json:"approval"`
	Said      string     `json:"said"`
	By        string     `json:"by,omitzero"`
	Note      string     `json:"note,omitzero"`
	Until     time.Time  `json:"until,omitzero"`
	Policy    string     `json:"policy"` // the digest of that by which the call was decided
	Next      string     `json:"next,omitzero"`
	Pattern   string     `json:"pattern"` // of the rule
	Principal *principal `json:"principal,omitzero"`
	Digest    string     `json:"digest"` // of the arguments
}

// principal is on whose behalf a call comes.
type principal struct {
	Issuer  string `json:"issuer,omitzero"`
	Subject string `json:"subject,omitzero"`
}

var yesOrNo = map[approval.State]string{approval.Allowed: "allow", approval.Denied: "deny"}

func (a *Answer) written() *answer {
	if a == nil {
		return nil
	}
	out := &answer{ID: a.ID, Said: yesOrNo[a.Said], By: a.By, Note: a.Note, Until: a.Until.UTC(), Policy: a.Policy.Digest(), Pattern: a.Rule.Pattern, Digest: a.Digest}
	if a.Until.IsZero() {
		out.Until = time.Time{}
	}
	if a.Next != a.Policy {
		out.Next = a.Next.Digest()
	}
	if issuer, subject, known := strings.Cut(a.Principal, "\x00"); known {
		out.Principal = &principal{issuer, subject}
	}
	return out
}

// answered reads an entry's answer.
func (k *kept) answered(c *Call, policies func(digest string) *policy.Policy) (*Answer, error) {
	x := k.Answer
	if x == nil || c == nil {
		return nil, errors.New("nothing is said of any call")
	}
	a := &Answer{Answer: approval.Answer{ID: x.ID, By: x.By, Note: x.Note, Until: x.Until}}
	for state, word := range yesOrNo {
		if word == x.Said {
			a.Said = state
		}
	}
	if a.Said == approval.Open || (a.Said == approval.Allowed) == x.Until.IsZero() {
		return nil, fmt.Errorf("there is no answer %q until %v", x.Said, x.Until)
	}
	rule, err := readRule(k.Rule, x.Pattern)
	if err != nil {
		return nil, err
	}
	a.Key = approval.Key{Policy: policies(x.Policy), Rule: rule, Symbol: c.Verdict.Symbol, Digest: x.Digest}
	if x.Principal != nil {
		a.Principal = x.Principal.Issuer + "\x00" + x.Principal.Subject
	}
	if a.Next = a.Policy; x.Next != "" {
		a.Next = policies(x.Next)
	}
	if a.Policy == nil || a.Next == nil {
		return nil, fmt.Errorf("there is no policy %s, or no policy %s", x.Policy, x.Next)
	}
	return a, nil
}

// readRule reads where a rule stands, as [policy.Rule.String] has it.
func readRule(place, pattern string) (rule policy.Rule, err error) {
	rest, column, _ := cutLast(place)
	file, line, ok := cutLast(rest)
	if rule = (policy.Rule{File: file, Pattern: pattern}); ok {
		rule.Line, err = strconv.Atoi(line)
	}
	if err == nil {
		rule.Column, err = strconv.Atoi(column)
	}
	if err != nil {
		return rule, fmt.Errorf("there is no rule at %q", place)
	}
	return rule, nil
}

func cutLast(text string) (before, after string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+1:], true
}
