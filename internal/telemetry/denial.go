package telemetry

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// Denial is an HTTP request that was refused before any session saw what it says.
type Denial struct {
	Reason  string // in a word, of a closed set
	Status  int    // that it is answered with
	Why     string // in words, for an operator
	Detail  []any  // what the log tells of the request besides, as pairs
	Request *http.Request
}

const (
	// denialInterval is the least time in which denials of one address for one reason are
	// told twice.
	denialInterval = 10 * time.Second
	// maxDenials is how many pairs of address and reason are told apart in that time.
	maxDenials = 256
)

// denials counts denied requests until they are told: of one address, for one reason,
// the first at once, and what follows within denialInterval together, with its count.
// Beyond maxDenials all addresses count as one for each reason. So whoever is not let in
// bounds neither what is told nor the memory for it by what they send, and each request is
// counted once. T is what is told of the first.
type denials[T any] struct {
	// first is what is told of a request that stands for others to come; one says whether they
	// are all of its address.
	first  func(d *Denial, one bool) T
	counts map[denier]*denialCount[T]
	next   time.Time // when the first is due
	begun  uint64    // how many were begun
}

// denier is who is denied, and why.
type denier struct {
	from   netip.Prefix // an IPv4 address, a /64 of IPv6, or zero for all others
	reason string
}

type denialCount[T any] struct {
	counted[T]
	order uint64    // of the first, among those of others
	due   time.Time // when what is counted is told
}

// counted are denied requests that are told together.
type counted[T any] struct {
	first T
	since time.Time // when that came
	n     int64
}

// add counts a request, and reports whether there is anything to tell by now.
func (d *denials[T]) add(one Denial, now time.Time) bool {
	at, _ := netip.ParseAddrPort(one.Request.RemoteAddr)
	who := denier{httpserver.Network(at.Addr()), one.Reason}
	c := d.counts[who]
	if c == nil && len(d.counts) >= maxDenials {
		who.from = netip.Prefix{}
		c = d.counts[who] // one for each reason
	}
	if c == nil {
		c = &denialCount[T]{due: now}
		if d.counts == nil {
			d.counts = make(map[denier]*denialCount[T])
		}
		d.counts[who] = c
		d.next = now
	}
	if c.n == 0 {
		d.begun++
		c.first, c.since, c.order = d.first(&one, who.from.IsValid()), now, d.begun
	}
	c.n++
	return !now.Before(d.next)
}

// take returns what is due, or all, in the order in which their first requests came. Who had
// nothing to tell for denialInterval is forgotten.
func (d *denials[T]) take(now time.Time, all bool) (told []counted[T]) {
	if len(d.counts) == 0 || now.Before(d.next) && !all {
		return nil
	}
	var due []*denialCount[T]
	d.next = now.Add(denialInterval)
	for who, c := range d.counts {
		switch {
		case now.Before(c.due) && !all:
			if c.due.Before(d.next) {
				d.next = c.due
			}
		case c.n == 0:
			delete(d.counts, who)
		default:
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(a, b *denialCount[T]) int { return cmp.Compare(a.order, b.order) })
	for _, c := range due {
		told = append(told, c.counted)
		c.counted, c.due = counted[T]{}, now.Add(denialInterval)
	}
	return told
}

// soon returns a channel that tells when the next line is due, nil where none is.
func (d *denials[T]) soon(now time.Time) <-chan time.Time {
	if len(d.counts) == 0 {
		return nil
	}
	return time.After(d.next.Sub(now))
}

// lineOfDenied returns what the audit tells of the first request; one says whether it stands for the requests of one
// address. No header that may hold a secret is in it.
func lineOfDenied(d *Denial, one bool) []byte {
	l := newLine("denial")
	defer l.free()
	l.word("decision", "refuse")
	l.word("reason", d.Reason)
	if one {
		l.text("remote", d.Request.RemoteAddr)
		l.text("http_method", d.Request.Method)
		l.text("host", d.Request.Host)
		l.text("origin", d.Request.Header.Get("Origin"))
	}
	return slices.Clone(l.b)
}

// newLineOf returns the audit's line on denied requests.
func newLineOf(c *counted[[]byte]) *line {
	l := lines.Get().(*line)
	l.b = append(l.b[:0], c.first...)
	l.number("count", c.n)
	if c.n > 1 {
		l.time("since", c.since)
	}
	return l
}

// DenialLog logs denied requests: of one address, for one reason, the first at once, and
// what follows as one line each 10 s. It is safe for concurrent use.
type DenialLog struct {
	log hclog.Logger

	mu      sync.Mutex // guards what follows
	denials denials[[]any]
	timer   *time.Timer // for what is due next; nil: none was needed yet
	closed  bool
}

// NewDenialLog returns a log of denials.
func NewDenialLog(log hclog.Logger) *DenialLog {
	return &DenialLog{log: log, denials: denials[[]any]{first: wordsOfDenied}}
}

// Denied counts a request, and logs what is due.
func (d *DenialLog) Denied(one Denial) {
	d.mu.Lock()
	due := d.denials.add(one, time.Now())
	d.mu.Unlock()
	if due {
		d.flush()
	}
}

// flush logs what is due, and sets the timer for the rest.
func (d *DenialLog) flush() {
	now := time.Now()
	d.mu.Lock()
	told := d.denials.take(now, d.closed)
	if len(d.denials.counts) > 0 && !d.closed {
		if wait := d.denials.next.Sub(now); d.timer == nil {
			d.timer = time.AfterFunc(wait, d.flush)
		} else {
			d.timer.Reset(wait)
		}
	}
	d.mu.Unlock()
	for _, c := range told {
		words := c.first
		if c.n > 1 {
			words = append(words, "count", c.n, "since", c.since.UTC().Format(time.RFC3339))
		}
		d.log.Info("an HTTP request was refused", words...)
	}
}

// Close logs what is counted. Denied must not be called any more.
func (d *DenialLog) Close() {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.flush()
}

// wordsOfDenied returns what the log tells of the first request. No header that may hold a
// secret is among it.
func wordsOfDenied(d *Denial, one bool) []any {
	words := []any{"status", d.Status, "reason", d.Reason, "why", d.Why}
	if one {
		words = append(append(words, "remote", d.Request.RemoteAddr, "method", clip(d.Request.Method)), d.Detail...)
	}
	return words
}
