package cli

import (
	"context"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// bashCompletes is the part of the package bash-completion that the script wants,
// and prints what a TAB behind each of its arguments comes to.
const bashCompletes = `
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
__ltrim_colon_completions() { :; }
_filedir() { if [[ $1 == -d ]]; then echo folders; else echo "files $1"; fi; }
compopt() { :; }
source <(fsm-proxy completion bash)
for line; do
	COMP_LINE="fsm-proxy $line" COMP_TYPE=9 COMP_KEY=9 COMPREPLY=()
	COMP_POINT=${#COMP_LINE}
	read -ra COMP_WORDS <<<"$COMP_LINE"
	[[ $line == *' ' ]] && COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	echo "> $line"
	__start_fsm-proxy
	printf '%s\n' "${COMPREPLY[@]}"
done
`

// What a TAB offers in bash: commands, flags, their words, the states of a policy,
// and files by what they are.
func TestBashCompletion(t *testing.T) {
	folder := t.TempDir()
	if err := os.Symlink(mcptest.Proxy(t), filepath.Join(folder, "fsm-proxy")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "p.yaml")
	policy := "version: 1\ninitial: open\nstates:\n  open: {tools: {a: {on_any: shut}}}\n  shut: {tools: {b: {on_any: open}}}\n"
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := map[string][]string{
		"ren":                           {"render"},
		"completion z":                  {"zsh"},
		"schema ":                       {"policy", "test", "config"},
		"render ":                       {"files yaml|yml|"},
		"render p.yaml --state s":       {"shut"},
		"render p.yaml --state ":        {"open", "shut"},
		"render p.yaml --state open ":   {},
		"render none.yaml --state ":     {},
		"render p.yaml --format ":       {"text", "mermaid", "dot", "json"},
		"explain ":                      {"files yaml|yml|"},
		"explain p.yaml ":               {"a", "b"},
		"explain p.yaml --state ":       {"open", "shut"},
		"explain p.yaml --kind s":       {"signal"},
		"explain p.yaml a ":             {},
		"check p.yaml q":                {"files yaml|yml|"},
		"check --format ":               {"text", "json", "github", "sarif"},
		"run --policy ":                 {"files yaml|yml|"},
		"run --mode ":                   {"enforce", "shadow"},
		"run --log-l":                   {"--log-level"},
		"run --policy p.yaml ":          {"--"},
		"run --listen ":                 {},
		"run --tls-cert ":               {}, // bash's own: any file
		"run --policy p.yaml -- server": {}, // likewise
		"lock p.yaml ":                  {"--"},
		"admin POST ":                   {"/v1/runs", "/v1/runs/migrate", "/v1/runs/release"},
		"man ":                          {"folders"},
		"version ":                      {},
		"cross":                         {},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*mcptest.Patience) // each line has a process of its own
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", append([]string{"--norc", "-c", bashCompletes, "bash"}, slices.Collect(maps.Keys(wanted))...)...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := strings.Split(string(out), "> ")[1:]
	if len(said) != len(wanted) {
		t.Fatalf("%d lines are answered, of %d:\n%s", len(said), len(wanted), out)
	}
	for _, part := range said {
		line, offered, _ := strings.Cut(part, "\n")
		got := []string{}
		for word := range strings.Lines(offered) {
			word, _, _ = strings.Cut(strings.TrimSpace(word), "  ") // without its description
			if word != "" {
				got = append(got, word)
			}
		}
		if want := wanted[line]; !slices.Equal(got, want) {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}

// The help names the command, and each shell has its script.
func TestCompletionOfEachShell(t *testing.T) {
	contains(t, command(t, nil, "--help").stdout, "\n  completion  ")
	for _, shell := range shells {
		if r := command(t, nil, "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "__complete") {
			t.Errorf("%s: exit code %d\n%s%s", shell, r.code, r.stdout, r.stderr)
		}
	}
}

// The words that are completed are those that the flags take, no fewer.
func TestCompletedWordsAreTheFlags(t *testing.T) {
	for _, cmd := range newRoot(&console{out: io.Discard, err: io.Discard}).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { checkWords(t, cmd, f) })
	}
}

// checkWords compares the words of a flag with its help, and with what it says
// to a word that it does not take.
func checkWords(t *testing.T, cmd *cobra.Command, f *pflag.Flag) {
	t.Helper()
	words := wordsFor(f.Name)
	if f.Name == "format" {
		words = formatWords[cmd.Name()]
	}
	for _, word := range words {
		if name, _, _ := strings.Cut(word[strings.IndexByte(word, '=')+1:], ":"); f.Name != "oidc-algorithms" && !strings.Contains(f.Usage, name) {
			t.Errorf("%s --%s: the help does not name %q", cmd.Name(), f.Name, name)
		}
		if err := f.Value.Set(word); err != nil {
			t.Errorf("%s --%s: %v", cmd.Name(), f.Name, err)
		}
	}
	err := f.Value.Set("no-such-word")
	if err == nil {
		return
	}
	if _, list, is := strings.Cut(err.Error(), " is none of "); is {
		taken := slices.Sorted(strings.SplitSeq(list, ", "))
		if !slices.Equal(taken, slices.Sorted(slices.Values(words))) {
			t.Errorf("%s --%s takes %q; completed are %q", cmd.Name(), f.Name, taken, words)
		}
	}
}
