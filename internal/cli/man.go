package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		Args:    exactly(1, "FOLDER"),
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

// roff is the page as man reads it.
func (p manPage) roff(date string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%% %q %q %q %q %q\n", strings.ToUpper(p.name()), "1", date, "fsm-proxy", "fsm-proxy")
	arguments := strings.TrimPrefix(p.UseLine(), p.CommandPath())
	if p.HasAvailableSubCommands() {
		arguments = " COMMAND [flags]"
	}
	fmt.Fprintf(&b, "# NAME\n\n%s - %s\n\n# SYNOPSIS\n\n**%s**%s\n\n", p.name(), markdown(p.Short), p.CommandPath(), markdown(arguments))
	if p.Long != "" {
		b.WriteString("# DESCRIPTION\n\n" + manText(p.Long))
	}
	p.options(&b)
	if p.Example != "" {
		b.WriteString("# EXAMPLES\n\n```\n" + p.Example + "\n```\n\n")
	}
	b.WriteString("# SEE ALSO\n\n" + p.seeAlso() + "\n")
	return md2man.Render([]byte(b.String()))
}

// options writes the flags in their groups.
func (p manPage) options(b *strings.Builder) {
	p.InitDefaultHelpFlag()
	for _, g := range groups(p.LocalFlags()) {
		title := "# OPTIONS"
		if g.title != ungrouped {
			title = "## " + markdown(g.title)
		}
		b.WriteString(title + "\n\n")
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
	term := "**--" + f.Name + "**"
	if f.Shorthand != "" {
		term = "**-" + f.Shorthand + "**, " + term
	}
	if value != "" {
		term += " *" + markdown(value) + "*"
	}
	if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
		usage += " (default " + f.DefValue + ")"
	}
	return term + "\n:   " + markdown(strings.Join(strings.Fields(usage), " ")) + "\n\n"
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
		names[i] = "**" + name + "**(1)"
	}
	return strings.Join(names, ", ")
}

// manText is a text of several paragraphs; those that are indented stand as they
// are.
func manText(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			b.WriteString("```\n" + paragraph + "\n```\n\n")
			continue
		}
		b.WriteString(markdown(paragraph) + "\n\n")
	}
	return b.String()
}

// markdown escapes what Markdown would read as more than text.
var markdown = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`, "|", `\|`, "~", `\~`).Replace
