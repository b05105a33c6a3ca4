package policy

// checker looks at a compiled policy as a whole.
type checker struct {
	r *reader
	s *source
	p *Policy
}

func (c *checker) check() {}
