package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// build is a release that is being made.
type build struct {
	root    string // of the repository
	out     string
	version version
	ldflags string
	time    time.Time // of the commit, for all files
	shared  []file    // what all archives and packages carry beside the binary
	targets []target
}

// target is one system, and the binary that is made for it.
type target struct {
	os, arch string
	binary   []byte
}

// file is one file of an archive or a package.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// program is what the binary is called on the system.
func (t target) program() string {
	if t.os == "windows" {
		return "fsm-proxy.exe"
	}
	return "fsm-proxy"
}

// newBuild takes what does not depend on a system, and removes an earlier release from the folder.
func newBuild(out, tag, ldflags string) (*build, error) {
	root, err := output("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	commit, err := output(root, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	hash, date, _ := strings.Cut(commit, " ")
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil {
		return nil, err
	}
	b := &build{root: root, out: out, version: newVersion(tag, hash), ldflags: ldflags, time: time.Unix(seconds, 0).UTC()}
	if b.shared, err = b.written(); err != nil {
		return nil, err
	}
	generated, err := b.generated()
	if err != nil {
		return nil, err
	}
	b.shared = append(b.shared, generated...)
	earlier, err := filepath.Glob(filepath.Join(out, "fsm?proxy*"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(earlier, filepath.Join(out, "SHA256SUMS")) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return b, os.MkdirAll(out, 0o755)
}

// add builds the binary for one system, like "linux/amd64".
func (b *build) add(system string) error {
	fmt.Println("building for", system)
	goos, arch, ok := strings.Cut(system, "/")
	if !ok {
		return fmt.Errorf("a system is written os/arch, like linux/amd64")
	}
	folder, err := os.MkdirTemp("", "fsm-proxy-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path, err := b.compile(goos, arch, folder)
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(path)
	b.targets = append(b.targets, target{os: goos, arch: arch, binary: binary})
	return err
}

// compile builds the binary for one system into a folder, and returns its path.
func (b *build) compile(goos, arch, folder string) (string, error) {
	path := filepath.Join(folder, "fsm-proxy")
	_, err := output(b.root, "env", "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch,
		"go", "build", "-trimpath", "-ldflags", b.ldflags, "-o", path, "./cmd/fsm-proxy")
	return path, err
}

// write writes one file of the release.
func (b *build) write(name string, data []byte) error {
	fmt.Println("writing", name)
	return os.WriteFile(filepath.Join(b.out, name), data, 0o644)
}

// output runs a command and returns what it prints.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}
