package service

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
	"github.com/fsm-proxy/fsm-proxy/internal/redact"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// open opens the audit, nil where none is asked for. What is taken out of arguments it does not tell.
func (f *Audit) open(taken *redact.Redaction, log hclog.Logger) (*telemetry.Audit, error) {
	cfg := telemetry.AuditConfig{Path: f.Path, Redact: taken, Instance: rand.Text()[:12], Arguments: f.Arguments, Log: log}
	switch {
	case f.Path == "":
		return nil, nil
	case f.Path == "stderr":
		cfg.Path, cfg.Out = "", os.Stderr
	}
	return telemetry.NewAudit(cfg)
}

// observers are who is told what the proxy decides and does. Each is nil where
// nobody asked for it.
type observers struct {
	metrics *telemetry.Metrics
	traces  *telemetry.Traces
	audit   *telemetry.Audit
	denials *telemetry.DenialLog
	log     hclog.Logger
}

// observers opens what the configuration and the environment ask for: metrics are read at
// --health, traces configured by the OTEL_ variables.
// After an error, too, what there is has to be closed.
func (s *service) observers(ctx context.Context) (o *observers, err error) {
	o = &observers{log: s.log, denials: telemetry.NewDenialLog(s.log)}
	about := telemetry.About{Version: s.cfg.Version, Server: telemetry.TCP, Client: telemetry.TCP}
	if s.cfg.Listen.Address == "" {
		about.Server = telemetry.Pipe
	}
	if len(s.cfg.Server.Command) > 0 {
		about.Client = telemetry.Pipe
	}
	if s.cfg.Operators.Health != "" {
		o.metrics = telemetry.NewMetrics(about)
	}
	if o.traces, err = telemetry.NewTraces(ctx, about, s.log); err != nil {
		return o, err
	}
	o.audit, err = s.cfg.Audit.open(s.cfg.Record.redaction(), s.log)
	return o, err
}

// telemetry is what the relay tells.
func (o *observers) telemetry() (t observe.Telemetry) {
	if o.metrics != nil {
		t.Meter = o.metrics
	}
	if o.traces != nil {
		t.Tracer = o.traces
	}
	if o.audit != nil {
		t.Auditor = o.audit
	}
	return t
}

// wrote is told of commits to the store.
func (o *observers) wrote() func(journal.Wrote) {
	if o.metrics == nil {
		return nil
	}
	return func(w journal.Wrote) { o.metrics.StoreWrote(w.Took, w.Records, w.Bytes, w.Err) }
}

// passedOn counts a request that was passed on.
func (o *observers) passedOn(outcome peers.Outcome) {
	if o.metrics != nil {
		o.metrics.PassedOn(strings.ReplaceAll(outcome.String(), " ", "_"))
	}
}

// watch has the metrics look at the service.
func (o *observers) watch(s *service) {
	if o.metrics == nil {
		return
	}
	o.metrics.Watch(telemetry.Sources{
		Policy: s.relay.Policy, Census: s.relay.Census, Draining: s.relay.Draining, Mode: s.relay.Runs.Mode,
		Reloads: func() telemetry.Reloads {
			r := s.reloads.state()
			c := &r.configuration
			return telemetry.Reloads{
				Succeeded: r.succeeded + c.succeeded, Failed: r.failed + c.failed,
				Current: r.errors == nil && c.errors == nil, Since: r.since,
			}
		},
		Noise:  func() uint64 { return s.server.Stats().Noise },
		Silent: func() uint64 { return s.server.Stats().Silent },
		Audited: func() uint64 {
			if o.audit == nil {
				return 0
			}
			return o.audit.Written()
		},
	})
}

// refused takes an HTTP request that was refused before a session saw what it says.
func (o *observers) refused(why streamhttp.Reason, status int, r *http.Request) {
	if o.metrics != nil && why.Authentication() {
		o.metrics.AuthenticationFailed()
	}
	one := telemetry.Denial{Reason: why.String(), Status: status, Why: why.Text(), Request: r}
	switch why {
	case streamhttp.ReasonHost:
		one.Detail = []any{"host", shortened(r.Host)}
	case streamhttp.ReasonOrigin:
		one.Detail = []any{"origin", shortened(r.Header.Get("Origin"))}
	case streamhttp.ReasonPath: // whose first part is no secret, as the id of a run is
		first, rest, more := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if more && rest != "" {
			rest = "/…"
		}
		one.Detail = []any{"path", "/" + shortened(first) + rest}
	}
	o.denials.Denied(one)
	if o.audit != nil {
		o.audit.Denied(one)
	}
}

// shortened is what a client has sent, cut, and without what does not print.
func shortened(text string) string {
	if len(text) > 64 {
		text = strings.ToValidUTF8(text[:64], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// telemetryFlush is how long the last of the traces, and of the audit, may take.
const telemetryFlush = 2 * time.Second

// close sends and writes what is left.
func (o *observers) close() {
	ctx, stop := context.WithTimeout(context.Background(), telemetryFlush)
	defer stop()
	o.denials.Close()
	if o.audit != nil {
		if err := o.audit.Shutdown(ctx); err != nil {
			o.log.Error("writing the last of the audit", "error", err)
		}
	}
	if o.traces != nil {
		if err := o.traces.Shutdown(ctx); err != nil {
			o.log.Warn("sending the last traces", "error", err)
		}
	}
}
