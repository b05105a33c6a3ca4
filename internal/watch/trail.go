package watch

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links are followed on one path, as in Linux.
const maxLinks = 40

// A trail is where a path leads and what would make it lead elsewhere.
type trail struct {
	// dirs are the folders, without links in their paths, that hold the file, or a
	// link on the way to it, or would hold what is missing.
	dirs map[string]bool
	// names are those that matter in any of dirs, and the names of dirs themselves,
	// in lower case.
	names map[string]bool
	// folder is set where the path names a folder: every policy file in it matters.
	folder bool
}

// survey follows an absolute path.
func survey(path string) trail {
	t := trail{dirs: map[string]bool{}, names: map[string]bool{}}
	end := t.walk(path)
	if end == "" {
		return t
	}
	t.folder = true
	names, _ := policyNames(end) // what cannot be listed has nothing to follow
	for _, name := range names {
		t.walk(filepath.Join(end, name))
	}
	return t
}

// equal reports whether the same folders and names matter.
func (t trail) equal(other trail) bool {
	return t.folder == other.folder && maps.Equal(t.dirs, other.dirs) && maps.Equal(t.names, other.names)
}

// concerns reports whether an event about name may have changed anything.
func (t trail) concerns(name string) bool {
	base := filepath.Base(name)
	return t.names[strings.ToLower(base)] || t.folder && isPolicyName(base)
}

// walk notes what matters along path, and returns the folder that it leads to, or
// "" if it leads to none.
func (t trail) walk(path string) string {
	at, rest := begin(path)
	isDir, links := true, 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			t.note(at, name)
			return ""
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at, isDir = next, info.IsDir()
			continue
		}
		t.note(at, name)
		if links++; links > maxLinks {
			return ""
		}
		at, rest = turn(at, next, rest)
	}
	return t.arrive(at, isDir)
}

// arrive notes the end of a path, and returns it if it is a folder.
func (t trail) arrive(at string, isDir bool) string {
	if !isDir {
		t.note(filepath.Dir(at), filepath.Base(at))
		return ""
	}
	t.note(at, filepath.Base(at))
	return at
}

func (t trail) note(dir, name string) {
	t.dirs[dir] = true
	t.names[strings.ToLower(name)] = true
	t.names[strings.ToLower(filepath.Base(dir))] = true
}

// turn goes on at the target of link, which lies in the folder at.
func turn(at, link string, rest []string) (string, []string) {
	target, err := os.Readlink(link)
	if err != nil {
		return at, append([]string{filepath.Base(link)}, rest...) // it has just been replaced
	}
	switch {
	case filepath.IsAbs(target):
		start, parts := begin(target)
		return start, append(parts, rest...)
	case target != "" && os.IsPathSeparator(target[0]): // on the same volume, in Windows
		start, _ := begin(at)
		return start, append(parts(target), rest...)
	default:
		return at, append(parts(target), rest...)
	}
}

// begin splits an absolute path into the root of its volume and the rest.
func begin(path string) (root string, rest []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), parts(path[len(volume):])
}

// parts are the elements of a path, without "." and empty ones.
func parts(path string) []string {
	var kept []string
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) }) {
		if part != "." {
			kept = append(kept, part)
		}
	}
	return kept
}
