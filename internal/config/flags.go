package config

import (
	"cmp"
	"encoding"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/days"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
)

// TitleAnnotation is the annotation of a flag that says under which title a help has it.
const TitleAnnotation = "title"

// ServerFlags are the flags by which any command is told of the server.
var ServerFlags = serverFlags()

func serverFlags() (flags []string) {
	ofRun := []string{"upstream.share", "upstream.on_restart", "upstream.ping"}
	for _, k := range keys {
		if strings.HasPrefix(k.key, "upstream.") && !slices.Contains(ofRun, k.key) || k.key == "timeouts.connect" {
			flags = append(flags, k.flag)
		}
	}
	return flags
}

// Register adds flags for the settings of r, which get what is built in: for all of
// them, or only for some. A help has those of a group under a title; "": the group's.
func Register(flags *pflag.FlagSet, r *Run, title string, only ...string) {
	for _, k := range table(r) {
		if k.flag == "" || len(only) > 0 && !slices.Contains(only, k.flag) {
			continue
		}
		k.register(flags)
		top, _, _ := strings.Cut(k.key, ".")
		if its := groups[top].title; its != "" {
			flags.Lookup(k.flag).Annotations = map[string][]string{TitleAnnotation: {cmp.Or(title, its)}}
		}
	}
}

func (k setting) register(flags *pflag.FlagSet) {
	switch at := k.at.(type) {
	case *bool:
		flags.BoolVar(at, k.flag, false, k.usage)
	case *string:
		flags.StringVar(at, k.flag, k.def, k.usage)
	case *int:
		built, _ := strconv.Atoi(k.def)
		flags.IntVar(at, k.flag, built, k.usage)
	case *time.Duration:
		built, _ := days.Parse(k.def)
		*at = built
		if flag := flags.VarPF((*days.Value)(at), k.flag, "", k.usage); built == 0 {
			flag.DefValue = "0" // of which a help says nothing
		}
	case *service.Size:
		_ = at.Set(k.def)
		flags.Var(at, k.flag, k.usage)
	case *[]string:
		switch {
		case k.kind.commas:
			flags.StringArrayVar(at, k.flag, nil, k.usage)
		case k.def == "":
			flags.StringSliceVar(at, k.flag, nil, k.usage)
		default:
			flags.StringSliceVar(at, k.flag, strings.Split(k.def, ","), k.usage)
		}
	case textValue:
		flags.TextVar(at, k.flag, at, k.usage)
	}
}

// textValue is a closed set that reads and writes itself.
type textValue interface {
	encoding.TextUnmarshaler
	encoding.TextMarshaler
}

// Words are the values of a flag that takes one of a closed set, nil for any other.
func Words(flag string) []string {
	k, _ := find(flag)
	return k.kind.words
}

// Default is what is built in for a flag, as the flag takes it; "" where that is nothing, or
// depends on something else.
func Default(flag string) string {
	k, _ := find(flag)
	return k.def
}

// Needs are what a flag needs to mean anything: others, or [NeedsCommand] or [NeedsServer].
func Needs(flag string) []string {
	k, _ := find(flag)
	return k.needs
}

// Check refuses flags that have no meaning beside the others, and numbers, times and
// words that the settings do not take. command says that one follows behind the --.
func Check(flags *pflag.FlagSet, command bool) error {
	there := func(need string) bool {
		flag := flags.Lookup(need)
		return flag != nil && flag.Value.String() != ""
	}
	for _, k := range keys {
		flag := flags.Lookup(k.flag)
		if flag == nil || !flag.Changed {
			continue
		}
		text := flag.Value.String()
		for _, need := range k.needs {
			switch {
			case text == flag.DefValue:
			case need == NeedsCommand && !command && there("upstream"):
				return exit.Usagef("--%s belongs to a command after --, and --upstream is a URL; remove it", k.flag)
			case need == NeedsCommand && !command:
				return exit.Usagef("--%s belongs to a command after --, which is missing", k.flag)
			case need == NeedsServer && !command && !there("upstream"):
				return exit.Usagef("--%s belongs to a server, which is missing; give '--upstream URL', or '-- COMMAND ARG...' at the end", k.flag)
			case need != NeedsCommand && need != NeedsServer && !there(need):
				value, _ := pflag.UnquoteUsage(flags.Lookup(need))
				return exit.Usagef("--%s belongs to --%s, which is missing; give '--%s %s'", k.flag, need, need, value)
			}
		}
		if err := k.check(flag); err != nil {
			return err
		}
	}
	return nil
}

// check refuses numbers and times that would let nothing through, and words that
// there are not.
func (k setting) check(flag *pflag.Flag) error {
	text := flag.Value.String()
	switch k.at.(type) {
	case *int, *time.Duration:
		switch {
		case text[0] == '-' && k.zero:
			return exit.Usagef("--%s %s must be 0 or more", k.flag, text)
		case text[0] == '-', (text == "0" || text == "0s") && !k.zero:
			return exit.Usagef("--%s %s must be more than 0", k.flag, text)
		}
	case *string:
		if k.kind.words == nil {
			return nil
		}
		i := slices.IndexFunc(k.kind.words, func(word string) bool { return strings.EqualFold(word, strings.TrimSpace(text)) })
		if i < 0 {
			return exit.Usagef("--%s %q is none of %s", k.flag, text, strings.Join(k.kind.words, ", "))
		}
		return flag.Value.Set(k.kind.words[i])
	}
	return nil
}
