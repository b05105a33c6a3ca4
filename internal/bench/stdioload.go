package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// stdioLoad is a number of callers that share one pipe: each has one request
// outstanding and sends the next when its answer has come. Every request is a
// write of its own, as callers that know nothing of each other make it; were
// they gathered, a copying pipe would pass dozens for the price of one.
type stdioLoad struct {
	in  *os.File // the subject's standard output
	out *os.File // and input

	callers int
	asked   []int       // questions so far, by caller
	started []time.Time // of the outstanding one
	buf     []byte
	r, w    int
	request []byte // scratch
	took    []time.Duration
}

// newStdioLoad opens a session over a subject's pipes.
func newStdioLoad(out, in *os.File, callers int, modern bool) (*stdioLoad, error) {
	l := &stdioLoad{
		in: in, out: out, callers: callers,
		asked: make([]int, callers), started: make([]time.Time, callers), buf: make([]byte, 64<<10),
	}
	if modern { // there is no handshake
		return l, nil
	}
	if err := l.handshake(); err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	return l, nil
}

func (l *stdioLoad) handshake() error {
	l.in.SetReadDeadline(time.Now().Add(10 * time.Second)) // pipes take one; where not, it stays unlimited
	if err := l.write([]byte(initializeRequest + "\n")); err != nil {
		return err
	}
	line, err := l.line()
	if err != nil {
		return err
	}
	if !bytes.Contains(line, []byte(`"result"`)) {
		return fmt.Errorf("initialize: %.300s", line)
	}
	return l.write([]byte(initializedNote + "\n"))
}

// close is for the pipes' owner, the subject's process.
func (l *stdioLoad) close() error { return nil }

func (l *stdioLoad) run(w window, q question, cpu meter) (sample, error) {
	l.in.SetReadDeadline(w.limit())
	l.took = l.took[:0]
	begin := time.Now()
	for i := range l.callers {
		if err := l.ask(i, q, begin); err != nil {
			return sample{}, err
		}
	}
	if _, err := l.until(begin.Add(w.settle), q, false); err != nil {
		return sample{}, err
	}
	before, known := cpu()
	start := time.Now()
	end, err := l.until(start.Add(w.measure), q, true)
	if err != nil {
		return sample{}, err
	}
	after, _ := cpu()
	if err := l.drain(q); err != nil {
		return sample{}, err
	}
	return newSample(l.took, end.Sub(start), spent(before, after, known)), nil
}

// until answers and asks until the first answer after stop and returns when
// that was.
func (l *stdioLoad) until(stop time.Time, q question, count bool) (time.Time, error) {
	for {
		now, err := l.batch(q, func(caller int, now time.Time) error {
			if count {
				l.took = append(l.took, now.Sub(l.started[caller]))
			}
			return l.ask(caller, q, now)
		})
		if err != nil || now.After(stop) {
			return now, err
		}
	}
}

// drain takes the answers that are still to come.
func (l *stdioLoad) drain(q question) error {
	left := l.callers
	for left > 0 {
		if _, err := l.batch(q, func(int, time.Time) error { left--; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a caller's next question.
func (l *stdioLoad) ask(caller int, q question, now time.Time) error {
	l.request = append(append(l.request[:0], q.body...), '\n')
	putID(l.request[q.idAt:q.idAt+idDigits], firstID+caller*idsEach+l.asked[caller]%idsEach)
	l.asked[caller]++
	l.started[caller] = now
	return l.write(l.request)
}

// batch reads at least one answer and all that came with it.
func (l *stdioLoad) batch(q question, answered func(caller int, now time.Time) error) (time.Time, error) {
	for {
		line, err := l.line()
		now := time.Now()
		if err != nil {
			return now, fmt.Errorf("reading an answer: %w", err)
		}
		caller, err := l.caller(line, q)
		if err == nil {
			err = answered(caller, now)
		}
		if err != nil || bytes.IndexByte(l.buf[l.r:l.w], '\n') < 0 {
			return now, err
		}
	}
}

// caller finds whom an answer is for, and checks it.
func (l *stdioLoad) caller(line []byte, q question) (int, error) {
	const key = `"id":`
	if at := bytes.Index(line, []byte(key)); at >= 0 && len(line) > at+len(key)+idDigits && bytes.LastIndex(line, q.want) >= 0 {
		id, err := strconv.Atoi(string(line[at+len(key) : at+len(key)+idDigits]))
		caller := (id - firstID) / idsEach
		if err == nil && id >= firstID && caller < l.callers {
			return caller, nil
		}
	}
	return 0, fmt.Errorf("wrong answer: %.300s", line)
}

func (l *stdioLoad) write(line []byte) error {
	if _, err := l.out.Write(line); err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	return nil
}

// line is the next line, without its end, valid until the next call.
func (l *stdioLoad) line() ([]byte, error) {
	for scanned := 0; ; {
		if i := bytes.IndexByte(l.buf[l.r+scanned:l.w], '\n'); i >= 0 {
			line := l.buf[l.r : l.r+scanned+i]
			l.r += len(line) + 1
			return line, nil
		}
		scanned = l.w - l.r
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.r = 0
		if l.w == len(l.buf) {
			l.buf = append(l.buf, make([]byte, len(l.buf))...)
		}
		n, err := l.in.Read(l.buf[l.w:])
		if err != nil {
			return nil, err
		}
		l.w += n
	}
}
