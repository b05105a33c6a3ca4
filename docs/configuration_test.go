package docs_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const configurationPage = "configuration.md"

// Each example of a configuration file is one that check finds nothing in.
func TestConfigurationExamples(t *testing.T) {
	for _, b := range fences(read(t, configurationPage)) {
		if b.info != "yaml" {
			continue
		}
		folder := t.TempDir()
		file := filepath.Join(folder, "fsm-proxy.yaml")
		policy := "version: 1\ninitial: a\nstates: {a: {tools: [x]}}\n"
		for path, text := range map[string]string{file: b.text, filepath.Join(folder, "policy.yaml"): policy} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(mcptest.Proxy(t), "check", "--config", file).CombinedOutput(); err != nil {
			t.Errorf("%s:%d: %v\n%s", configurationPage, b.line, err, out)
		}
	}
}

var keyRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| `--([a-z-]+)` \\| (.*) \\|$")

// The table has every key, with its flag and what is built in.
func TestConfigurationTable(t *testing.T) {
	keys := config.Keys()
	for _, m := range keyRow.FindAllStringSubmatch(read(t, configurationPage), -1) {
		if keys[m[2]] != m[1] {
			t.Errorf("%s is --%s there, and not in the table of keys", m[1], m[2])
		}
		if built := config.Default(m[2]); m[3] != cmp.Or(built, "–") {
			t.Errorf("%s: %s is built in there, and %q in the table of keys", m[1], m[3], built)
		}
		delete(keys, m[2])
	}
	for flag, key := range keys {
		t.Errorf("%s lacks the row | `%s` | `--%s` | %s |", configurationPage, key, flag, cmp.Or(config.Default(flag), "–"))
	}
	if !strings.Contains(read(t, configurationPage), "`"+config.CommandKey+"`") {
		t.Errorf("%s lacks %s", configurationPage, config.CommandKey)
	}
}

var (
	limitRow    = regexp.MustCompile("(?m)^\\| [^|]+ \\| ([^|]+) \\| `--([a-z-]+)` \\|")
	limitInText = regexp.MustCompile("`--([a-z-]+)` \\(([0-9,]+)\\)")
)

// What is said of a limit elsewhere is what is built in.
func TestLimitsAreTheTables(t *testing.T) {
	plain := strings.NewReplacer(",", "", " MiB", "MiB", " KiB", "KiB").Replace
	said := func(page, flag, text string) {
		built := config.Default(flag)
		words := strings.FieldsFunc(plain(text), func(r rune) bool { return strings.ContainsRune(" ;", r) })
		if built != "" && words[0] != built && words[0] != "likewise" && words[0] != "as" {
			t.Errorf("%s says %q of --%s, and %s is built in", page, text, flag, built)
		}
	}
	limits := limitRow.FindAllStringSubmatch(read(t, "protocol.md"), -1)
	if len(limits) < 30 {
		t.Errorf("protocol.md has a table of %d limits", len(limits))
	}
	for _, m := range limits {
		said("protocol.md", m[2], m[1])
	}
	for _, m := range limitInText.FindAllStringSubmatch(read(t, "../SECURITY.md"), -1) {
		said("SECURITY.md", m[1], m[2])
	}
}
