package stdio

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Config are the limits of [Serve]. The zero value is a good one.
type Config struct {
	// MaxMessage is how many bytes a message may have; 0: 4 MiB.
	MaxMessage int
	// Limits bound what a message may hold; zero values are wire's.
	Limits wire.Limits
	// Queue is how many bytes may wait for the client to read them; 0: 4 MiB.
	Queue int
	// Linger is how long requests under way at the end of input may still
	// end by themselves before the session is closed; 0: not at all.
	Linger time.Duration
	// Drain is how long requests under way may take to end once the session
	// is closed; 0: 10 s.
	Drain time.Duration
	// Cork gathers what is written while the client's messages come faster
	// than one a read. nil: nothing does.
	Cork *Cork
}

func (c *Config) fill() {
	if c.MaxMessage <= 0 {
		c.MaxMessage = 4 << 20
	}
	if c.Queue <= 0 {
		c.Queue = DefaultQueue
	}
	if c.Drain <= 0 {
		c.Drain = 10 * time.Second
	}
}

// Serve serves the one client at in and out until in ends, ctx ends, or out
// takes nothing more. open is called once, first, with the stream that carries
// everything to the client. At the end the session is closed, requests under
// way are waited for, and what they answer is written.
//
// The error is nil at the end of input and when ctx ends. Where in cannot be
// unblocked (a terminal, an inherited pipe) the goroutine that reads it stays
// behind until the next read returns; it hands on nothing more.
func Serve(ctx context.Context, cfg Config, in io.Reader, out io.Writer, open func(own wire.Stream) wire.Session) error {
	cfg.fill()
	w := NewWriter(out, cfg.Queue)
	w.Join(cfg.Cork)
	s := &server{cfg: cfg, out: &stream{w}, ended: make(chan error, 1)}
	s.done = s.calls.Done
	s.session = open(s.out)
	go s.read(NewReader(in, cfg.MaxMessage))
	err := s.wait(ctx, in, w)
	s.mu.Lock() // no message is on its way now
	s.stopped = true
	s.mu.Unlock()
	if err == nil {
		s.drain(cfg.Linger)
	}
	s.session.Close()
	s.drain(cfg.Drain)
	w.Close()
	return err
}

// stream carries everything to the one client.
type stream struct{ w *Writer }

func (s *stream) Send(msg []byte) bool { return s.w.Write(msg) }
func (s *stream) Listening() bool      { return s.w.open() }

func (s *stream) Answer(msg []byte) {
	if msg != nil {
		s.w.Write(msg)
	}
}

// server is one run of Serve.
type server struct {
	cfg     Config
	session wire.Session
	out     *stream
	ended   chan error // the end of input: nil or why
	calls   sync.WaitGroup
	done    func() // of calls

	mu      sync.Mutex // held while a message is handed on
	stopped bool       // guarded by mu: no more are
}

// wait waits for one of the three ends. A read under way is ended, where in can do that.
func (s *server) wait(ctx context.Context, in io.Reader, w *Writer) (err error) {
	select {
	case err := <-s.ended:
		return err
	case <-w.Done():
		err = w.Err()
	case <-ctx.Done():
	}
	if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = d.SetReadDeadline(time.Unix(1, 0))
	}
	return err
}

// drain waits for the requests under way.
func (s *server) drain(limit time.Duration) {
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// read hands on messages in the order of arrival.
func (s *server) read(r *Reader) {
	r.Join(s.cfg.Cork)
	defer r.Release()
	for {
		raw, err := r.Next()
		if errors.Is(err, ErrTooLong) {
			s.unreadable(s.out, &wire.Error{Code: wire.CodeInvalidRequest, ID: r.Skipped(),
				Message: "a message of more than " + strconv.Itoa(s.cfg.MaxMessage) + " bytes"})
			continue
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			s.ended <- err
			return
		}
		if !s.take(raw) {
			return
		}
	}
}

// take hands on what one line held and reports whether there may be more.
func (s *server) take(raw []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	if raw[0] != '{' && wire.IsBatch(raw) {
		s.batch(raw)
		return true
	}
	m, err := s.cfg.Limits.Read(raw, wire.FromClient)
	if err != nil {
		s.unreadable(s.out, err)
	} else if p := s.session.Handle(m, s.out); p != nil {
		s.calls.Add(1)
		if !p.Detach(s.done) {
			go func() {
				defer s.calls.Done()
				p.Wait()
			}()
		}
	}
	return true
}

// unreadable answers a message that cannot be read.
func (s *server) unreadable(out wire.Stream, err error) {
	wire.Unread(s.session, err)
	if e, ok := errors.AsType[*wire.Error](err); ok {
		out.Answer(e.Answer())
		return
	}
	out.Answer(wire.ErrorAnswer(nil, wire.CodeParse, err.Error(), nil))
}

// batchVersion is the one protocol revision that has batches.
const batchVersion = "2025-03-26"

// batch starts the members of a JSON-RPC batch: one after the other, each with
// its answer before the next is handed on.
func (s *server) batch(raw []byte) {
	if v := s.session.Version(); v != batchVersion {
		s.unreadable(s.out, &wire.Error{Code: wire.CodeInvalidRequest,
			Message: "JSON-RPC batches belong to protocol revision " + batchVersion + " alone: send the messages one by one"})
		return
	}
	members, err := s.cfg.Limits.Split(raw)
	if err != nil {
		s.unreadable(s.out, err)
		return
	}
	s.calls.Go(func() {
		answers := &batchStream{stream: s.out}
		for _, raw := range members {
			m, err := s.cfg.Limits.Read(raw, wire.FromClient)
			if err == nil {
				err = m.MemberFault()
			}
			if err != nil {
				s.unreadable(answers, err)
			} else if p := s.session.Handle(m, answers); p != nil {
				p.Wait()
			}
		}
		if all := answers.close(); all != nil {
			s.out.Answer(all)
		}
	})
}

// batchStream is the stream of a batch: answers are kept for the one array that
// answers it, all else goes out at once.
type batchStream struct {
	*stream
	mu     sync.Mutex
	all    []byte // guarded by mu: the array, not yet closed
	closed bool   // guarded by mu: answers come too late
}

func (b *batchStream) Answer(msg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || msg == nil {
		return
	}
	if b.all == nil {
		b.all = append(b.all, '[')
	} else {
		b.all = append(b.all, ',')
	}
	b.all = append(b.all, msg...)
}

// close returns the array of answers, nil if there are none.
func (b *batchStream) close() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.all == nil {
		return nil
	}
	return append(b.all, ']')
}
