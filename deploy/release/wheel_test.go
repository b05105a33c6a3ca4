package main

import (
	"bytes"
	"crypto/sha256"
	"debug/macho"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// tool is a program of the environment that `make test-release` installs.
func tool(t *testing.T, name string) string {
	t.Helper()
	return absolute(t, filepath.Join("../../.deps/python/packaging/bin", name))
}

// uvEnvironment is a uv of its own, that fetches no Python.
func uvEnvironment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return []string{
		"HOME=" + home, "UV_CACHE_DIR=" + filepath.Join(home, "cache"), "UV_TOOL_DIR=" + filepath.Join(home, "tools"),
		"UV_PYTHON=" + tool(t, "python"), "UV_PYTHON_DOWNLOADS=never", "UV_NO_CONFIG=1", "PIP_CONFIG_FILE=/dev/null",
	}
}

// wheelHere is the wheel for the machine that the test runs on.
func wheelHere(t *testing.T) string {
	t.Helper()
	return filepath.Join(dist, "fsm_proxy-9.8.7-py3-none-"+wheelTags[runtime.GOOS+"/"+runtime.GOARCH]+".whl")
}

// uvx fetches the wheel for this machine from an index, or takes it from a file, and runs the binary in it.
func TestUvx(t *testing.T) {
	t.Parallel()
	folder, env := t.TempDir(), uvEnvironment(t)
	index := pythonIndex(t)
	out, err := command(t, folder, env, tool(t, "uvx"), "--default-index", index.URL+"/simple/", "fsm-proxy", "version").Output()
	if err != nil || string(out) != versionHere() {
		t.Errorf("it prints %q: %v", out, err)
	}
	for _, got := range index.fetchedFiles() {
		if got != filepath.Base(wheelHere(t)) {
			t.Errorf("it fetched %s", got)
		}
	}
	if out := run(t, folder, env, tool(t, "uvx"), "--offline", "--from", wheelHere(t), "fsm-proxy", "demo", "--once"); !strings.Contains(out, "Crossroads") {
		t.Errorf("the demo prints\n%s", out)
	}
}

// pip chooses the wheel by itself, and what it has installed runs and is uninstalled whole.
func TestPip(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	env := []string{"PIP_CONFIG_FILE=/dev/null", "PIP_FIND_LINKS="}
	run(t, folder, env, tool(t, "python"), "-m", "venv", "venv")
	python := filepath.Join(folder, "venv", "bin", "python")
	run(t, folder, env, python, "-m", "pip", "install", "--no-index", "--find-links", dist, "fsm-proxy")
	program := filepath.Join(folder, "venv", "bin", "fsm-proxy")
	if out := run(t, folder, env, program, "version"); out != versionHere() {
		t.Errorf("it prints %q", out)
	}
	if out := run(t, folder, env, python, "-m", "pip", "show", "--files", "fsm-proxy"); !strings.Contains(out, "Version: 9.8.7\n") || !strings.Contains(out, "bin/fsm-proxy\n") {
		t.Errorf("pip shows\n%s", out)
	}
	run(t, folder, env, python, "-m", "pip", "uninstall", "--yes", "fsm-proxy")
	if left, err := filepath.Glob(filepath.Join(folder, "venv", "*", "*fsm*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// uv finds a wheel for each system that there is a binary for, glibc or musl.
func TestWheelsForAllSystems(t *testing.T) {
	t.Parallel()
	for theirs, ours := range map[string]string{
		"x86_64-unknown-linux-gnu": "linux/amd64", "x86_64-unknown-linux-musl": "linux/amd64",
		"aarch64-unknown-linux-gnu": "linux/arm64", "aarch64-unknown-linux-musl": "linux/arm64",
		"x86_64-apple-darwin": "darwin/amd64", "aarch64-apple-darwin": "darwin/arm64",
		"x86_64-pc-windows-msvc": "windows/amd64", "aarch64-pc-windows-msvc": "windows/arm64",
	} {
		t.Run(theirs, func(t *testing.T) {
			folder := t.TempDir()
			run(t, folder, uvEnvironment(t), tool(t, "uv"), "pip", "install", "--offline", "--no-index", "--find-links", dist,
				"--python-platform", theirs, "--target", "here", "fsm-proxy")
			found, err := filepath.Glob(filepath.Join(folder, "here", "bin", "fsm-proxy*"))
			if err != nil || len(found) != 1 {
				t.Fatalf("installed %v %v", found, err)
			}
			if _, want := unpacked(t, ours); !bytes.Equal(read(t, found[0]), want) {
				t.Errorf("it is not the binary for %s", ours)
			}
		})
	}
}

// RECORD has the sum and the size of each file, and the tags in WHEEL are those of the name.
func TestWheelRecords(t *testing.T) {
	for _, wheel := range wheels(t) {
		t.Run(wheel, func(t *testing.T) {
			files := unzip(t, read(t, filepath.Join(dist, wheel)))
			want := []string{"fsm_proxy-9.8.7.dist-info/RECORD,,"}
			for name, f := range files {
				if strings.HasSuffix(name, "/RECORD") {
					continue
				}
				sum := sha256.Sum256(f.data)
				want = append(want, fmt.Sprintf("%s,sha256=%s,%d", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data)))
				if f.mode != modeOf(name) {
					t.Errorf("%s has mode %v", name, f.mode)
				}
			}
			got := strings.Split(strings.TrimSpace(string(files["fsm_proxy-9.8.7.dist-info/RECORD"].data)), "\n")
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("RECORD has\n%s", strings.Join(got, "\n"))
			}
			_, tags, _ := strings.Cut(strings.TrimSuffix(wheel, ".whl"), "-none-")
			for tag := range strings.SplitSeq(tags, ".") {
				if !strings.Contains(string(files["fsm_proxy-9.8.7.dist-info/WHEEL"].data), "\nTag: py3-none-"+tag+"\n") {
					t.Errorf("WHEEL has no %s", tag)
				}
			}
		})
	}
}

// The wheels for macOS ask for the macOS that the binaries in them ask for.
func TestWheelsOfMacOS(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		_, program := unpacked(t, "darwin/"+arch)
		file, err := macho.NewFile(bytes.NewReader(program))
		if err != nil {
			t.Fatal(err)
		}
		const buildVersion = 0x32 // LC_BUILD_VERSION: command, size, platform, oldest system
		for _, load := range file.Loads {
			raw := load.Raw()
			if binary.LittleEndian.Uint32(raw) != buildVersion {
				continue
			}
			oldest := binary.LittleEndian.Uint32(raw[12:])
			if want := fmt.Sprintf("macosx_%d_%d_", oldest>>16, oldest>>8&0xff); !strings.HasPrefix(wheelTags["darwin/"+arch], want) {
				t.Errorf("the binary asks for %s", want)
			}
		}
	}
}
