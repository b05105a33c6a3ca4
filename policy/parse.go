package policy

import (
	"crypto/sha256"
	"encoding/hex"

	"go.yaml.in/yaml/v4"
)

// Parse reads, checks and compiles a policy file. file is the name to put into
// findings. The findings hold everything found, in the file's order; the policy
// is nil if, and only if, one of them is an error.
func Parse(file string, src []byte) (*Policy, Findings) {
	r := &reader{file: file}
	s := r.read(src)
	if s == nil {
		return nil, r.findings()
	}
	p := r.compile(s)
	if len(r.found.Errors()) > 0 {
		return nil, r.findings()
	}
	p.digest = digest(src)
	return p, r.findings()
}

// digest is the SHA-256 of the source bytes in hexadecimal.
func digest(src []byte) string {
	sum := sha256.Sum256(src)
	return hex.EncodeToString(sum[:])
}

// read reads the source as far as single keys go. It returns nil if nothing can
// be made of it.
func (r *reader) read(src []byte) *source {
	root := r.tree(src)
	if root == nil {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.errorf(placeOf(root), "type", "a policy is a mapping that begins with \"version: 1\", not %s", nodeText(root))
		return nil
	}
	s := &source{}
	s.upstreamMay = UpstreamMay{Sampling: true, Elicitation: true, Roots: true}
	r.readTop(root, s)
	return s
}

// readTop reads the top level, where keys that begin with x- are ignored.
func (r *reader) readTop(root *yaml.Node, s *source) {
	kept := &yaml.Node{Kind: yaml.MappingNode, Line: root.Line, Column: root.Column}
	for _, e := range r.entries(root) {
		if len(e.name()) < 2 || e.name()[:2] != "x-" {
			kept.Content = append(kept.Content, e.key, e.value)
		}
	}
	readFields(r, kept, "a policy", topFields(), s)
}
