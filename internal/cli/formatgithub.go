package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// A workflow command of GitHub Actions is a line, "::error file=…,line=…::message",
// that becomes an annotation. Nothing else is printed: what stands in a policy must
// not be able to begin a command. GitHub shows ten annotations of a level for a
// step, so errors go first, and what text prints on one line is one annotation.

func (f *checkFlags) writeFilesGitHub(c *console, reports []checked) error {
	var all policy.Findings
	for _, r := range reports {
		all = append(all, r.annotations()...)
	}
	return writeCommands(c.out, all)
}

func (f *checkFlags) writePairsGitHub(c *console, pairs []comparison) error {
	var all policy.Findings
	for _, p := range pairs {
		for _, r := range p.reported() {
			all = append(all, r.annotations()...)
		}
		all = append(all, p.findings()...)
		if text := p.text(); text != "" {
			all = append(all, policy.Finding{Level: policy.LevelNote, File: p.new.file, Code: "reload", Message: text})
		}
	}
	return writeCommands(c.out, all)
}

// annotations are the findings about a file that GitHub is to show: condensed, without
// the number of implicit stays. A file that could not be read is one finding.
func (r checked) annotations() policy.Findings {
	if r.failure != nil {
		return policy.Findings{r.unreadable()}
	}
	return slices.DeleteFunc(r.condensed(), func(f policy.Finding) bool { return f.Code == "implicit-stay" })
}

func writeCommands(w io.Writer, all policy.Findings) error {
	slices.SortStableFunc(all, func(a, b policy.Finding) int { return int(a.Level) - int(b.Level) })
	for _, f := range all {
		if _, err := io.WriteString(w, workflowCommand(f)); err != nil {
			return err
		}
	}
	return nil
}

var githubCommands = [...]string{policy.LevelError: "error", policy.LevelWarning: "warning", policy.LevelNote: "notice"}

func workflowCommand(f policy.Finding) string {
	place := "file=" + githubProperty.Replace(fromRoot(f.File))
	if f.Line > 0 {
		place += fmt.Sprintf(",line=%d,col=%d", f.Line, f.Column)
	}
	return fmt.Sprintf("::%s %s,title=%s::%s\n", githubCommands[f.Level], place, githubProperty.Replace(f.Code), githubData.Replace(f.Message))
}

// What the runner reads otherwise in a message, and in a property.
var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// fromRoot is a file's path from the root of the repository, with slashes: from
// GITHUB_WORKSPACE in a workflow, else from here. What lies elsewhere keeps its
// absolute path.
func fromRoot(file string) string {
	root := os.Getenv("GITHUB_WORKSPACE")
	if root == "" {
		root = "."
	}
	root, path := absolute(root), absolute(file)
	if within, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(within) {
		return filepath.ToSlash(within)
	}
	return filepath.ToSlash(path)
}
