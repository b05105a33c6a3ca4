package watch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A File is what was found at a path.
type File struct {
	// Path is the file that was read: the given path, or the one policy file in the
	// folder that it names. Symbolic links are not resolved in it.
	Path string
	// Content is the whole file, and belongs to the receiver; nil with Err.
	Content []byte
	// Digest is the content's SHA-256; with Err, one of the error's text that is no
	// content's.
	Digest [32]byte
	// Err says in one line why nothing could be read, and what to do.
	Err error
}

// Read reads what [Watch] would deliver now, as far as max bytes (0: as
// [Config.MaxSize]). It does not wait for a file that is being written.
func Read(path string, max int64) File {
	return Config{Path: path, MaxSize: max}.Read()
}

// Read reads what [Watch] would deliver now of c's Path, as [Read] does.
func (c Config) Read() File {
	c.What, c.MaxSize = c.what(), orDefault(c.MaxSize, defaultMaxSize)
	return read(c).File
}

// A sight is a File and how it looked while it was read.
type sight struct {
	File
	steady bool          // it did not change while it was read
	age    time.Duration // since it was written; negative if its clock is not ours
}

// rested reports whether nobody seems to be writing the file.
func (s sight) rested(debounce time.Duration) bool {
	return s.steady && (s.age < 0 || s.age >= debounce)
}

// read reads the file that c's path stands for.
func read(c Config) sight {
	file, err := choose(c.What, absolute(c.Path))
	if err != nil {
		return failed(c.What, file, err)
	}
	s, err := readFile(file, c.MaxSize)
	if err != nil {
		return failed(c.What, file, err)
	}
	return s
}

func failed(what, path string, err error) sight {
	err = fmt.Errorf("reading %s %s: %w", what, path, err)
	f := File{Path: path, Err: err, Digest: sha256.Sum256([]byte("error\x00" + err.Error()))}
	return sight{File: f, steady: true, age: -1}
}

// absolute leaves an absolute path alone: cleaning it would change its meaning
// where a link is followed by "..".
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

// choose returns path, or the one file in the folder that path names.
func choose(what, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return path, hint(err)
	}
	if !info.IsDir() {
		return path, regular(info)
	}
	names, err := PolicyNames(path)
	switch {
	case err != nil:
		return path, err
	case len(names) > 1:
		return path, fmt.Errorf("the folder holds several %s files, %s; leave one, or give its path", what, enumerate(names))
	}
	return filepath.Join(path, names[0]), nil
}

// PolicyNames returns the names of the policy files in a folder, sorted: one at
// least, or an error that says what to do.
func PolicyNames(dir string) ([]string, error) {
	names, err := present(dir)
	switch {
	case err != nil:
		return nil, hint(err)
	case len(names) == 0:
		return nil, errors.New("the folder holds no *.yaml or *.yml file; put one there, or give the path of a file")
	}
	return names, nil
}

// present returns the names of the policy files in dir that are really there: a
// kubelet makes a link before its target, and removes it after.
func present(dir string) ([]string, error) {
	names, err := policyNames(dir)
	there := names[:0]
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		there = append(there, name)
	}
	return there, err
}

// policyNames returns the names in dir that a policy file may have, sorted.
func policyNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		if isPolicyName(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// isPolicyName leaves out hidden files, which are the kubelet's and editors' own,
// and a policy's lock.
func isPolicyName(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return !strings.HasSuffix(strings.TrimSuffix(name, ext), ".lock") && (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".")
}

func enumerate(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// readFile reads a file of at most max bytes.
func readFile(path string, max int64) (sight, error) {
	f, err := open(path)
	if err != nil {
		return sight{}, hint(err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return sight{}, hint(err)
	}
	content, err := readAll(f, before, max)
	if err != nil {
		return sight{}, err
	}
	after, err := f.Stat()
	if err != nil {
		return sight{}, hint(err)
	}
	return sight{
		File:   File{Path: path, Content: content, Digest: sha256.Sum256(content)},
		steady: after.Size() == int64(len(content)) && after.ModTime().Equal(before.ModTime()),
		age:    time.Since(after.ModTime()),
	}, nil
}

func readAll(f *os.File, info fs.FileInfo, max int64) ([]byte, error) {
	if err := regular(info); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, max+1))
	switch {
	case err != nil:
		return nil, hint(err)
	case int64(len(content)) > max:
		return nil, fmt.Errorf("the file is larger than %d bytes; give the path of a smaller one", max)
	}
	return content, nil
}

// regular refuses what cannot be read twice, or might never end.
func regular(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("this is a %s; give the path of a file or a folder", kind(info.Mode()))
}

func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	case mode.IsDir():
		return "folder"
	default:
		return "special file"
	}
}

// hint adds what to do to the cause of an error, and leaves out the path that os
// put before it: a kubelet's paths differ each time, and the error does not.
func hint(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; put a file there, or give the path of another", err)
	}
	return fmt.Errorf("%w; give the path of a file that can be read", err)
}
