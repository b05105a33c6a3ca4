//go:build long

package attack

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Who asks for metrics again and again, and reads none of the answers, is cut off: else each such connection would
// hold a goroutine and its buffers for ever.
func TestMetricsThatNobodyReads(t *testing.T) {
	t.Parallel()
	health := mcptest.FreeAddress(t)
	web.with("--health", health).start(t)
	conn, err := net.Dial("tcp", health)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 100)
	_ = conn.SetWriteDeadline(time.Now().Add(40 * time.Second))
	for err == nil {
		_, err = io.WriteString(conn, asked)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client that reads nothing is still connected after 40 s")
	}
}
