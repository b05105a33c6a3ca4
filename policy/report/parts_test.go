package report

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// folder is the files of one policy with parts.
type folder map[string][]byte

func (f folder) open(name string) ([]byte, error) {
	src, ok := f[name]
	if !ok {
		return nil, fmt.Errorf("no such file")
	}
	return src, nil
}

// partsCases are the policies of parts.txtar, by their names.
func partsCases(t testing.TB, archive *txtar.Archive) (names []string, cases map[string]folder) {
	t.Helper()
	cases = map[string]folder{}
	for _, f := range archive.Files {
		name, file := path.Split(f.Name)
		if cases[name] == nil {
			names, cases[name] = append(names, name), folder{}
		}
		cases[name][file] = f.Data
	}
	return names, cases
}

// TestPartsFindings compares what is found in policies with parts with what stands behind
// them. Each message is to be read as its user would: it names the right file.
func TestPartsFindings(t *testing.T) {
	const file = "testdata/parts.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names, cases := partsCases(t, archive)
	found := map[string]policy.Findings{}
	for _, name := range names {
		p, its := ParseParts("etc/policy.yaml", cases[name]["policy.yaml"], cases[name].open)
		if (p == nil) != (len(its.Errors()) > 0) {
			t.Errorf("%s: policy %v with errors %v", name, p != nil, its.Errors())
		}
		found[name] = its
	}
	for i, f := range archive.Files {
		if name, base := path.Split(f.Name); base == "want" {
			archive.Files[i].Data = []byte(found[name].String() + "\n")
		}
	}
	golden.Compare(t, file, txtar.Format(archive))
}

// TestPartsRenderings draws a policy with parts in parts, the same file twice.
func TestPartsRenderings(t *testing.T) {
	const file = "testdata/rendered/parts.txtar"
	p, found := ParseParts("policy.yaml", []byte(`version: 1
name: delivery
initial: planning
on_complete: stop
use: {round: round.yaml}
everywhere: {tools: [status]}
states:
  planning: {part: round, exits: {done: building, "*": {terminal: true}}}
  building:
    description: What was planned is built.
    tools: {finish: {on_any: checking}}
  checking:
    part: round
    exits: {done: delivered, "*": building}
    tools: {stop: {on_any: building}}
  delivered: {terminal: true}
`), folder{
		"round.yaml": []byte(`version: 1
initial: drafting
use: {vote: vote.yaml}
everywhere: {tools: {give_up: {on_any: {terminal: true}}}}
states:
  drafting: {tools: {submit: {on_any: voting}}}
  voting: {part: vote, exits: {yes: done, "no": drafting, "*": drafting}}
  done: {terminal: true}
`),
		"vote.yaml": []byte(`version: 1
initial: open
states:
  open:
    tools: {vote: {by: on, cases: {"yes": {on_any: "yes"}, "no": {on_any: "no"}}}, "count_*": stay}
  "yes": {terminal: true}
  "no": {terminal: true}
`),
	}.open)
	if p == nil || len(found.Warnings()) > 0 {
		t.Fatal(found)
	}
	golden.Compare(t, file, txtar.Format(&txtar.Archive{Files: []txtar.File{
		{Name: "text", Data: []byte(Text(p))},
		{Name: "mermaid", Data: []byte(Mermaid(p))},
		{Name: "dot", Data: []byte(DOT(p))},
		{Name: "json", Data: JSON(p)},
	}}))
}

// FuzzParts feeds a policy and a part of arbitrary bytes: nothing panics, what is opened lies in the policy's folder, and
// the same bytes give the same answer.
func FuzzParts(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/parts.txtar")
	if err != nil {
		f.Fatal(err)
	}
	_, cases := partsCases(f, archive)
	for _, files := range cases {
		f.Add(files["policy.yaml"], files["review.yaml"])
	}
	f.Fuzz(func(t *testing.T, src, part []byte) {
		open := func(name string) ([]byte, error) {
			if !fs.ValidPath(name) || !filepath.IsLocal(filepath.FromSlash(name)) {
				t.Fatalf("it opens %q", name)
			}
			return part, nil
		}
		p, found := ParseParts("etc/f.yaml", src, open)
		if (p == nil) != (found.Err() != nil) {
			t.Fatalf("policy %v, findings %v", p != nil, found)
		}
		again, same := ParseParts("etc/f.yaml", src, open)
		if found.String() != same.String() {
			t.Fatalf("found first\n%v\nthen\n%v", found, same)
		}
		for _, x := range found {
			if x.Message == "" || x.Code == "" || !strings.HasPrefix(x.File, "etc/") || strings.ContainsAny(x.Message, "\x00\n") {
				t.Fatalf("finding %+v", x)
			}
		}
		if p == nil {
			return
		}
		if p.Digest() != again.Digest() || Mermaid(p) != Mermaid(again) || DOT(p) != DOT(again) || Text(p) != Text(again) {
			t.Fatal("two policies of one source")
		}
		if got := strings.Count(Mermaid(p), " {\n"); got != len(p.Parts()) {
			t.Fatalf("%d parts are drawn of %d", got, len(p.Parts()))
		}
	})
}

// What is said of names in two files is said for each file, whose lines it names.
func TestGroupedByFile(t *testing.T) {
	_, found := ParseParts("policy.yaml", []byte("version: 1\ninitial: a\nuse: {p: p.yaml}\nstates:\n  a: {tools: {x: b}}\n  b: {part: p, exits: a}\n"), folder{
		"p.yaml": []byte("version: 1\ninitial: s\nstates:\n  s: {tools: {y: t}}\n  t: {tools: {z: u}}\n  u: {terminal: true}\n"),
	}.open)
	var got []string
	for _, f := range Grouped(found) {
		if f.Code == noOnUnknown {
			subjects, _, _ := strings.Cut(f.Message, " lead")
			got = append(got, fmt.Sprintf("%s:%d %s", f.File, f.Line, subjects))
		}
	}
	if want := `p.yaml:4 "y" and "z" (lines 4, 5)|policy.yaml:5 "x"`; strings.Join(got, "|") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "|"), want)
	}
}
