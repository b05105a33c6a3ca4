package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := release(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release() error {
	out := flag.String("out", "", "the `FOLDER` to write into; an earlier release in it is removed")
	tag := flag.String("version", "", "what the binaries call themselves, as git describe prints it")
	ldflags := flag.String("ldflags", "", "what go build gives the linker")
	systems := flag.String("systems", "", "the systems, like \"linux/amd64 darwin/arm64\"")
	flag.Parse()
	folder, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	b, err := newBuild(folder, *tag, *ldflags)
	if err != nil {
		return err
	}
	for _, system := range strings.Fields(*systems) {
		if err := b.add(system); err != nil {
			return fmt.Errorf("building for %s: %w", system, err)
		}
	}
	for _, write := range []func() error{b.archives, b.sboms, b.linuxPackages, b.npmPackages, b.wheels, b.formula, b.checksums} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}
