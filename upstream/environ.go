package upstream

import (
	"runtime"
	"slices"
	"strings"
)

// ownPrefix begins the names of the proxy's own variables, which may hold its
// secrets.
const ownPrefix = "FSM_PROXY_"

// safe are the variables that a child of a listening proxy gets: what programs
// need to run at all, and no credentials.
var safe = []string{"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

var safeWindows = []string{
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LANG", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATH",
	"PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "SYSTEMDRIVE",
	"SYSTEMROOT", "TEMP", "TMP", "TZ", "USERNAME", "USERPROFILE", "WINDIR",
}

// Environ makes a child's environment of the proxy's own, env. A stdio wrapper's
// child gets all of it, so that wrapping changes nothing, less FSM_PROXY_…;
// under --listen it gets a small safe set and the variables named in pass. set
// are NAME=VALUE, added last.
func Environ(stdio bool, env, pass, set []string) []string {
	out := []string{}
	for _, entry := range env {
		name := nameOf(entry)
		if slices.ContainsFunc(pass, func(p string) bool { return sameName(p, name) }) ||
			stdio && !strings.HasPrefix(name, ownPrefix) || !stdio && isSafe(name) {
			out = append(out, entry)
		}
	}
	for _, entry := range set {
		name := nameOf(entry)
		out = slices.DeleteFunc(out, func(old string) bool { return sameName(nameOf(old), name) })
		out = append(out, entry)
	}
	return out
}

// nameOf is the name in NAME=VALUE. Windows has names that begin with "=".
func nameOf(entry string) string {
	if i := strings.IndexByte(entry[min(1, len(entry)):], '='); i >= 0 {
		return entry[:i+1]
	}
	return entry
}

func sameName(a, b string) bool {
	if runtime.GOOS == "windows" {
		return strings.EqualFold(a, b)
	}
	return a == b
}

func isSafe(name string) bool {
	if runtime.GOOS == "windows" {
		return slices.Contains(safeWindows, strings.ToUpper(name))
	}
	return strings.HasPrefix(name, "LC_") || slices.Contains(safe, name)
}
