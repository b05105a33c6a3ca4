package stdio

import "sync"

// Cork gathers what several Writers are given while a Reader still has lines at
// hand, so that many messages that came in one read go out in one write. Readers
// and Writers join it ([Reader.Join], [Writer.Join]) before they are used. Its
// zero value is ready; a nil Cork gathers nothing. It is safe for concurrent
// use.
type Cork struct {
	mu    sync.Mutex // guards what follows
	holds int        // Readers that have lines at hand
	kept  []*Writer  // that wait for one of them to have none
}

// hold makes the Writers wait until release is called.
func (c *Cork) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds++
}

// release has everything written that has gathered, whoever gave it.
func (c *Cork) release() {
	c.mu.Lock()
	c.holds--
	var few [2]*Writer
	kept := append(few[:0], c.kept...)
	clear(c.kept)
	c.kept = c.kept[:0]
	c.mu.Unlock()
	for _, w := range kept {
		w.uncork()
	}
}

// keep reports whether w has to wait: then it will be uncorked.
func (c *Cork) keep(w *Writer) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds > 0 {
		c.kept = append(c.kept, w)
	}
	return c.holds > 0
}
