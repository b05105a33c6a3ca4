package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

// Opener returns the content of a file in the policy's folder, by its path from there,
// with slashes and without "..". It must not leave the folder, by a symbolic link either.
type Opener = syntax.Opener

// Part is a state of a policy's files for which another file stands.
type Part struct {
	Name        string // of the state, as its states' names begin
	Within      string // the part that it is in; "": it is a state of the policy's own file
	Description string
	File        string // that stands for it
	Place       Place  // of the state
}

// composition is what a policy is made of.
type composition struct {
	files   []string // see Files
	all     []Part   // see Parts
	index   map[string]int
	renames map[string]string // of parts, from what they were called
}

// Parts returns the part states, each before those that are in it.
func (p *Policy) Parts() []Part { return slices.Clone(p.parts.all) }

// Files returns the names of the files that the policy was read from, its own first.
func (p *Policy) Files() []string { return slices.Clone(p.parts.files) }

// CompileParts is Compile of a file that may have parts, which open returns. A nil open has none.
func CompileParts(file string, src []byte, open Opener) (*Policy, Findings) {
	f, r := syntax.Read(file, src)
	switch {
	case f == nil:
		return nil, r.Findings()
	case f.HasParts():
		return assemble(syntax.Load(file, src, f, r, open))
	}
	p := compile(r, f)
	if p != nil {
		sum := sha256.Sum256(src)
		p.digest, p.parts.files = hex.EncodeToString(sum[:]), []string{file}
	}
	return p, r.Findings()
}

// ReadParts reads what CompileParts reads, and compiles nothing.
func ReadParts(file string, src []byte, open Opener) {
	if f, r := syntax.Read(file, src); f != nil && f.HasParts() {
		syntax.Load(file, src, f, r, open)
	}
}

// assemble compiles the files of a policy, its own first: each alone, and then all together.
func assemble(files []*syntax.Module) (*Policy, Findings) {
	root := files[0]
	ok := true
	for _, m := range files {
		alone := *m.File
		alone.Renamed = nil // they may name states of parts
		m.CheckParts()
		ok = compile(m.Reader, &alone) != nil && m.Reader.OK() && ok
	}
	if !ok {
		return nil, findingsOf(files)
	}
	flat := syntax.Flatten(root)
	if !root.Reader.OK() {
		return nil, findingsOf(files)
	}
	// What is to be said of one file alone was said of it.
	whole := strictyaml.NewReader(root.Reader.File(), strictyaml.Language{})
	p := compile(whole, flat)
	if p != nil {
		p.digest = digestOf(files)
		for _, m := range files {
			p.parts.files = append(p.parts.files, m.Reader.File())
		}
	}
	return p, append(findingsOf(files), whole.Findings().Errors()...)
}

// findingsOf returns what was found in files, each finding once.
func findingsOf(files []*syntax.Module) (all Findings) {
	seen := map[strictyaml.Finding]bool{}
	for _, m := range files {
		for _, f := range m.Reader.Findings() {
			if !seen[f] {
				seen[f] = true
				all = append(all, f)
			}
		}
	}
	return all
}

// digestOf returns the digest of several files: no other files, and no file alone, have it,
// since what is hashed begins as no policy can, and says how long everything is.
func digestOf(files []*syntax.Module) string {
	sum := sha256.New()
	sum.Write([]byte("policy with parts\x00"))
	write := func(text []byte) {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		sum.Write(text)
	}
	write(files[0].Source)
	rest := slices.SortedFunc(slices.Values(files[1:]), func(a, b *syntax.Module) int { return strings.Compare(a.Path, b.Path) })
	for _, m := range rest {
		write([]byte(m.Path))
		write(m.Source)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
