package wire

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ListKind is what a list request lists. The zero value is tools.
type ListKind uint8

// The kinds of lists. Only those before Templates are shown to clients.
const (
	Tools ListKind = iota
	Resources
	Prompts
	Templates // resource templates
)

var listKinds = [...]struct{ method, member, name, changed string }{
	Tools:     {"tools/list", "tools", "name", "notifications/tools/list_changed"},
	Resources: {"resources/list", "resources", "uri", "notifications/resources/list_changed"},
	Prompts:   {"prompts/list", "prompts", "name", "notifications/prompts/list_changed"},
	Templates: {"resources/templates/list", "resourceTemplates", "uriTemplate", "notifications/resources/list_changed"},
}

// String is the member of the result that holds the list: "tools".
func (k ListKind) String() string { return listKinds[k].member }

// Method is the request that lists this kind.
func (k ListKind) Method() string { return listKinds[k].method }

// Changed is the notification that says the list has changed.
func (k ListKind) Changed() string { return listKinds[k].changed }

// Item is one tool, resource, prompt or template of a [List].
type Item struct {
	// Name is the decoded name, URI or URI template.
	Name string
	// Raw is the item's object as received.
	Raw []byte
}

// List is what an upstream offers of one kind: all pages, in order, every item
// in the bytes it came in. It is immutable.
type List struct {
	Kind  ListKind
	Items []Item
	// Digest identifies the content: equal for equal bytes.
	Digest [sha256.Size]byte
	// Unnamed counts the items left out since they have no single name.
	Unnamed int

	head, tail []byte // the first page's result around its items
	index      map[string]int
}

// NewList makes a list of the answers to all pages of a list request.
func NewList(kind ListKind, pages []*Message) (*List, error) {
	l := &List{Kind: kind, index: make(map[string]int)}
	for i, page := range pages {
		if err := l.add(page, i == 0); err != nil {
			return nil, fmt.Errorf("reading %s: %w", kind.Method(), err)
		}
	}
	l.settle()
	return l, nil
}

// Keep returns the list of those items that keep says are to be in it: l itself if
// that are all.
func (l *List) Keep(keep func(Item) bool) *List {
	some := &List{Kind: l.Kind, Unnamed: l.Unnamed, head: l.head, tail: l.tail, index: make(map[string]int)}
	for _, item := range l.Items {
		if keep(item) {
			some.Items = append(some.Items, item)
		}
	}
	if len(some.Items) == len(l.Items) {
		return l
	}
	some.settle()
	return some
}

// settle makes the index and the digest.
func (l *List) settle() {
	hash := sha256.New()
	hash.Write(l.head)
	for i, item := range l.Items {
		hash.Write(item.Raw)
		hash.Write([]byte{','})
		if _, twice := l.index[item.Name]; !twice {
			l.index[item.Name] = i
		}
	}
	hash.Write(l.tail)
	hash.Sum(l.Digest[:0])
}

// Find returns the item of a name, the first where there are several.
func (l *List) Find(name string) (Item, bool) {
	i, ok := l.index[name]
	if !ok {
		return Item{}, false
	}
	return l.Items[i], true
}

// Has reports whether the upstream lists the name.
func (l *List) Has(name string) bool { _, ok := l.index[name]; return ok }

// Member returns a member of an item, nil if there is none. A nil List has no items.
func (l *List) Member(item, name string) []byte {
	if l == nil {
		return nil
	}
	found, ok := l.Find(item)
	if !ok {
		return nil
	}
	return Member(found.Raw, name)
}

// Result renders the result of a list request with these items: the first
// page's result, without nextCursor, its items replaced.
func (l *List) Result(items [][]byte) []byte {
	n := len(l.head) + len(l.tail) + len(items)
	for _, item := range items {
		n += len(item)
	}
	out := append(make([]byte, 0, n), l.head...)
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, l.tail...)
}

func (l *List) add(page *Message, first bool) error {
	if page.Kind != Result {
		return errors.New("the upstream answered with an error")
	}
	result := page.Bytes(page.Result)
	items, cursor, err := members(result, listKinds[l.Kind].member)
	if err != nil {
		return err
	}
	if first {
		l.frame(result, items, cursor)
	}
	return l.items(result[items.Start:items.End])
}

// members finds the array of items, and nextCursor with the comma that belongs
// to it, in the bytes of a list result.
func members(result []byte, name string) (items, cursor Span, err error) {
	first := true
	err = eachMember(result, func(key string, whole, value Span) error {
		switch {
		case Lookalike(key, name):
			return fmt.Errorf("member name %+q looks like %q", key, name)
		case key == name:
			if items.Present() {
				return fmt.Errorf("duplicate member name %q", name)
			}
			if result[value.Start] != '[' {
				return fmt.Errorf("%q is no array", name)
			}
			items = value
		case key == "nextCursor":
			cursor = withComma(result, whole, first)
		}
		first = false
		return nil
	})
	if err == nil && !items.Present() {
		err = fmt.Errorf("%q is missing", name)
	}
	return items, cursor, err
}

// frame keeps what stands around the items, less nextCursor.
func (l *List) frame(result []byte, items, cursor Span) {
	l.head, l.tail = result[:items.Start+1], result[items.End-1:]
	switch {
	case !cursor.Present():
	case cursor.Start < items.Start:
		l.head = Splice(l.head, Edit{At: cursor})
	default:
		l.tail = Splice(l.tail, Edit{At: Span{cursor.Start - items.End + 1, cursor.End - items.End + 1}})
	}
}

func (l *List) items(array []byte) error {
	return Elements(array, func(item []byte) error {
		if name, ok := itemName(item, listKinds[l.Kind].name); ok {
			l.Items = append(l.Items, Item{Name: name, Raw: item})
		} else {
			l.Unnamed++
		}
		return nil
	})
}

// itemName reads the one name of an item. An item with two names, with one that
// another reader could take for it, or with invalid UTF-8 in it, has none:
// nothing could be decided on it that every client would understand alike.
func itemName(item []byte, key string) (name string, ok bool) {
	if item[0] != '{' {
		return "", false
	}
	found := 0
	err := eachMember(item, func(k string, _, value Span) error {
		switch {
		case k == key:
			found++
			if ok = item[value.Start] == '"'; ok {
				name = unquote(item[value.Start:value.End])
				ok = utf8.ValidString(name)
			}
		case Lookalike(k, key):
			found++
		}
		return nil
	})
	return name, ok && found == 1 && err == nil
}
