package watch

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A File is what was found at a path.
type File struct {
	// Path is the file that was read: the given path, or the one policy file in the
	// folder that it names. Symbolic links are not resolved in it.
	Path string
	// Content is the whole file, and belongs to the receiver; nil with Err.
	Content []byte
	// Parts are the files that belong to it, by their paths from its folder, with slashes.
	Parts map[string]Part
	// Digest is the content's SHA-256; with parts, one of all their contents; with Err, one
	// of the error's text that is no content's.
	Digest [32]byte
	// Err says in one line why nothing could be read, and what to do.
	Err error
}

// Read reads what [Watch] would deliver now. It does not wait for a file that is being written.
func (c Config) Read() File {
	c.What, c.MaxSize = c.what(), cmp.Or(c.MaxSize, defaultMaxSize)
	return c.read().File
}

// A reading is a File and how it looked while it was read.
type reading struct {
	File
	steady bool          // it did not change while it was read
	age    time.Duration // since it was written; negative if its clock is not ours
	broken bool          // a part is empty, or could not be read
}

// rested reports whether nobody seems to be writing the file.
func (r reading) rested(debounce time.Duration) bool {
	return r.steady && (r.age < 0 || r.age >= debounce)
}

// read reads the file that c's path stands for.
func (c Config) read() (r reading) {
	path, err := c.choose(absolute(c.Path))
	if err == nil {
		r, err = readFile(path, c.MaxSize)
	}
	if err != nil {
		err = fmt.Errorf("reading %s %s: %w", c.What, path, hint(err))
		return reading{File: File{Path: path, Err: err, Digest: sha256.Sum256([]byte("error\x00" + err.Error()))}, steady: true, age: -1}
	}
	c.readParts(&r)
	return r
}

// absolute leaves an absolute path alone: cleaning it would change its meaning where a link is followed by "..".
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil && !filepath.IsAbs(path) {
		return abs
	}
	return path
}

// usual is the name of the policy in a folder of several files.
const usual = "policy.yaml"

// choose returns path, or, of the files in the folder that path names, policy.yaml, else the
// one that is no part of another.
func (c Config) choose(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return path, err
	}
	if !info.IsDir() {
		return path, regular(info.Mode())
	}
	names, err := PolicyNames(path)
	if err != nil {
		return path, err
	}
	if slices.Contains(names, usual) {
		return filepath.Join(path, usual), nil
	}
	if names = c.Unused(path, names); len(names) > 1 {
		const most = 5
		listed := strings.Join(names[:min(most, len(names))], ", ")
		if len(names) > most {
			listed += fmt.Sprintf(" and %d more", len(names)-most)
		}
		return path, fmt.Errorf("the folder holds several %s files, %s; leave one, call it %s, or give its path", c.What, listed, usual)
	}
	return filepath.Join(path, names[0]), nil
}

// PolicyNames returns the names of the policy files in a folder, sorted: one at least, or an error that says what to do.
func PolicyNames(dir string) ([]string, error) {
	names, err := policyNames(dir)
	// A kubelet makes a link before its target, and removes it after.
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir()
	})
	if err == nil && len(names) == 0 {
		err = errors.New("the folder holds no *.yaml or *.yml file; put one there, or give the path of a file")
	}
	return names, hint(err)
}

// policyNames returns the names in dir that a policy file may have, sorted.
func policyNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if isPolicyName(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// isPolicyName leaves out hidden files, which are the kubelet's and editors' own, and a policy's lock and tests.
func isPolicyName(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	stem := name[:len(name)-len(ext)]
	return !strings.HasSuffix(stem, ".lock") && !strings.HasSuffix(stem, ".test") && (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".")
}

// readFile reads a file of at most max bytes. It does not wait for somebody to write, where the path has become a pipe
// since it was looked at.
func readFile(path string, max int64) (r reading, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return r, err
	}
	return readOpen(f, path, max)
}

// readOpen reads a file that was opened, and closes it.
func readOpen(f *os.File, path string, max int64) (r reading, err error) {
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return r, err
	}
	if err := regular(before.Mode()); err != nil {
		return r, err
	}
	content, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return r, err
	}
	if int64(len(content)) > max {
		return r, fmt.Errorf("the file is larger than %d bytes; give the path of a smaller one", max)
	}
	after, err := f.Stat()
	if err != nil {
		return r, err
	}
	return reading{
		File:   File{Path: path, Content: content, Digest: sha256.Sum256(content)},
		steady: after.Size() == int64(len(content)) && after.ModTime().Equal(before.ModTime()),
		age:    time.Since(after.ModTime()),
	}, nil
}

// regular refuses what cannot be read twice, or might never end.
func regular(mode fs.FileMode) error {
	kind := "special file"
	switch {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeNamedPipe != 0:
		kind = "pipe"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	case mode&fs.ModeDevice != 0:
		kind = "device"
	case mode.IsDir():
		kind = "folder"
	}
	return fmt.Errorf("this is a %s; give the path of a file or a folder", kind)
}

// hint adds what to do to an error of the system's, and leaves out the path that os put before it: a kubelet's paths
// differ each time, and the error does not.
func hint(err error) error {
	pathErr, ok := errors.AsType[*fs.PathError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; put a file there, or give the path of another", pathErr.Err)
	default:
		return fmt.Errorf("%w; give the path of a file that can be read", pathErr.Err)
	}
}
