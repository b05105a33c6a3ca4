package policy

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Parse reads, checks and compiles a policy file. file is the name to put into
// findings. The findings hold everything found, in the file's order; the policy
// is nil if, and only if, one of them is an error.
func Parse(file string, src []byte) (*Policy, Findings) {
	r := newReader(file)
	s := r.read(src)
	if s == nil {
		return nil, r.Findings()
	}
	p := r.compile(s)
	if !r.OK() {
		return nil, r.Findings()
	}
	p.digest = digest(src)
	return p, r.Findings()
}

// digest is the SHA-256 of the source bytes in hexadecimal.
func digest(src []byte) string {
	sum := sha256.Sum256(src)
	return hex.EncodeToString(sum[:])
}

// read reads the source as far as single keys go. It returns nil if nothing can
// be made of it.
func (r reader) read(src []byte) *source {
	root := r.Tree(src)
	if root == nil {
		return nil
	}
	s := &source{}
	s.upstreamMay = UpstreamMay{Sampling: true, Elicitation: true, Roots: true}
	strictyaml.ReadFields(r, root, dialect.Name, topFields(), s)
	return s
}
