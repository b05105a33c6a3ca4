package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// Absolute is the path as it can be given anywhere; itself where that cannot be
// found out.
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Cause is the error without the operation and path that os wraps around it.
func Cause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// shellSafe are arguments that a shell takes as they stand.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ShellLine writes a command as a POSIX shell reads it.
func ShellLine(command []string) string {
	quoted := make([]string, len(command))
	for i, arg := range command {
		quoted[i] = arg
		if !shellSafe.MatchString(arg) {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
