package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// written are the files of the repository that archives and packages carry: the licence, the README, the policies.
func (b *build) written() ([]file, error) {
	policies, err := filepath.Glob(filepath.Join(b.root, "policies", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, path := range append([]string{filepath.Join(b.root, "LICENSE"), filepath.Join(b.root, "README.md")}, policies...) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(b.root, path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: filepath.ToSlash(name), mode: 0o644, data: data})
	}
	return files, nil
}

// licence is the licence's file, which is written first.
func (b *build) licence() file { return b.shared[0] }

// generated are the manual pages and the completions, which the program itself prints.
func (b *build) generated() ([]file, error) {
	folder, err := os.MkdirTemp("", "fsm-proxy-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	program, err := b.compile(runtime.GOOS, runtime.GOARCH, folder)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, c := range []struct{ shell, name string }{{"bash", "fsm-proxy.bash"}, {"zsh", "_fsm-proxy"}, {"fish", "fsm-proxy.fish"}} {
		script, err := output(folder, program, "completion", c.shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "completions/" + c.name, mode: 0o644, data: []byte(script + "\n")})
	}
	pages := filepath.Join(folder, "man")
	if err := os.Mkdir(pages, 0o755); err != nil {
		return nil, err
	}
	epoch := "SOURCE_DATE_EPOCH=" + strconv.FormatInt(b.time.Unix(), 10)
	if _, err := output(folder, "env", epoch, program, "man", pages); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		page, err := os.ReadFile(filepath.Join(pages, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "man/" + e.Name(), mode: 0o644, data: page})
	}
	return files, nil
}
