package kept

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bench/inprocess"
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
)

// TestMeasure measures a little, and every figure is there.
func TestMeasure(t *testing.T) {
	f, err := Measure(t.Context(), Config{URL: "sqlite:" + t.TempDir() + "/runs.db", Rounds: 1, Window: 50 * time.Millisecond, Runs: 20, Dial: func() (bridge.Conn, error) {
		return inprocess.NewUpstream([]byte(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`), []byte(`{"content":[]}`))
	}})
	if err != nil || f.Bare <= 0 || f.Memory <= 0 || f.Step <= 0 || f.One <= 0 || f.Many <= 0 || f.Times <= 0 || f.Bytes <= 0 || f.Restart <= 0 {
		t.Errorf("%+v, %v", f, err)
	}
}
