package reload

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

const policyFile = "policy.yaml"

// volume is one that holds a policy.
type volume struct{ *mcptest.Volume }

func newVolume(t *testing.T, content string) volume {
	t.Helper()
	return volume{mcptest.NewVolume(t, map[string]string{policyFile: content})}
}

func (v volume) path() string { return v.Path(policyFile) }

// file fills a version's folder with one policy.
func file(content string) func(path string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o644) }
}

// swap puts a new version in place of the last one. fill makes its file.
func (v volume) swap(fill func(path string) error) {
	v.SwapBy(func(dir string) error { return fill(filepath.Join(dir, policyFile)) })
}
