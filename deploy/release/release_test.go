package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// systems are those that `make release` builds for.
var systems = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// entry is one file of an archive.
type entry struct {
	mode fs.FileMode
	data []byte
}

// untar reads the regular files of a tar, each of which belongs to root.
func untar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		if h.Typeflag == tar.TypeReg {
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			files[h.Name] = entry{h.FileInfo().Mode(), data}
		}
	}
}

func untargz(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, r)
}

func unzip(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]entry{}
	for _, f := range r.File {
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = entry{f.Mode(), data}
	}
	return files
}

// unpacked is the archive of one system, and the binary in it.
func unpacked(t *testing.T, system string) (files map[string]entry, binary []byte) {
	t.Helper()
	goos, arch, _ := strings.Cut(system, "/")
	name := archive(goos, arch, "")
	if goos == "windows" {
		files = unzip(t, read(t, filepath.Join(dist, name+".zip")))
		return files, files[name+"/fsm-proxy.exe"].data
	}
	files = untargz(t, read(t, filepath.Join(dist, name+".tar.gz")))
	return files, files[name+"/fsm-proxy"].data
}

// shared are the files of the repository that archives and packages carry, by the names that archives have for them.
func shared(t *testing.T) []string {
	t.Helper()
	names := []string{"LICENSE", "README.md", "completions/fsm-proxy.bash", "completions/_fsm-proxy", "completions/fsm-proxy.fish"}
	for _, command := range []string{"", "-admin", "-anchor", "-approvals", "-approvals-allow", "-approvals-deny", "-approvals-ls", "-approvals-show", "-check", "-completion", "-demo", "-drain", "-explain", "-init", "-lock", "-man", "-render", "-report", "-run", "-runs", "-runs-accept", "-runs-annotate", "-runs-diff", "-runs-end", "-runs-export", "-runs-fork", "-runs-gc", "-runs-import", "-runs-ls", "-runs-release", "-runs-reset", "-runs-show", "-runs-signal", "-runs-start", "-runs-tail", "-schema", "-test", "-verify", "-version"} {
		names = append(names, "man/fsm-proxy"+command+".1")
	}
	policies, err := filepath.Glob("../../policies/*.yaml")
	if err != nil || len(policies) == 0 {
		t.Fatal("no policies", err)
	}
	for _, p := range policies {
		names = append(names, "policies/"+filepath.Base(p))
	}
	return names
}

// Each archive has one folder of its own name, and in it the binary for that system and what belongs to it.
func TestArchives(t *testing.T) {
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			files, binary := unpacked(t, system)
			goos, arch, _ := strings.Cut(system, "/")
			info, err := buildinfo.Read(bytes.NewReader(binary))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range info.Settings {
				if want := map[string]string{"GOOS": goos, "GOARCH": arch, "CGO_ENABLED": "0", "-trimpath": "true"}[s.Key]; want != "" && s.Value != want {
					t.Errorf("it was built with %s=%s", s.Key, s.Value)
				}
			}
			if !bytes.Contains(binary, []byte(tag)) {
				t.Errorf("the version %s is not in it", tag)
			}
			program := (target{os: goos}).program()
			var want []string
			for _, name := range append(shared(t), program) {
				want = append(want, archive(goos, arch, "")+"/"+name)
			}
			if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("it holds %v", got)
			}
			for name, f := range files {
				if want := modeOf(name); f.mode != want {
					t.Errorf("%s has mode %v, not %v", name, f.mode, want)
				}
			}
		})
	}
}

// modeOf is the mode that a file must have: the binary can be run by everybody.
func modeOf(name string) fs.FileMode {
	if base := filepath.Base(name); base == "fsm-proxy" || base == "fsm-proxy.exe" {
		return 0o755
	}
	return 0o644
}

// What the README and docs/install.md say of the sums: each file of the release has one, and it holds.
func TestChecksums(t *testing.T) {
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dist, "SHA256SUMS")))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Errorf("line %q", line)
		}
		sums[name] = sum
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(dist, e.Name())))); sums[e.Name()] != sum {
			t.Errorf("%s has the sum %s, not %q", e.Name(), sum, sums[e.Name()])
		}
	}
	if len(sums) != len(entries)-1 {
		t.Errorf("%d sums for %d files", len(sums), len(entries)-1)
	}
}

// The same commit gives the same bytes, whatever the clock, the place and the user's settings.
func TestSameBytesAgain(t *testing.T) {
	again := filepath.Join(t.TempDir(), "elsewhere")
	cmd := makeRelease(again, "CROSS="+runtime.GOOS+"/"+runtime.GOARCH+" windows/amd64")
	cmd.Env = environment("TZ=Pacific/Kiritimati", "LC_ALL=C", "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	entries, err := os.ReadDir(again)
	if err != nil {
		t.Fatal(err)
	}
	ofAll := []string{"SHA256SUMS", "fsm-proxy.rb", "fsm-proxy-9.8.7.tgz"} // they name all systems
	compared := 0
	for _, e := range entries {
		if slices.Contains(ofAll, e.Name()) {
			continue
		}
		compared++
		if !bytes.Equal(read(t, filepath.Join(dist, e.Name())), read(t, filepath.Join(again, e.Name()))) {
			t.Errorf("%s is another one when it is made again", e.Name())
		}
	}
	if compared < 8 {
		t.Errorf("only %d files were compared", compared)
	}
}

// An SBOM names the modules that its binary was built from, and no others.
func TestSBOM(t *testing.T) {
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			goos, arch, _ := strings.Cut(system, "/")
			var bom cyclonedx.BOM
			data := read(t, filepath.Join(dist, archive(goos, arch, ".cdx.json")))
			if err := cyclonedx.NewBOMDecoder(bytes.NewReader(data), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
				t.Fatal(err)
			}
			_, binary := unpacked(t, system)
			info, err := buildinfo.Read(bytes.NewReader(binary))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"std " + strings.TrimPrefix(info.GoVersion, "go")}
			for _, m := range info.Deps {
				want = append(want, m.Path+" "+m.Version)
			}
			var got []string
			for _, c := range *bom.Components {
				got = append(got, c.Name+" "+c.Version)
				if purl := "pkg:golang/" + strings.ToLower(c.Name) + "@"; !strings.HasPrefix(c.PackageURL, purl) {
					t.Errorf("%s has the package URL %s", c.Name, c.PackageURL)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("it names %v\nthe binary %v", got, want)
			}
			sum := sha256.Sum256(binary)
			program := bom.Metadata.Component
			if program.Version != tag || (*program.Hashes)[0].Value != hex.EncodeToString(sum[:]) {
				t.Errorf("it is of %+v", program)
			}
		})
	}
}

var formulaFile = regexp.MustCompile(`url "https://github\.com/fsm-proxy/fsm-proxy/releases/download/v9\.8\.7/([^"]+)"\s+sha256 "([0-9a-f]{64})"`)

// The formula installs the four archives of macOS and Linux by their sums.
func TestFormula(t *testing.T) {
	formula := string(read(t, filepath.Join(dist, "fsm-proxy.rb")))
	var names []string
	for _, m := range formulaFile.FindAllStringSubmatch(formula, -1) {
		names = append(names, m[1])
		if sum := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(dist, m[1])))); sum != m[2] {
			t.Errorf("%s has the sum %s", m[1], sum)
		}
	}
	want := []string{
		archive("darwin", "amd64", ".tar.gz"), archive("darwin", "arm64", ".tar.gz"),
		archive("linux", "amd64", ".tar.gz"), archive("linux", "arm64", ".tar.gz"),
	}
	if !slices.Equal(names, want) {
		t.Errorf("it installs %v:\n%s", names, formula)
	}
	for _, line := range []string{`version "9.8.7"`, `on_macos do`, `on_linux do`, `on_intel do`, `on_arm do`, `assert_match "v9.8.7"`} {
		if !strings.Contains(formula, line) {
			t.Errorf("no %s in:\n%s", line, formula)
		}
	}
}

func TestVersions(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for given, want := range map[string][3]string{
		"v1.2.3":                  {"1.2.3", "1.2.3", ""},
		"v1.2.3-rc.1":             {"1.2.3-rc.1", "1.2.3rc1", "rc1"},
		"v1.2.3-beta.12":          {"1.2.3-beta.12", "1.2.3b12", "beta12"},
		"v1.2.3-5-g0123456":       {"0.0.0-dev.g0123456789ab", "0.0.0.dev0+g0123456789ab", "alpha0"},
		"v1.2.3-dirty":            {"0.0.0-dev.g0123456789ab", "0.0.0.dev0+g0123456789ab", "alpha0"},
		"0123456":                 {"0.0.0-dev.g0123456789ab", "0.0.0.dev0+g0123456789ab", "alpha0"},
		"v1.2.3-rc.1-2-g01234567": {"0.0.0-dev.g0123456789ab", "0.0.0.dev0+g0123456789ab", "alpha0"},
	} {
		v := newVersion(given, commit)
		if got := [3]string{v.semver(), v.python(), v.alpine()}; got != want || v.tag != given {
			t.Errorf("%s: %q", given, got)
		}
	}
}
