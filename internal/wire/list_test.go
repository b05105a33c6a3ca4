package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// page reads a list answer with this result.
func page(t *testing.T, result string) *Message {
	t.Helper()
	m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"result":`+result+`}`), FromUpstream)
	if err != nil {
		t.Fatalf("reading %s: %v", result, err)
	}
	return m
}

// TestListFrames checks what is left of the first page around its items,
// wherever nextCursor stands.
func TestListFrames(t *testing.T) {
	tests := map[string]struct{ result, want string }{
		"cursor first":      {`{"nextCursor":"x","tools":[{"name":"a"}],"ttl":1}`, `{"tools":[{"name":"a"}],"ttl":1}`},
		"cursor in between": {`{"a":1,"nextCursor":"x","tools":[{"name":"a"}]}`, `{"a":1,"tools":[{"name":"a"}]}`},
		"cursor right after": {`{"tools":[{"name":"a"}],"nextCursor":"x","_meta":{}}`,
			`{"tools":[{"name":"a"}],"_meta":{}}`},
		"cursor last":       {`{"tools":[{"name":"a"}],"_meta":{"x":[1]},"nextCursor":"x"}`, `{"tools":[{"name":"a"}],"_meta":{"x":[1]}}`},
		"cursor beside":     {`{"nextCursor":"x","tools":[{"name":"a"}]}`, `{"tools":[{"name":"a"}]}`},
		"no cursor":         {`{"tools":[{"name":"a"}],"x":null}`, `{"tools":[{"name":"a"}],"x":null}`},
		"null cursor":       {`{"tools":[{"name":"a"}],"nextCursor":null}`, `{"tools":[{"name":"a"}]}`},
		"whitespace":        {"{ \"nextCursor\" : \"x\" ,\n\t\"tools\" : [ {\"name\": \"a\"} ] , \"b\" : 2 }", "{ \n\t\"tools\" : [{\"name\": \"a\"}] , \"b\" : 2 }"},
		"whitespace, last":  {"{ \"tools\" : [ {\"name\": \"a\"} ]\n, \"nextCursor\" : \"x\" }", "{ \"tools\" : [{\"name\": \"a\"}]\n }"},
		"escaped member":    {`{"tool\u0073":[{"name":"a"}],"next\u0043ursor":"x"}`, `{"tool\u0073":[{"name":"a"}]}`},
		"commas in strings": {`{"d":",nextCursor,","nextCursor":",","tools":[{"name":"a"}]}`, `{"d":",nextCursor,","tools":[{"name":"a"}]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, err := NewList(Tools, []*Message{page(t, tt.result)})
			if err != nil {
				t.Fatal(err)
			}
			all := make([][]byte, len(l.Items))
			for i := range l.Items {
				all[i] = l.Items[i].Raw
			}
			if got := string(l.Result(all)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if none := l.Result(nil); !json.Valid(none) {
				t.Errorf("without items it is no JSON: %s", none)
			}
		})
	}
}

// TestListOfManyPages keeps all items of all pages, in order, in their bytes.
func TestListOfManyPages(t *testing.T) {
	l, err := NewList(Tools, []*Message{
		page(t, `{"tools":[{"name":"a","x":1e400}, {"name" : "b"}],"nextCursor":"2"}`),
		page(t, `{"nextCursor":"3","tools":[]}`),
		page(t, `{"tools":[{"name":"hidden"},{"name":"a","second":true},{"title":"no name"},7,{"name":null}],"_meta":{}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range l.Items {
		names = append(names, item.Name)
	}
	if want := []string{"a", "b", "hidden", "a"}; !slices.Equal(names, want) || l.Unnamed != 3 {
		t.Errorf("got %q and %d unnamed, want %q and 3", names, l.Unnamed, want)
	}
	if item, ok := l.Find("a"); !ok || string(item.Raw) != `{"name":"a","x":1e400}` {
		t.Errorf("of two by one name the first counts, got %s", item.Raw)
	}
	if l.Has("no name") || !l.Has("hidden") {
		t.Error("Has is wrong")
	}
	if got := string(l.Result([][]byte{l.Items[1].Raw, l.Items[2].Raw})); got != `{"tools":[{"name" : "b"},{"name":"hidden"}]}` {
		t.Errorf("got %s", got)
	}
}

// TestListItemsOfTwoNames: an item that clients could take for different ones
// has no name.
func TestListItemsOfTwoNames(t *testing.T) {
	for _, item := range []string{
		`{"name":"a","name":"b"}`, `{"name":"a","Name":"b"}`, `{"Name":"a"}`, `{"name":"a","name\u0000":"b"}`, `{"name":["a"]}`, `"a"`, `{}`, "{\"name\":\"\x96\"}",
	} {
		l, err := NewList(Tools, []*Message{page(t, `{"tools":[`+item+`]}`)})
		if err != nil || len(l.Items) != 0 || l.Unnamed != 1 {
			t.Errorf("%s: %v, items %v", item, err, l.Items)
		}
	}
	l, err := NewList(Resources, []*Message{page(t, `{"resources":[{"uri":"u","URI":"v"},{"uri":"w","name":"n"}]}`)})
	if err != nil || len(l.Items) != 1 || l.Items[0].Name != "w" {
		t.Errorf("%v: %+v", err, l)
	}
}

// TestListsThatCannotBeFiltered are refused whole: passed on, they would show
// what is hidden.
func TestListsThatCannotBeFiltered(t *testing.T) {
	for _, result := range []string{
		`{"tools":[],"tools":[{"name":"hidden"}]}`,
		`{"tools":[],"Tools":[{"name":"hidden"}]}`,
		`{"tools":[],"tool\u017f":[{"name":"hidden"}]}`,
		`{"TOOLS":[{"name":"hidden"}]}`,
		`{"tools":{"name":"hidden"}}`, `{"tools":null}`, `{}`, `[]`, `null`, `"tools"`,
	} {
		if l, err := NewList(Tools, []*Message{page(t, result)}); err == nil {
			t.Errorf("%s is shown as %s", result, l.Result(nil))
		}
	}
	fail, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`), FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewList(Tools, []*Message{fail}); err == nil {
		t.Error("an error is no list")
	}
}

// TestListDigest is equal for equal bytes, and differs with what is shown.
func TestListDigest(t *testing.T) {
	digest := func(result string) [32]byte {
		l, err := NewList(Prompts, []*Message{page(t, result)})
		if err != nil {
			t.Fatal(err)
		}
		return l.Digest
	}
	base := digest(`{"prompts":[{"name":"a"},{"name":"b"}]}`)
	if base != digest(`{"prompts":[{"name":"a"},{"name":"b"}],"nextCursor":"x"}`) {
		t.Error("the cursor is not shown and must not count")
	}
	for _, other := range []string{
		`{"prompts":[{"name":"b"},{"name":"a"}]}`, `{"prompts":[{"name":"a"},{"name":"b","x":1}]}`, `{"prompts":[{"name":"a"},{"name":"b"}],"_meta":{}}`,
	} {
		if base == digest(other) {
			t.Errorf("%s has the same digest", other)
		}
	}
}

func TestMembers(t *testing.T) {
	var got []string
	raw := []byte(`{ "a" : 1 , "\u0062":{"c":[]} , "a":"x"}`)
	if err := Members(raw, func(name string, at Span) error {
		got = append(got, name+"="+string(raw[at.Start:at.End]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := `a=1 b={"c":[]} a="x"`; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	if err := Members([]byte(`[1]`), func(string, Span) error { return nil }); err == nil {
		t.Error("an array has no members")
	}
}
