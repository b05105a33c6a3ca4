package sqlite

import (
	"fmt"
	"os"
	"strings"

	"github.com/gofrs/flock"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// take takes the lock beside a file, and writes into it who has it. Who reads the file needs no lock.
func take(path, holder string) (*flock.Flock, error) {
	lock := flock.New(path, flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if !ok {
		by, _ := os.ReadFile(holderPath(path)) // who has it may be writing it
		if len(by) == 0 {
			by = []byte("another process")
		}
		return nil, &journal.Held{By: strings.TrimSpace(string(by))}
	}
	if err := os.WriteFile(holderPath(path), []byte(holder+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return lock, nil
}
