package telemetry

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// Denial is an HTTP request that was refused before any session saw it.
type Denial struct {
	Reason  string // in a word, of a closed set
	Request *http.Request
}

const (
	// denialInterval is the least time between two lines on denials of one address
	// for one reason.
	denialInterval = 10 * time.Second
	// maxDenials is how many pairs of address and reason are told apart in that time.
	maxDenials = 256
)

// denials counts denied requests until they are written: of one address, for one
// reason, the first at once, and what follows within denialInterval as one line with
// its count. Beyond maxDenials all addresses have one line for each reason. So
// whoever is not let in bounds neither the audit's size nor its memory by what they
// send, and each request is counted once.
type denials struct {
	counts map[denier]*denialCount
	next   time.Time // when the first line is due
	begun  uint64    // how many lines were begun
}

// denier is who is denied, and why.
type denier struct {
	from   netip.Prefix // an IPv4 address, a /64 of IPv6, or zero for all others
	reason string
}

type denialCount struct {
	first []byte    // the members of the first request that is counted
	since time.Time // when that came
	order uint64    // of that, among those of other lines
	n     int64     // not written yet
	due   time.Time // when what is counted is written
}

// add counts a request, and reports whether there is a line to write by now.
func (d *denials) add(one Denial, now time.Time) bool {
	who := denier{sourceOf(one.Request.RemoteAddr), one.Reason}
	c := d.counts[who]
	if c == nil && len(d.counts) >= maxDenials {
		who.from = netip.Prefix{}
		c = d.counts[who] // one for each reason
	}
	if c == nil {
		c = &denialCount{due: now}
		if d.counts == nil {
			d.counts = make(map[denier]*denialCount)
		}
		d.counts[who] = c
		d.next = now
	}
	if c.n == 0 {
		l := newLine("denial")
		l.denied(&one, who.from.IsValid())
		d.begun++
		c.first, c.since, c.order = slices.Clone(l.b), now, d.begun
		l.free()
	}
	c.n++
	return !now.Before(d.next)
}

// take calls f for each line that is due, or for all, in the order in which their
// first requests came. Who had none to write for denialInterval is forgotten.
func (d *denials) take(now time.Time, all bool, f func(l *line)) {
	if len(d.counts) == 0 || now.Before(d.next) && !all {
		return
	}
	var due []*denialCount
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
	slices.SortFunc(due, func(a, b *denialCount) int { return cmp.Compare(a.order, b.order) })
	for _, c := range due {
		l := lines.Get().(*line)
		l.b = append(l.b[:0], c.first...)
		l.number("count", c.n)
		if c.n > 1 {
			l.time("since", c.since)
		}
		f(l)
		l.free()
		c.first, c.n, c.due = nil, 0, now.Add(denialInterval)
	}
}

// soon returns a channel that tells when the next line is due, nil where none is.
func (d *denials) soon(now time.Time) <-chan time.Time {
	if len(d.counts) == 0 {
		return nil
	}
	return time.After(d.next.Sub(now))
}

// sourceOf is what counts as one address: of IPv6 a /64, since whoever has one has
// all of it.
func sourceOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	from, _ := addr.Prefix(bits)
	return from
}

// denied are the members of a denial; one says whether it stands for the requests of
// one address. No header that may hold a secret is among them.
func (l *line) denied(d *Denial, one bool) {
	l.word("decision", "refuse")
	l.word("reason", d.Reason)
	if !one {
		return
	}
	l.text("remote", d.Request.RemoteAddr)
	l.text("http_method", d.Request.Method)
	l.text("host", d.Request.Host)
	l.text("origin", d.Request.Header.Get("Origin"))
}
