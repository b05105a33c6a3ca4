package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/explain"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// shells are those that the completion command writes a script for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion(c *console) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the script that completes this command line in a shell",
		Long: "Print the script that completes commands, flags and their values in a shell.\n\n" +
			"  bash        source <(fsm-proxy completion bash)       # needs bash-completion\n" +
			"  zsh         fsm-proxy completion zsh > \"${fpath[1]}/_fsm-proxy\"\n" +
			"  fish        fsm-proxy completion fish > ~/.config/fish/completions/fsm-proxy.fish\n" +
			"  powershell  fsm-proxy completion powershell | Out-String | Invoke-Expression\n\n" +
			"The line for bash goes into ~/.bashrc. The deb, rpm and apk packages have all but the last in place.",
		Args:              arguments.AsUsed,
		ValidArgsFunction: firstOf(shells...),
		PersistentPreRun:  func(*cobra.Command, []string) {}, // a shell's start does not fail for its environment
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(c.out)
			}
			return exit.Usagef("no completion for %q; it is one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// flagWords are the values of flags that take one of a closed set, beside those of which
// the table of settings knows.
var flagWords = map[string][]string{
	"kind":            explain.Kinds,
	"from":            explain.Senders,
	"color":           {"auto", "always", "never"},
	"oidc-algorithms": auth.Algorithms,
	"run-key": {"legacy=session", "modern=handle", "legacy=process", "modern=process", "legacy=principal", "modern=principal",
		"legacy=path", "modern=path", "legacy=header:", "modern=header:"},
}

func wordsFor(flag string) []string {
	if words := config.Words(flag); words != nil {
		return words
	}
	return flagWords[flag]
}

// formatWords are the values of --format, by command.
var formatWords = map[string][]string{
	"check":   {"text", "json", "github", "sarif"},
	"render":  strings.Split(renderFormats, "|"),
	"explain": {"text", "json"},
}

// yamlFlags name YAML files, or folders with one.
var yamlFlags = []string{"policy", "config", "against", "lock"}

// complete says of every flag of every command what a shell completes as its value:
// words, YAML files, files, or nothing. Arguments are completed where a command has a
// function for that.
func complete(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" { // booleans
				return
			}
			if err := cmd.RegisterFlagCompletionFunc(f.Name, valuesOf(cmd, f)); err != nil {
				panic(err) // the flag is completed twice
			}
		})
		complete(cmd)
	}
}

func valuesOf(cmd *cobra.Command, f *pflag.Flag) cobra.CompletionFunc {
	value, _ := pflag.UnquoteUsage(f)
	switch {
	case f.Name == "format":
		return oneOf(formatWords[cmd.Name()]...)
	case wordsFor(f.Name) != nil:
		return oneOf(wordsFor(f.Name)...)
	case f.Name == "state":
		return states
	case slices.Contains(yamlFlags, f.Name):
		return yamlFiles
	case value == "FILE":
		return anyFile
	}
	return cobra.NoFileCompletions
}

// firstOf completes the one argument of a command, which is one of some words.
func firstOf(words ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return cobra.NoFileCompletions(cmd, args, toComplete)
		}
		return oneOf(words...)(cmd, args, toComplete)
	}
}

// oneOf completes words.
func oneOf(words ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

func anyFile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// policiesThenCommand completes at most so many policy files, and then the -- in front
// of the server's command. Behind that it completes files.
func policiesThenCommand(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch {
		case behindDash(os.Args):
			return anyFile(cmd, args, toComplete)
		case len(args) < most:
			return yamlFiles(cmd, args, toComplete)
		case cmd.Flags().Lookup("upstream") != nil:
			return []string{"--\tin front of the command of the server"}, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// behindDash reports whether the word to complete, the last one of the process's
// arguments, stands behind a --. A command's flags do not tell: cobra parses them
// with a -- of its own.
func behindDash(args []string) bool {
	return len(args) > 0 && slices.Contains(args[:len(args)-1], "--")
}

// adminPaths are what operators ask for, by method.
var adminPaths = map[string][]string{
	"GET":  {"/v1/policy", "/v1/sessions", "/v1/runs", "/v1/log-level", "/livez", "/readyz", "/startupz", "/metrics", "/debug/pprof/"},
	"PUT":  {"/v1/log-level"},
	"POST": {"/v1/runs", "/v1/runs/migrate", "/v1/runs/release"},
}

// adminRequests completes a method, or a path that GET takes, and then a path.
func adminRequests(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const words = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	switch len(args) {
	case 0:
		return append([]string{"GET", "PUT", "POST"}, adminPaths["GET"]...), words
	case 1:
		return adminPaths[strings.ToUpper(args[0])], words
	}
	return nil, words
}

// states completes the states of the policy that the first argument names.
func states(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	p := namedPolicy(args)
	if p == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range p.States() {
		names = append(names, cobra.CompletionWithDesc(s.Name, strings.TrimSpace(strictyaml.Printable(s.Description))))
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// namedPolicy is the policy that the first argument names, nil where there is none.
func namedPolicy(args []string) *policy.Policy {
	if len(args) == 0 {
		return nil
	}
	files, err := policyfile.Files(args[0])
	if err != nil || len(files) != 1 {
		return nil
	}
	p, _, _ := policyfile.Load(files[0])
	return p
}

// policyThenName completes a policy file, and a name that the policy binds.
func policyThenName(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return yamlFiles(cmd, args, toComplete)
	}
	p, names := namedPolicy(args), []string{}
	if p == nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for b := range p.Bindings() {
		if name := cobra.CompletionWithDesc(b.Pattern, b.Kind.String()); !b.Glob && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
