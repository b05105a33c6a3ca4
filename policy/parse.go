package policy

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
