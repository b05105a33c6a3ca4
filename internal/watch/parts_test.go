package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linesAsParts takes each line that begins with "+" for the path of a part, in parts, too.
func linesAsParts(path string, content []byte, open func(string) ([]byte, error)) {
	for line := range strings.Lines(string(content)) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "+"); is {
			src, _ := open(name)
			linesAsParts(path, src, open)
		}
	}
}

func withParts(path string) Config {
	cfg := quick(path)
	cfg.Parts = linesAsParts
	return cfg
}

// awaitPart takes deliveries until one has a part of this content.
func (r *rig) awaitPart(name, content string) File {
	r.t.Helper()
	for {
		f := r.next()
		if f.Err == nil && f.Parts[name].Err == nil && string(f.Parts[name].Content) == content {
			return f
		}
		r.t.Logf("passed over %q, %v", f.Parts[name].Content, f.Parts[name].Err)
	}
}

// A part that is written, one of a part, and one that was not there before are all delivered with the file.
func TestPartIsWatched(t *testing.T) {
	path := policyIn(t, "+a.yaml\n")
	dir := filepath.Dir(path)
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	write(t, filepath.Join(dir, "a.yaml"), "one")
	r := start(t, withParts(path))
	replace(t, filepath.Join(dir, "a.yaml"), "two")
	r.awaitPart("a.yaml", "two")
	write(t, filepath.Join(dir, "sub", "b.yaml"), "b")
	write(t, filepath.Join(dir, "a.yaml"), "+sub/b.yaml\n")
	r.awaitPart("sub/b.yaml", "b")
	replace(t, filepath.Join(dir, "sub", "b.yaml"), "changed")
	f := r.awaitPart("sub/b.yaml", "changed")
	if got := string(f.Content); got != "+a.yaml\n" {
		t.Errorf("the file is %q", got)
	}
	if src, err := f.Open("a.yaml"); err != nil || string(src) != "+sub/b.yaml\n" {
		t.Errorf("Open: %q, %v", src, err)
	}
}

// A part that is gone is delivered as an error that is the part's, and then as it is when it is back.
func TestPartIsMissing(t *testing.T) {
	path := policyIn(t, "+a.yaml\n")
	part := filepath.Join(filepath.Dir(path), "a.yaml")
	write(t, part, "one")
	r := start(t, withParts(path))
	must(t, os.Remove(part))
	f := r.next()
	if f.Err != nil || f.Parts["a.yaml"].Err == nil || string(f.Content) != "+a.yaml\n" {
		t.Fatalf("%q, %v, part %v", f.Content, f.Err, f.Parts["a.yaml"].Err)
	}
	write(t, part, "one")
	r.awaitPart("a.yaml", "one")
}

// A kubelet swaps a file and its parts at once, and they are delivered so.
func TestPartsAreSwappedTogether(t *testing.T) {
	files := func(n string) map[string]string {
		return map[string]string{"policy.yaml": "+a.yaml\n" + n, "a.yaml": n}
	}
	v := newVolume(t, files("1"))
	r := start(t, withParts(v.path("policy.yaml")))
	for _, n := range []string{"2", "3", "4"} {
		v.write(files(n))
		f := r.awaitPart("a.yaml", n)
		if got := string(f.Content); got != "+a.yaml\n"+n {
			t.Errorf("part %s came with %q", n, got)
		}
	}
}

// What an editor does to a part in a folder, and a second file in it, do not hide which file is the policy.
func TestFolderWithParts(t *testing.T) {
	path := policyIn(t, "")
	dir := filepath.Dir(path)
	must(t, os.Remove(path))
	write(t, filepath.Join(dir, "main.yaml"), "+a.yaml\n")
	write(t, filepath.Join(dir, "a.yaml"), "one")
	write(t, filepath.Join(dir, "main.test.yaml"), "a test")
	r := start(t, withParts(dir))
	replace(t, filepath.Join(dir, "a.yaml"), "two")
	if f := r.awaitPart("a.yaml", "two"); f.Path != filepath.Join(dir, "main.yaml") {
		t.Errorf("it reads %s", f.Path)
	}
	write(t, filepath.Join(dir, "other.yaml"), "other")
	r.awaitError("several policy files, main.yaml, other.yaml")
	write(t, filepath.Join(dir, "policy.yaml"), "usual")
	r.await("usual")
}

func TestUnused(t *testing.T) {
	for _, c := range []struct {
		files string // NAME=PART,PART
		want  string
	}{
		{"a= b=", "a.yaml b.yaml"},
		{"a=b b=", "a.yaml"},
		{"a=b b=c c=", "a.yaml"},
		{"a=a b=", "a.yaml b.yaml"},
		{"a=b b=a", "a.yaml b.yaml"},
		{"a=c b=c c=", "a.yaml b.yaml"},
		{"a=missing", "a.yaml"},
	} {
		dir := t.TempDir()
		var names []string
		for f := range strings.FieldsSeq(c.files) {
			name, parts, _ := strings.Cut(f, "=")
			var content strings.Builder
			for part := range strings.SplitSeq(parts, ",") {
				if part != "" {
					content.WriteString("+" + part + ".yaml\n")
				}
			}
			names = append(names, name+".yaml")
			write(t, filepath.Join(dir, name+".yaml"), content.String())
		}
		once := Config{Parts: func(_ string, content []byte, open func(string) ([]byte, error)) {
			for line := range strings.Lines(string(content)) {
				open(strings.TrimSpace(line[1:]))
			}
		}, MaxSize: 1000}
		if got := strings.Join(once.Unused(dir, names), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.files, got, c.want)
		}
	}
}

// No two sets of files that differ have one digest.
func TestDigestsOfParts(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, files := range [][2]map[string]string{
		{{"policy.yaml": "+a\n"}, {"a": ""}},
		{{"policy.yaml": "+a\n"}, {"a": "b"}},
		{{"policy.yaml": "+a\n+b\n"}, {"a": "", "b": "b"}},
		{{"policy.yaml": "+a\n+b\n"}, {"a": "b", "b": ""}},
		{{"policy.yaml": "+a\n+b\n"}, {"a": "", "b": ""}},
		{{"policy.yaml": "+b\n+a\n"}, {"a": "", "b": ""}},
		{{"policy.yaml": "+a\n"}, nil},
	} {
		dir := t.TempDir()
		for _, some := range files {
			for name, content := range some {
				write(t, filepath.Join(dir, name), content)
			}
		}
		f := withParts(filepath.Join(dir, "policy.yaml")).Read()
		if was, twice := seen[f.Digest]; twice {
			t.Errorf("%v has the digest of %s", files, was)
		}
		seen[f.Digest] = string(f.Content)
		if again := withParts(filepath.Join(dir, "policy.yaml")).Read(); again.Digest != f.Digest {
			t.Errorf("%v has two digests", files)
		}
	}
}
