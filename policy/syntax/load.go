package syntax

import (
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Opener returns the content of a file in the policy's folder, by its path from there,
// with slashes and without "..". It must not leave the folder, by a symbolic link either.
type Opener func(path string) ([]byte, error)

// Module is one file of a policy: the policy's own, or a part's.
type Module struct {
	*File
	Reader *strictyaml.Reader
	Path   string // in the policy's folder; "": the policy's own
	Source []byte
	Parts  map[string]*Module // by their names in use

	named map[string]*State // see find
}

// The most that the files of one policy may be, beside the size of each.
const (
	maxFiles  = 100
	maxSource = strictyaml.MaxSource // all together
)

// Load reads the parts that a policy file uses, and those that they use, each file once.
// It returns all files, the policy's own first; what is wrong with one is in its reader.
func Load(file string, src []byte, f *File, r *strictyaml.Reader, open Opener) []*Module {
	l := loader{file: file, open: open, size: len(src), byPath: map[string]*Module{}}
	l.load(&Module{File: f, Reader: r, Source: src, Parts: map[string]*Module{}})
	return l.all
}

// loader reads the files of one policy.
type loader struct {
	file   string // the policy's own
	open   Opener
	size   int // of all files
	opened int // files, those that could not be read too
	all    []*Module
	byPath map[string]*Module
	under  []*Module // those whose parts are being read, each a part of the one before
}

func (l *loader) load(m *Module) {
	l.all, l.under = append(l.all, m), append(l.under, m)
	for _, u := range m.Use {
		part, err := l.part(m, u)
		if err != nil {
			m.Reader.Errorf(u.File.Place, "use", "%s: %v", strictyaml.Quote(u.File.Value), err)
			continue
		}
		m.Parts[u.Name.Value] = part
	}
	l.under = l.under[:len(l.under)-1]
}

// part returns the file of an entry of use.
func (l *loader) part(m *Module, u Use) (*Module, error) {
	at, err := within(path.Dir(m.Path), u.File.Value)
	if err != nil {
		return nil, err
	}
	for i, x := range l.under {
		if x.Path == at || i == 0 && at == filepath.Base(l.file) {
			return nil, fmt.Errorf("a file that uses itself, by way of %s; a part stands for a state, and needs an end", l.name(m.Path))
		}
	}
	if known := l.byPath[at]; known != nil {
		return known, nil
	}
	switch {
	case l.open == nil:
		return nil, fmt.Errorf("the policy has no folder in which its parts could be; give it by the path of its file")
	case l.opened == maxFiles-1:
		return nil, fmt.Errorf("a policy has at most %d files; join some", maxFiles)
	case l.size <= maxSource: // else nothing more is read
		l.opened++
		src, err := l.open(at)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", l.name(at), err)
		}
		if l.size += len(src); l.size <= maxSource {
			return l.read(at, src), nil
		}
	}
	return nil, fmt.Errorf("the files of a policy have more than %d bytes together", maxSource)
}

func (l *loader) read(at string, src []byte) *Module {
	name := l.name(at)
	f, r := Read(name, src)
	if f == nil {
		f = &File{}
	}
	f.locate(name)
	part := &Module{File: f, Reader: r, Path: at, Source: src, Parts: map[string]*Module{}}
	l.byPath[at] = part
	l.load(part)
	return part
}

// name is what findings call a file in the policy's folder.
func (l *loader) name(at string) string {
	if at == "" {
		return l.file
	}
	folder, _ := filepath.Split(l.file)
	return folder + filepath.FromSlash(at)
}

// within returns the path, in the policy's folder, that a path from one of its folders leads to.
func within(folder, file string) (string, error) {
	at := path.Join(folder, file)
	switch {
	case file == "":
		return "", fmt.Errorf("an empty path; name the part's file")
	case strings.Contains(file, `\`):
		return "", fmt.Errorf(`a path with "\"; write "/"`)
	case path.IsAbs(file) || filepath.IsAbs(file):
		return "", fmt.Errorf("an absolute path; write it relative to this file")
	case !filepath.IsLocal(at) || at == ".":
		return "", fmt.Errorf("no file within the policy's folder; put the part's file there")
	}
	return at, nil
}

// locate notes in every place of a file that it is in that file.
func (f *File) locate(name string) {
	visit(reflect.ValueOf(f).Elem(), func(x any) {
		if at, ok := x.(*Place); ok && at.Line > 0 {
			at.File = name
		}
	})
}

// CheckParts checks what a file says of parts, once they are there.
func (m *Module) CheckParts() {
	used := map[string]bool{}
	for i := range m.States {
		st := &m.States[i]
		if !st.Part.Given {
			continue
		}
		used[st.Part.Value] = true
		if !slices.ContainsFunc(m.Use, func(u Use) bool { return u.Name.Value == st.Part.Value }) {
			m.Reader.Errorf(st.Part.Place, "part", "%s is no part%s", strictyaml.Quote(st.Part.Value), m.hint(st.Part.Value, m.partNames(), "; name its file: \"use: {%s: FILE}\""))
			continue
		}
		if part := m.Parts[st.Part.Value]; part != nil && part.HasStates {
			m.checkExits(st, part)
		}
	}
	for _, u := range m.Use {
		if !used[u.Name.Value] {
			m.Reader.Add(strictyaml.LevelWarning, u.Name.Place, "unused", "no state is the part %s: write \"part: %s\" in one, or remove it", strictyaml.Quote(u.Name.Value), u.Name.Value)
		}
	}
	if m.Path != "" && len(m.Settable) > 0 {
		names := make([]string, len(m.Settable))
		for i, t := range m.Settable {
			names[i] = t.Value
		}
		level := strictyaml.LevelNote
		if slices.Contains(names, "at_most") { // who wrote it counts on it
			level = strictyaml.LevelWarning
		}
		m.Reader.Add(level, m.Settable[0].Place, "part-settings", "%s: without effect where this file is a part; the policy that uses it says what holds", strictyaml.And(names))
	}
}

// checkExits checks that the exits of a part state name states of the part.
func (m *Module) checkExits(st *State, part *Module) {
	names := make([]string, len(part.States))
	for i := range part.States {
		names[i] = part.States[i].Name.Value
	}
	for _, x := range st.Exits {
		if x.Name.Value != AllExits && !slices.Contains(names, x.Name.Value) {
			m.Reader.Errorf(x.Name.Place, "exits", "exits: the part %s has no state %s%s", strictyaml.Quote(st.Part.Value), strictyaml.Quote(x.Name.Value),
				m.hint(x.Name.Value, names, "; its states are "+strictyaml.Listed(names)))
		}
	}
}

func (m *Module) partNames() []string {
	names := make([]string, len(m.Use))
	for i, u := range m.Use {
		names[i] = u.Name.Value
	}
	return names
}

// hint suggests the name that was perhaps meant, and says otherwise what else to do.
func (m *Module) hint(name string, names []string, otherwise string) string {
	if meant := m.Reader.DidYouMean(name, names); meant != "" {
		return meant
	}
	return strings.ReplaceAll(otherwise, "%s", name)
}
