package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checksums writes SHA256SUMS over all that was written before it, and prints it.
func (b *build) checksums() error {
	entries, err := os.ReadDir(b.out) // sorted
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		sum, err := b.sum(e.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
	}
	fmt.Print(sums.String())
	return b.write("SHA256SUMS", []byte(sums.String()))
}

// sum is the SHA-256 of a file of the release.
func (b *build) sum(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(b.out, name))
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}
