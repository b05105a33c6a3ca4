package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// maxPolicySize is the most that a policy file may hold, in bytes.
const maxPolicySize = 1 << 20

// readPolicyFile reads a policy file. Its errors name the absolute path that was
// tried, since a client seldom starts the proxy where one thinks.
func readPolicyFile(path string) ([]byte, error) {
	tried, err := filepath.Abs(path)
	if err != nil {
		tried = path
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading policy %s: %w; %s", tried, cause(err), missingHint(err))
	}
	defer f.Close()
	// One byte more than is allowed shows the parser that there was more.
	src, err := io.ReadAll(io.LimitReader(f, maxPolicySize+1))
	if err != nil {
		return nil, fmt.Errorf("reading policy %s: %w; give the path of a YAML file", tried, cause(err))
	}
	return src, nil
}

func missingHint(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "give the path of a policy file, or have one written by 'fsm-proxy init'"
	}
	return "give the path of a policy file that can be read"
}

// cause is the error without the operation and path that os wraps around it.
func cause(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// loadPolicy reads and parses the policy that run is to enforce. Its error has a
// line for each error in the file.
func loadPolicy(path string) (*policy.Policy, policy.Findings, error) {
	src, err := readPolicyFile(path)
	if err != nil {
		return nil, nil, err
	}
	return parsePolicy(path, src)
}

// parsePolicy parses a policy. Its error has a line for each error in the file.
func parsePolicy(path string, src []byte) (*policy.Policy, policy.Findings, error) {
	p, findings := policy.Parse(path, src)
	if err := findings.Err(); err != nil {
		return nil, findings, fmt.Errorf("the policy has errors:\n%w", err)
	}
	return p, findings, nil
}

// policyFiles are the policies that a path stands for: the file itself, or those in
// a folder, which are not looked for further down.
func policyFiles(path string) ([]string, error) {
	if !isFolder(path) {
		return []string{path}, nil
	}
	names, err := watch.PolicyNames(path)
	if err != nil {
		return nil, fmt.Errorf("reading policies in %s: %w", absolute(path), err)
	}
	for i, name := range names {
		names[i] = filepath.Join(path, name)
	}
	return names, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
