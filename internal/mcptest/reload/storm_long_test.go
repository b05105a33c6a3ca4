//go:build long

package reload

import "testing"

// A thousand policies in a row under the load of 64 sessions.
func TestKubeletLong(t *testing.T) { storm(t, 64, 1000) }
