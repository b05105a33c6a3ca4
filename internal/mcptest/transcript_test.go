package mcptest

import "testing"

// The runner itself, with the real proxy before a scripted upstream.
func TestTranscripts(t *testing.T) {
	Transcript{}.Glob(t, "testdata/transcripts/*.txtar")
}
