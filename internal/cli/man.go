package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
)

// newMan writes the manual pages of all commands, for packages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the manual pages of all commands into a folder",
		Long: "Write the manual pages of all commands into a folder, as fsm-proxy.1, fsm-proxy-run.1 and so on.\n" +
			"They are dated by SOURCE_DATE_EPOCH; without it they have no date.",
		Example: "  fsm-proxy man /usr/local/share/man/man1",
		Args:    arguments.AsUsed,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return err
			}
			for _, page := range manual(cmd.Root()) {
				path := filepath.Join(args[0], page.name()+".1")
				if err := os.WriteFile(path, page.roff(date), 0o644); err != nil {
					return fmt.Errorf("writing %s: %w; make the folder, or choose another one", host.Absolute(path), host.Cause(err))
				}
			}
			return nil
		},
	}
}

// manDate is the date of the pages by SOURCE_DATE_EPOCH, "" where it is not set.
func manDate(epoch string) (string, error) {
	if epoch == "" {
		return "", nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return "", exit.Usagef("SOURCE_DATE_EPOCH %q is no number of seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC().Format(time.DateOnly), nil
}

// manPage is the page of one command.
type manPage struct{ *cobra.Command }

// manual are the pages of a command and all below it.
func manual(root *cobra.Command) []manPage {
	pages := []manPage{{root}}
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			pages = append(pages, manual(cmd)...)
		}
	}
	return pages
}

// name is the command as one word: fsm-proxy-run.
func (p manPage) name() string { return strings.ReplaceAll(p.CommandPath(), " ", "-") }

// roff is the page as man reads it: in the macros of man(7).
func (p manPage) roff(date string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q %q %q %q %q\n.nh\n", strings.ToUpper(p.name()), "1", date, "fsm-proxy", "fsm-proxy")
	arguments := strings.TrimPrefix(p.UseLine(), p.CommandPath())
	if p.HasAvailableSubCommands() {
		arguments = " COMMAND [flags]"
	}
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n\\fB%s\\fP%s\n", literal(p.name()), literal(p.Short), literal(p.CommandPath()), literal(arguments))
	if p.Long != "" {
		b.WriteString(".SH DESCRIPTION\n" + paragraphs(p.Long))
	}
	p.options(&b)
	if p.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + paragraphs(p.Example))
	}
	b.WriteString(".SH SEE ALSO\n" + p.seeAlso() + "\n")
	return []byte(b.String())
}

// options writes the flags in their groups.
func (p manPage) options(b *strings.Builder) {
	p.InitDefaultHelpFlag()
	for _, g := range groups(p.LocalFlags()) {
		title := ".SH OPTIONS"
		if g.title != ungrouped {
			title = ".SS " + literal(g.title)
		}
		b.WriteString(title + "\n")
		g.flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				b.WriteString(manFlag(f))
			}
		})
	}
}

// manFlag is one flag: a term and what it means.
func manFlag(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	term := `\fB` + literal("--"+f.Name) + `\fP`
	if f.Shorthand != "" {
		term = `\fB` + literal("-"+f.Shorthand) + `\fP, ` + term
	}
	if value != "" {
		term += ` \fI` + literal(value) + `\fP`
	}
	if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
		usage += " (default " + f.DefValue + ")"
	}
	return ".TP\n" + term + literal("\n"+strings.Join(strings.Fields(usage), " ")) + "\n"
}

// seeAlso are the pages above and below.
func (p manPage) seeAlso() string {
	var names []string
	if p.HasParent() {
		names = append(names, manPage{p.Parent()}.name())
	}
	for _, page := range manual(p.Command)[1:] {
		names = append(names, page.name())
	}
	for i, name := range names {
		names[i] = `\fB` + literal(name) + `\fP(1)`
	}
	return strings.Join(names, ", ")
}

// paragraphs is a text of several paragraphs; those that are indented stand as they
// are.
func paragraphs(text string) string {
	var all []string
	for paragraph := range strings.SplitSeq(literal("\n" + text)[1:], "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			paragraph = ".EX\n" + paragraph + "\n.EE"
		}
		all = append(all, paragraph)
	}
	return strings.Join(all, "\n.PP\n") + "\n"
}

// literal escapes what roff would take for a request, or print as another character: a
// hyphen for a minus, curved quotes for straight ones.
var literal = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n.", "\n"+`\&.`).Replace
