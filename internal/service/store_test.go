package service

import (
	"strings"
	"testing"
)

// A size bounds a file alone: what a database server takes is another's.
func TestSizeOfAStore(t *testing.T) {
	for url, refused := range map[string]bool{"": false, "memory": false, "sqlite:runs.db": false, "sqlite:runs/": false, "postgres://db/runs": true, "postgresql://db/runs": true} {
		f := Store{URL: url, MaxSize: 1 << 30}
		if err := f.check(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "--max-stored-runs") {
			t.Errorf("%s: %v", url, err)
		}
		f.MaxSize = 0
		if err := f.check(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
