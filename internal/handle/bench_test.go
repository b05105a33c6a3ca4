package handle_test

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// BenchmarkTake is what a call costs more by handle, but for finding its run.
func BenchmarkTake(b *testing.B) {
	m, err := wire.Read([]byte(called(`{"name":"read_file","arguments":{"path":"/srv/data/report.txt","head":100,"fsm_run":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`+
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}`)), wire.FromClient)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		taken, _ := handle.Take(m, "fsm_run")
		if _, err := wire.Read(wire.Splice(m.Raw, taken.Edits...), wire.FromUpstream); err != nil {
			b.Fatal(err)
		}
	}
}
