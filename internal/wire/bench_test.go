package wire

import (
	"strings"
	"testing"
)

// call200 is a tools/call of about 200 bytes, as clients send them.
const call200 = `{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{"name":"read_text_file",` +
	`"arguments":{"path":"/srv/projects/alpha/README.md","head":40,"tail":null},"_meta":{"progressToken":4711}}}`

func BenchmarkReadCall(b *testing.B) {
	raw := []byte(call200)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(raw, FromClient); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadAnswer(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":4711,"result":{"content":[{"type":"text","text":"` + strings.Repeat("lorem ipsum ", 20) + `"}],"isError":false}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(raw, FromUpstream); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadLarge(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"lines":[` +
		strings.Repeat(`"a line of text",`, 60_000) + `""]}}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(raw, FromClient); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSplice(b *testing.B) {
	m, err := Read([]byte(call200), FromClient)
	if err != nil {
		b.Fatal(err)
	}
	id := []byte("90071992547409931")
	b.ReportAllocs()
	for b.Loop() {
		Splice(m.Raw, Edit{At: m.ID, With: id}, Edit{At: m.P.MetaToken, With: id})
	}
}

// BenchmarkArguments is what the argument of a split costs to read.
func BenchmarkArguments(b *testing.B) {
	m, err := Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"git","arguments":{"path":"/srv/repo","command":"status","options":{"level":100,"format":"json"}}}}`), FromClient)
	if err != nil {
		b.Fatal(err)
	}
	for title, path := range map[string][]string{"Text": {"command"}, "TextAtAPath": {"options", "format"}, "NumberAtAPath": {"options", "level"}} {
		b.Run(title, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, _ := (*Arguments)(m).Scalar(path); !ok {
					b.Fatal("nothing is there")
				}
			}
		})
	}
}
