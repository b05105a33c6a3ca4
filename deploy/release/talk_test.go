package main

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func absolute(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// talk gives a proxy its standard input, which ends when so many answers have come, and returns the answers in the order
// of their text.
func talk(t *testing.T, cmd *exec.Cmd, in []byte, answers int) string {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = stdin.Write(in) }() // a proxy that is gone is noticed below
	var lines []string
	for out := bufio.NewReader(stdout); ; {
		line, err := out.ReadString('\n')
		if line != "" {
			lines = append(lines, line)
		}
		if len(lines) == answers {
			stdin.Close()
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil || len(lines) != answers {
		t.Errorf("%d answers, %v; it said:\n%s", len(lines), err, said.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
