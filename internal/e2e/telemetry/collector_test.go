package telemetry

import (
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// sink is a collector of traces over HTTP.
type sink struct {
	t   *testing.T
	url string

	mu       sync.Mutex // guards what follows
	spans    []*trace.Span
	resource map[string]string
	changed  chan struct{}
}

func collect(t *testing.T) *sink {
	s := &sink{t: t, changed: make(chan struct{})}
	web := httptest.NewServer(http.HandlerFunc(s.take))
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

// environment is what has the proxy send its traces here, soon.
func (s *sink) environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.url, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_SERVICE_NAME=", "OTEL_SDK_DISABLED="}
}

// collectGRPC is collect over gRPC.
func collectGRPC(t *testing.T) *sink {
	s := &sink{t: t, changed: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, service{sink: s})
	go func() { _ = server.Serve(l) }() // until Stop
	t.Cleanup(server.Stop)
	s.url = "http://" + l.Addr().String()
	return s
}

// service is the gRPC end of a sink.
type service struct {
	collector.UnimplementedTraceServiceServer
	sink *sink
}

// Export implements collector.TraceServiceServer.
func (s service) Export(_ context.Context, got *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.sink.add(got)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	raw, err := io.ReadAll(body)
	got := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(raw, got)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		s.t.Errorf("%s: %v", r.URL, err)
	}
	s.add(got)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (s *sink) add(got *collector.ExportTraceServiceRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range got.ResourceSpans {
		s.resource = texts(r.Resource.Attributes)
		for _, scope := range r.ScopeSpans {
			s.spans = append(s.spans, scope.Spans...)
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns the first n spans by when they began.
func (s *sink) await(n int) []*trace.Span {
	s.t.Helper()
	timeout := time.NewTimer(mcptest.Patience)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		spans, changed := slices.Clone(s.spans), s.changed
		s.mu.Unlock()
		if len(spans) >= n {
			slices.SortFunc(spans, func(a, b *trace.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
			return spans
		}
		select {
		case <-changed:
		case <-timeout.C:
			s.t.Fatalf("%d spans have come, not %d", len(spans), n)
		}
	}
}

// texts are attributes that hold texts.
func texts(all []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range all {
		out[kv.Key] = kv.Value.GetStringValue()
	}
	return out
}
