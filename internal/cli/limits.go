package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// limitFlags bound what clients and servers can take.
type limitFlags struct {
	message         size
	bodies          size
	upstreamMessage size
	listBytes       size
	listPages       int
	inFlight        int
	queue           int
	subscriptions   int
	outbound        size
	store           size
	storeTime       time.Duration
	connections     int
	strangers       int
	header          size
	headerTimeout   time.Duration
	depth           int
	batch           int
	sessions        int
	share           int
	principalShare  int
	requests        int
	listens         int
	processes       int
	idle            time.Duration
	unused          time.Duration
	writeTimeout    time.Duration
}

func (l *limitFlags) register(flags *pflag.FlagSet) {
	sizes := []struct {
		value       *size
		name, usage string
		def         size
	}{
		{&l.message, "max-message", "the size of a message from a client", 4 << 20},
		{&l.bodies, "max-body-memory", "what the bodies of requests may take, all together", 64 << 20},
		{&l.upstreamMessage, "max-upstream-message", "the size of a message from the server", 64 << 20},
		{&l.listBytes, "max-list-size", "the size of a list, all pages together", 32 << 20},
		{&l.outbound, "max-outbound", "what may wait for a client on one stream before the stream closes", 4 << 20},
		{&l.store, "max-resume", "what a session keeps for streams that are resumed", 1 << 20},
		{&l.header, "max-header", "the size of a request's headers", 32 << 10},
	}
	for _, s := range sizes {
		*s.value = s.def
		flags.Var(s.value, s.name, s.usage)
	}
	flags.IntVar(&l.listPages, "max-list-pages", 1000, "the pages of a list")
	flags.IntVar(&l.inFlight, "max-in-flight", 256, "requests of one session at a time")
	flags.IntVar(&l.queue, "max-queue", 64, "calls that wait for one run's turn")
	flags.IntVar(&l.subscriptions, "max-subscriptions", 1000, "resource subscriptions of one session")
	flags.IntVar(&l.depth, "max-depth", wire.MaxDepth, "how deeply a message from a client may nest")
	flags.IntVar(&l.batch, "max-batch", wire.MaxBatch, "the messages of a JSON-RPC batch")
	flags.IntVar(&l.connections, "max-connections", 0, "connections of clients at a time (default what the limits on open files and memory leave, at most 65536)")
	flags.IntVar(&l.strangers, "max-connections-per-address", 0, "of them, those of one remote address that carried no request which was let in (default half of all; loopback and --trusted-proxies: all)")
	flags.IntVar(&l.sessions, "max-sessions", 0, "sessions at a time (default 10000, or --max-upstreams where each has a process)")
	flags.IntVar(&l.share, "max-sessions-per-address", 0, "sessions of one remote address that is not loopback (default half of all)")
	flags.IntVar(&l.principalShare, "max-sessions-per-principal", 0, "sessions of one principal, where clients are told apart (default half of all)")
	flags.IntVar(&l.requests, "max-requests", 10_000, "requests without a session at a time; one remote address that is not loopback may have half")
	flags.IntVar(&l.listens, "max-listen-streams", 10_000, "subscriptions/listen streams at a time, likewise")
	flags.IntVar(&l.processes, "max-upstreams", 64, "processes of the wrapped server at a time")
	flags.DurationVar(&l.storeTime, "resume-time", time.Minute, "how long a session keeps what streams may resume")
	flags.DurationVar(&l.headerTimeout, "header-timeout", 10*time.Second, "how long a request may take to arrive: its headers, and a body of up to 64 KiB")
	flags.DurationVar(&l.idle, "session-idle", time.Hour, "after how long without a request a session ends")
	flags.DurationVar(&l.unused, "session-unused", time.Minute, "how long a session may take from initialize to its next request")
	flags.DurationVar(&l.writeTimeout, "write-timeout", 30*time.Second, "how long a client may take to accept what is written")
}

// wire is what bounds a message's inside.
func (l *limitFlags) wire() wire.Limits { return wire.Limits{Depth: l.depth, Batch: l.batch} }

// check refuses limits that would let nothing through. --drain, --oidc-skew and
// --upstream-ping are none: they may be 0.
func (l *limitFlags) check(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || !f.Changed {
			return
		}
		text := f.Value.String()
		if text == "0s" && (f.Name == "drain" || f.Name == "oidc-skew" || f.Name == "upstream-ping") {
			return
		}
		if (f.Value.Type() == "int" || f.Value.Type() == "duration") && (text == "0" || text == "0s" || text[0] == '-') {
			err = usagef("--%s %s must be more than 0", f.Name, text)
		}
	})
	return err
}
