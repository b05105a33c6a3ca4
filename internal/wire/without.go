package wire

// Without returns the edits that take members out of the object at a span of raw,
// each with the one comma that belongs to it, and leave every other byte as it is:
// the comma behind a member that stands first, else the one before it. What is no
// object has no members.
func Without(raw []byte, object Span, drop func(name string) bool) (edits []Edit) {
	kept := false
	_ = eachMember(raw[object.Start:object.End], func(name string, whole, _ Span) error {
		if !drop(name) {
			kept = true
			return nil
		}
		at := Span{whole.Start + object.Start, whole.End + object.Start}
		if kept {
			at.Start = commaBefore(raw, at.Start)
		} else {
			at.End = commaBehind(raw, at.End)
		}
		edits = append(edits, Edit{At: at})
		return nil
	})
	return edits
}

// commaBefore is where the comma stands that comes before a member.
func commaBefore(raw []byte, at int32) int32 {
	for raw[at] != ',' {
		at--
	}
	return at
}

// commaBehind is where the comma ends that follows a member, or the member where
// none does.
func commaBehind(raw []byte, end int32) int32 {
	for at := end; int(at) < len(raw); at++ {
		switch raw[at] {
		case ' ', '\t', '\r', '\n':
		case ',':
			return at + 1
		default:
			return end
		}
	}
	return end
}
