package cli

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
)

// drainFlags say how the proxy ends.
type drainFlags struct {
	time time.Duration
}

func (f *drainFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.time, "drain", 25*time.Second, "how long calls under way may still take when the proxy is told to end; 0: no time at all")
}

// drain refuses what is new, and lets what is under way come to its end.
func (s *service) drain() {
	begun := time.Now()
	s.relay.Refuse()
	s.log.Info("ending: calls under way may finish, new ones are refused", "drain", s.flags.drain.time)
	ctx, stop := context.WithTimeout(context.Background(), s.flags.drain.time)
	defer stop()
	d := s.relay.Drain(ctx)
	s.log.Info("drained", "finished", d.Finished, "broken_off", d.BrokenOff, "refused", d.Refused, "after", time.Since(begun).Round(time.Millisecond))
}

// whileDraining returns a context that ends when ctx has and the drain after it
// is over. stop ends it without one; both wait for a drain that has begun.
func (s *service) whileDraining(ctx context.Context) (serving context.Context, stop func()) {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	drained := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(drained)
		defer end()
		s.drain()
	})
	return serving, func() {
		if !undo() {
			<-drained
		}
		end()
	}
}

const (
	// farewellTime is how long clients may still come with a request on a
	// connection that they hold open, to be told to go elsewhere: one that came
	// just as the connection was closed would have no answer at all.
	farewellTime = 500 * time.Millisecond
	// flushTime is how long clients may at least take to read what they are
	// answered; they have the rest of the drain's time, too.
	flushTime = 2 * time.Second
)

// serveHTTP serves until ctx ends, and for as long as the drain after it lasts.
// The listener is closed last: whoever sends requests here may hear late that
// there is nobody any more.
func (s *service) serveHTTP(ctx context.Context, server *httpserver.Server, l net.Listener, front *streamhttp.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	until := time.Now().Add(s.flags.drain.time)
	server.Retire()
	s.drain()
	if server.Connections() > 0 {
		rest(min(farewellTime, s.flags.drain.time))
	}
	last, cancel := context.WithTimeout(context.Background(), max(flushTime, time.Until(until)))
	defer cancel()
	if front.Close(last) != nil || server.Shutdown(last) != nil {
		server.Close()
	}
	return err
}

func rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// ended says that the processes which ran are gone.
func (s *service) ended(since time.Time, children int) {
	if children == 0 {
		return
	}
	s.log.Info("ended the server", "processes", children, "after", time.Since(since).Round(time.Millisecond))
}
