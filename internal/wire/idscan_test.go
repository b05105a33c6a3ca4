package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestIDScan(t *testing.T) {
	long := strings.Repeat("x", 2<<10)
	for _, c := range []struct {
		raw, id string
		sure    bool
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"id":8,"arguments":{"id":9,"s":"` + long + `"}}}`, `7`, true},
		{`{"params":{"text":"` + long + `","id":[{"id":8}]},"method":"x","id":"a\"}{"}`, `"a\"}{"`, true},
		{`{"params":"\\","method":"x","\u0069\u0064":7}`, `7`, true},
		{" { \"id\" : -7 , \"method\" : \"x\" } \r\n\t", `-7`, true},
		{`{"id":7}`, `7`, true},
		{`{"id":7,"method":"x","params":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, `7`, true},
		{"{\"id\":7,\"method\":\"\xff\"}", `7`, true},
		// Nobody waits for an answer.
		{`{"method":"notifications/x","params":{"id":7}}`, ``, true},
		{`{"id":7,"result":{}}`, ``, true},
		{`{"id":null,"error":{}}`, ``, true},
		{`{}`, ``, true},
		// Who waits for which is not known.
		{`{"id":7,"method":"x","id":8}`, ``, false},
		{`{"id":7,"method":"x","i\u0064":7}`, ``, false},
		{`{"id":7,"method":"x","ID":8}`, ``, false},
		{`{"id":7,"method":"x","id\u0000":8}`, ``, false},
		{`{"id":7.5,"method":"x"}`, ``, false},
		{`{"id":07,"method":"x"}`, ``, false},
		{`{"id":1 2,"method":"x"}`, ``, false},
		{`{"id":null,"method":"x"}`, ``, false},
		{`{"id":{"id":7},"method":"x"}`, ``, false},
		{"{\"id\":\"\xff\",\"method\":\"x\"}", ``, false},
		{`{"id":"` + long + `","method":"x"}`, ``, false},
		{`{"id":7,"` + long + `":1,"method":"x"}`, ``, false},
		{`{"id":7,"method":"x"`, ``, false},
		{`{"id":7,"method":"x`, ``, false},
		{`{"id":7,"method":"x"}}`, ``, false},
		{`{"id":7,"method":"x"}{"id":8}`, ``, false},
		{`{"id":7,"method":"x"},`, ``, false},
		{`x{"id":7,"method":"x"}`, ``, false},
		{`[{"id":7,"method":"x"}]`, ``, false},
		{`{id:7,"method":"x"}`, ``, false},
		{`"id":7`, ``, false},
		{``, ``, false},
	} {
		var whole, bytewise IDScan
		_, _ = whole.Write([]byte(c.raw))
		_, _ = io.Copy(&bytewise, iotest.OneByteReader(strings.NewReader(c.raw)))
		for _, s := range []*IDScan{&whole, &bytewise} {
			if id, sure := s.Addressee(); string(id) != c.id || sure != c.sure {
				t.Errorf("%.80q is answered under %q, %v; want %q, %v", c.raw, id, sure, c.id, c.sure)
			}
		}
	}
}

// FuzzIDScan: what the scan finds in an object is what a JSON reader finds, and what it
// gives to be sent is JSON whatever it has read.
func FuzzIDScan(f *testing.F) {
	for _, seed := range append(seeds, plainSeeds...) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, sure := scanned(raw).Addressee()
		if id != nil && (!sure || !jsontext.Value(id).IsValid() || !validID(id)) {
			t.Fatalf("%q is answered under %q", raw, id)
		}
		if m, err := Read(raw, FromClient); err == nil {
			want := m.Bytes(m.ID)
			if m.Kind == Result || m.Kind == Failure {
				want = nil
			}
			if len(want) > maxScanned {
				return
			}
			if !bytes.Equal(id, want) || !sure && !hasLongName(raw) {
				t.Fatalf("%q is answered under %q, %v, not %q", raw, id, sure, want)
			}
		}
	})
}

func hasLongName(raw []byte) (long bool) {
	_ = Members(raw, func(name string, _ Span) error { long = long || len(name) > maxScanned/6; return nil })
	return long
}
