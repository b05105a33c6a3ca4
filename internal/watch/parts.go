package watch

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A Part is what was found of another file that belongs to the one that is read.
type Part struct {
	Content []byte
	Err     error // says why nothing could be read
}

// Open returns the content of a file that belongs to f, by its path from f's folder.
func (f File) Open(name string) ([]byte, error) {
	part, ok := f.Parts[name]
	if !ok {
		return nil, errors.New("the file was not read with its policy; save one of them again")
	}
	return part.Content, part.Err
}

// partPaths are the paths of the files that belong to f, sorted.
func (f File) partPaths() []string {
	paths := make([]string, 0, len(f.Parts))
	for name := range f.Parts {
		paths = append(paths, filepath.Join(filepath.Dir(f.Path), filepath.FromSlash(name)))
	}
	slices.Sort(paths)
	return paths
}

// folder reads files of one folder and of those beneath it, and follows no symbolic link
// that leads out of it.
type folder struct {
	root *os.Root
	err  error
	max  int64
}

func openFolder(dir string, max int64) folder {
	root, err := os.OpenRoot(dir)
	return folder{root, err, max}
}

func (f folder) close() {
	if f.root != nil {
		f.root.Close()
	}
}

// read reads a file by its path from the folder, with slashes.
func (f folder) read(name string) (reading, error) {
	if f.err != nil {
		return reading{}, f.err
	}
	file, err := f.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return reading{}, err
	}
	return readOpen(file, name, f.max)
}

// partHint is hint for a part, of which only its own folder knows the way.
func partHint(err error) error {
	pathErr, ok := errors.AsType[*fs.PathError](err)
	if ok && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; a part is a file within the policy's folder, by symbolic links too", pathErr.Err)
	}
	return hint(err)
}

// WithParts reads the files that belong to one that was read otherwise.
func (c Config) WithParts(f File) File {
	c.MaxSize = cmp.Or(c.MaxSize, defaultMaxSize)
	r := reading{File: f}
	c.readParts(&r)
	return r.File
}

// readParts reads the files that belong to what was read.
func (c Config) readParts(r *reading) {
	if c.Parts == nil {
		return
	}
	dir := openFolder(filepath.Dir(r.Path), c.MaxSize)
	defer dir.close()
	c.Parts(r.Path, r.Content, func(name string) ([]byte, error) {
		if part, known := r.Parts[name]; known {
			return part.Content, part.Err
		}
		read, err := dir.read(name)
		if r.Parts == nil {
			r.Parts = map[string]Part{}
		}
		if err != nil {
			err = partHint(err)
			r.broken = true
		} else {
			r.steady = r.steady && read.steady
			r.age = youngest(r.age, read.age)
			r.broken = r.broken || len(read.Content) == 0
		}
		r.Parts[name] = Part{read.Content, err}
		return read.Content, err
	})
	if r.Parts != nil {
		r.Digest = r.digest()
	}
}

// youngest is the smaller age, of those by our clock.
func youngest(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// digest is the digest of a file with parts.
func (f File) digest() (d [32]byte) {
	sum := sha256.New()
	sum.Write([]byte("parts\x00"))
	write := func(text string) {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		sum.Write([]byte(text))
	}
	write(string(f.Content))
	for _, name := range slices.Sorted(maps.Keys(f.Parts)) {
		write(name)
		if err := f.Parts[name].Err; err != nil {
			write("error")
			write(err.Error())
		} else {
			write("content")
			write(string(f.Parts[name].Content))
		}
	}
	sum.Sum(d[:0])
	return d
}

// Unused returns the names of files in a folder that no other of them has for a part; all
// of them, where each has.
func (c Config) Unused(dir string, names []string) []string {
	if c.Parts == nil || len(names) < 2 {
		return names
	}
	within := openFolder(dir, c.MaxSize)
	defer within.close()
	used := map[string]bool{}
	for _, name := range names {
		read, err := readFile(filepath.Join(dir, name), c.MaxSize)
		if err != nil {
			continue
		}
		c.Parts(filepath.Join(dir, name), read.Content, func(part string) ([]byte, error) {
			if part != name {
				used[part] = true
			}
			read, err := within.read(part)
			return read.Content, err
		})
	}
	var unused []string
	for _, name := range names {
		if !used[name] {
			unused = append(unused, name)
		}
	}
	if len(unused) == 0 {
		return names
	}
	return unused
}
