package lock

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Findings are what is found about a lock file.
type Findings = strictyaml.Findings

// MaxSize is the most that a lock file may hold, in bytes.
const MaxSize = strictyaml.MaxSource

var language = strictyaml.Language{
	Name:  "a lock file",
	Begin: `"version: 1" and "tools:", and is written by "fsm-proxy lock"`,
}

type (
	reader = strictyaml.Reader
	entry  = strictyaml.Entry
	field  = strictyaml.Field[reading]
)

// reading is a lock while it is read.
type reading struct {
	Lock
	version, tools bool
}

// Parse reads a lock file. file is the name to put into findings. The lock is nil
// if, and only if, one of them is an error.
func Parse(file string, src []byte) (*Lock, Findings) {
	r := strictyaml.NewReader(file, language)
	root := r.Tree(src)
	if root == nil {
		return nil, r.Findings()
	}
	into := &reading{Lock: Lock{Tools: map[string]Definition{}, Globs: map[string][]string{}}}
	strictyaml.ReadFields(r, root, language.Name, []field{
		{Name: "version", Read: func(r *reader, e entry, into *reading) { into.version = true; r.Version(e) }},
		{Name: "upstream", Read: readUpstream},
		{Name: "tools", Read: readTools},
		{Name: "globs", Read: readGlobs},
	}, into)
	for _, missing := range []struct {
		there bool
		key   string
	}{{into.version, "version"}, {into.tools, "tools"}} {
		if !missing.there {
			r.Errorf(strictyaml.PlaceOf(root), "missing", "%s is missing; have the file written by \"fsm-proxy lock\"", missing.key)
		}
	}
	if !r.OK() {
		return nil, r.Findings()
	}
	return &into.Lock, r.Findings()
}

func readUpstream(r *reader, e entry, into *reading) {
	if !r.Mapping(e, "the server's name and version") {
		return
	}
	text := func(name string, to *string) field {
		return field{Name: name, Read: func(r *reader, e entry, _ *reading) {
			if t, ok := r.Scalar(e, "a text"); ok {
				*to = t.Value
			}
		}}
	}
	strictyaml.ReadFields(r, e.Value, "upstream", []field{text("name", &into.Upstream.Name), text("version", &into.Upstream.Version)}, into)
}

func readTools(r *reader, e entry, into *reading) {
	into.tools = true
	if strictyaml.IsNothing(e.Value) || !r.Mapping(e, "a mapping of tools to their digests") {
		return
	}
	for _, tool := range r.Entries(e.Value) {
		into.Tools[tool.Name()] = readDefinition(r, tool, into)
	}
}

func readDefinition(r *reader, tool entry, into *reading) (d Definition) {
	if strictyaml.IsNothing(tool.Value) || !r.Mapping(tool, "a mapping of parts to their digests") {
		return d
	}
	var fields []field
	for part, name := range partNames {
		fields = append(fields, field{Name: name, Read: func(r *reader, e entry, _ *reading) { d[part] = readDigest(r, e) }})
	}
	strictyaml.ReadFields(r, tool.Value, "a tool", fields, into)
	return d
}

func readDigest(r *reader, e entry) (d Digest) {
	t, ok := r.Scalar(e, "a SHA-256 digest in hexadecimal")
	if !ok {
		return d
	}
	if n, err := hex.Decode(d[:], []byte(t.Value[:min(len(t.Value), 2*len(d))])); err != nil || n != len(d) || len(t.Value) != 2*len(d) || strings.ToLower(t.Value) != t.Value || d == (Digest{}) {
		r.Errorf(t.Place, "digest", "%s: %s is no SHA-256 digest of %d small hexadecimal digits; run \"fsm-proxy lock\" again", e.Name(), strictyaml.Quote(t.Value), 2*len(d))
	}
	return d
}

func readGlobs(r *reader, e entry, into *reading) {
	if strictyaml.IsNothing(e.Value) || !r.Mapping(e, "a mapping of globs to the tools that they bind") {
		return
	}
	for _, glob := range r.Entries(e.Value) {
		into.Globs[glob.Name()] = nil
		if strictyaml.IsNothing(glob.Value) {
			continue
		}
		for _, t := range r.Items(glob, "a list of tools") {
			into.Globs[glob.Name()] = append(into.Globs[glob.Name()], t.Value)
		}
	}
}

// Format writes the lock of a policy as a file: always the same for the same lock,
// and a line for each thing that can change. It is an error if the file would be
// larger than is read.
func (l *Lock) Format(policyFile string) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# The tool definitions that %s is enforced with, while its pin is warn or refuse.\n", strictyaml.Comment(policyFile))
	b.WriteString("# Written by \"fsm-proxy lock\". Do not edit it: run that again, look at what has changed, and keep both files together.\n")
	fmt.Fprintf(&b, "version: 1\nupstream:\n  name: %s\n  version: %s\n", strictyaml.Scalar(l.Upstream.Name), strictyaml.Scalar(l.Upstream.Version))
	b.WriteString("tools:\n")
	for _, name := range slices.Sorted(maps.Keys(l.Tools)) {
		l.formatTool(&b, name)
	}
	if len(l.Globs) > 0 {
		b.WriteString("globs:\n")
	}
	for _, glob := range slices.Sorted(maps.Keys(l.Globs)) {
		fmt.Fprintf(&b, "  %s:\n", strictyaml.Scalar(glob))
		for _, name := range l.Globs[glob] {
			fmt.Fprintf(&b, "    - %s\n", strictyaml.Scalar(name))
		}
	}
	if b.Len() > MaxSize {
		return nil, fmt.Errorf("the lock of %d tools would have more than %d bytes, the most that is read; bind fewer tools", len(l.Tools), MaxSize)
	}
	return []byte(b.String()), nil
}

func (l *Lock) formatTool(b *strings.Builder, name string) {
	fmt.Fprintf(b, "  %s:\n", strictyaml.Scalar(name))
	for part, d := range l.Tools[name] {
		if d != (Digest{}) {
			fmt.Fprintf(b, "    %s: %x\n", Part(part), d)
		}
	}
}
