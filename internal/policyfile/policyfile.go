// Package policyfile reads policies, and the locks of their tools, from where the
// user has them: a file, a folder, a pipe. Its errors say which path was tried, and
// what to do.
package policyfile

import (
	"bytes"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// MaxSize is the most that a policy file may hold, in bytes.
const MaxSize = 1 << 20

// Watched is how the policy at a path is read and watched, with its parts.
func Watched(path string) watch.Config {
	return watch.Config{Path: path, MaxSize: MaxSize + 1, Parts: parts}
}

// parts opens the files that are parts of a policy. Few policies have any, and nothing is
// read twice of one that can't have.
func parts(path string, src []byte, open func(string) ([]byte, error)) {
	if bytes.Contains(src, []byte("use")) || bytes.ContainsRune(src, '\\') {
		policy.ReadParts(path, src, open)
	}
}

// Read reads a policy file and its parts; a pipe has none. Its errors name the absolute path
// that was tried, since a client seldom starts the proxy where one thinks.
func Read(path string) (watch.File, error) {
	src, err := read(path)
	file := watch.File{Path: path, Content: src}
	if info, lost := os.Stat(path); err != nil || lost != nil || !info.Mode().IsRegular() {
		return file, err
	}
	return Watched(path).WithParts(file), nil
}

// Sources are the contents of a policy's files, by their names in findings.
func Sources(file watch.File) map[string][]byte {
	folder, _ := filepath.Split(file.Path)
	all := map[string][]byte{file.Path: file.Content}
	for name, part := range file.Parts {
		all[folder+filepath.FromSlash(name)] = part.Content
	}
	return all
}

// Compile returns what there is to say of a policy that was read, and the policy if none of
// that is an error.
func Compile(file watch.File) (*policy.Policy, policy.Findings) {
	if file.Parts == nil {
		return report.Parse(file.Path, file.Content)
	}
	return report.ParseParts(file.Path, file.Content, file.Open)
}

// read reads a policy file.
func read(path string) ([]byte, error) {
	tried := host.Absolute(path)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading policy %s: %w; %s", tried, host.Cause(err), missingHint(err))
	}
	defer f.Close()
	// One byte more than is allowed shows the parser that there was more.
	src, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading policy %s: %w; give the path of a YAML file", tried, host.Cause(err))
	}
	return src, nil
}

func missingHint(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "give the path of a policy file, or have one written by 'fsm-proxy init'"
	}
	return "give the path of a policy file that can be read"
}

// Load reads and parses the policy that run is to enforce. Its error has a
// line for each error in the file.
func Load(path string) (*policy.Policy, policy.Findings, error) {
	file, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	return Parse(file)
}

// Parse parses a policy that was read. Its error has a line for each error in its files.
func Parse(file watch.File) (*policy.Policy, policy.Findings, error) {
	p, findings := Compile(file)
	if err := findings.Err(); err != nil {
		return nil, findings, fmt.Errorf("the policy has errors:\n%w", err)
	}
	return p, findings, nil
}

// Files are the policies that a path stands for: the file itself, or those in
// a folder that are no parts of others, which are not looked for further down.
func Files(path string) ([]string, error) {
	if !IsFolder(path) {
		return []string{path}, nil
	}
	names, err := watch.PolicyNames(path)
	if err != nil {
		return nil, fmt.Errorf("reading policies in %s: %w", host.Absolute(path), err)
	}
	names = Watched(path).Unused(path, names)
	for i, name := range names {
		names[i] = filepath.Join(path, name)
	}
	return names, nil
}

func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Source is where the policy in force came from.
type Source struct {
	Path    string
	Digest  [32]byte
	Watched bool // it can change: no pipe
	File    watch.File
}

// Open reads the policy to begin with: from a file, from a folder of one policy, or
// from a pipe, which is read once.
func Open(path string) (*policy.Policy, policy.Findings, Source, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		file, err := Read(path)
		if err != nil {
			return nil, nil, Source{Path: path}, err
		}
		p, findings, err := Parse(file)
		return p, findings, Source{Path: path, File: file}, err
	}
	file := Watched(path).Read()
	if file.Err != nil {
		return nil, nil, Source{}, file.Err
	}
	p, findings, err := Parse(file)
	return p, findings, Source{Path: path, Digest: file.Digest, Watched: true, File: file}, err
}

// LockPath is where the lock of a policy is, unless it is said to be elsewhere:
// policy.lock.yaml beside policy.yaml.
func LockPath(given, policyFile string) string {
	if given != "" {
		return given
	}
	for _, ext := range []string{".yaml", ".yml"} {
		policyFile = strings.TrimSuffix(policyFile, ext)
	}
	return policyFile + ".lock.yaml"
}

// ReadLock reads a lock file as watch.Watch would deliver it.
func ReadLock(path string) (*lock.Lock, watch.File, error) {
	file := watch.Config{Path: path, What: "lock", MaxSize: lock.MaxSize + 1}.Read()
	l, err := ParseLock(file)
	return l, file, err
}

// ParseLock parses a lock file. Its error has a line for each error in it.
func ParseLock(file watch.File) (*lock.Lock, error) {
	if file.Err != nil {
		return nil, file.Err
	}
	l, findings := lock.Parse(file.Path, file.Content)
	if err := findings.Err(); err != nil {
		return nil, fmt.Errorf("the lock has errors:\n%w", err)
	}
	return l, nil
}

// NoLock says that a policy wants a lock which is not there.
func NoLock(p *policy.Policy, path string) error {
	return fmt.Errorf("there is no lock file %s, which 'pin: %s' compares tools with; write it by 'fsm-proxy lock %s' and the server, or name it by --lock",
		path, p.Pin(), host.ShellLine([]string{p.File()}))
}

// WriteLock writes a lock file whole, or not at all: whoever follows it never sees
// half of it.
func WriteLock(path string, text []byte) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), ".lock-*")
	if err == nil {
		defer os.Remove(temp.Name())
		_, err = bytes.NewReader(text).WriteTo(temp)
		err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; choose another --lock", host.Absolute(path), host.Cause(err))
	}
	return nil
}

// kept is a policy file with its parts as a store keeps it.
type kept struct {
	Name    string            `json:"name"`
	Content string            `json:"content"`
	Parts   map[string]string `json:"parts,omitzero"`
}

// Pack returns a policy file with its parts as one text, from which [Unpack] makes the same policy.
func Pack(file watch.File) ([]byte, error) {
	k := kept{Name: filepath.Base(file.Path), Content: string(file.Content)}
	for name, part := range file.Parts {
		if k.Parts == nil {
			k.Parts = make(map[string]string)
		}
		k.Parts[name] = string(part.Content)
	}
	return json.Marshal(&k, json.Deterministic(true))
}

// Unpack makes a policy of what [Pack] returned.
func Unpack(text []byte) (*policy.Policy, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("reading a policy that was kept: %w", err)
	}
	file := watch.File{Path: k.Name, Content: []byte(k.Content)}
	for name, content := range k.Parts {
		if file.Parts == nil {
			file.Parts = make(map[string]watch.Part)
		}
		file.Parts[name] = watch.Part{Content: []byte(content)}
	}
	p, _, err := Parse(file)
	return p, err
}
