package policy

// Offer is one item that a live upstream lists. The zero value is a tool with no
// name that may do anything.
type Offer struct {
	Kind Kind
	Name string
	// Idempotent and ReadOnly are the tool's annotations: doing it twice does no
	// more than once, or it changes nothing.
	Idempotent, ReadOnly bool
}
