package cli

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/draft"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// initFlags are the flags of init.
type initFlags struct {
	serverFlags
	output string
	force  bool
}

func newInit(c *console) *cobra.Command {
	f := &initFlags{}
	cmd := &cobra.Command{
		Use:   "init [flags] (--upstream URL | -- COMMAND ARG...)",
		Short: "Draft a policy from what a live server lists",
		Example: "  fsm-proxy init -o files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy init -o remote.yaml --upstream https://example.com/mcp",
		ValidArgsFunction: policiesThenCommand(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			front, err := f.take(c, cmd, args)
			if err == nil {
				err = f.need(front)
			}
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), c)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "the `FILE` to write (default: standard output)")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite the file of -o")
	f.register(cmd.Flags(), "The server")
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *initFlags) run(ctx context.Context, c *console) error {
	if err := f.free(); err != nil {
		return err
	}
	inv, err := f.takeInventory(ctx, c, newStatusLine(c.err))
	if err != nil {
		return err
	}
	if inv.Server == "" {
		inv.Server = "mcp-server"
	}
	d := draft.New(inv)
	text := d.Policy()
	if _, findings := report.Parse("the starter policy", []byte(text)); findings.Err() != nil {
		return fmt.Errorf("the server lists what a policy cannot name: %w", findings.Err())
	}
	if err := f.write(c.out, text); err != nil {
		return err
	}
	_, err = io.WriteString(c.err, nextSteps(f, inv.Server, d.Summary()))
	return err
}

// free reports a file that exists, or a folder that does not, before the server
// is started for nothing.
func (f *initFlags) free() error {
	if f.output == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(f.output)); err != nil {
		return fmt.Errorf("writing %s: %w; make the folder, or choose another -o", host.Absolute(f.output), host.Cause(err))
	}
	if f.force {
		return nil
	}
	if _, err := os.Lstat(f.output); err == nil {
		return fmt.Errorf("writing %s: it exists; choose another -o, or overwrite it with --force", host.Absolute(f.output))
	}
	return nil
}

func (f *initFlags) write(stdout io.Writer, text string) error {
	if f.output == "" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if f.force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(f.output, flags, 0o644)
	if err == nil {
		_, err = io.WriteString(file, text)
		err = errors.Join(err, file.Close())
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("writing %s: it exists; choose another -o, or overwrite it with --force", host.Absolute(f.output))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; choose another -o", host.Absolute(f.output), host.Cause(err))
	}
	return nil
}

// defaultOutput is where the advice of init without -o supposes the policy.
const defaultOutput = "policy.yaml"

// nextSteps is what init tells about the policy that it wrote: what it forbids,
// how to check it, and how to put it into a client's configuration.
func nextSteps(f *initFlags, server string, summary []string) string {
	var b strings.Builder
	path := host.Absolute(f.output)
	if f.output == "" {
		path = host.Absolute(defaultOutput)
		b.WriteString("The draft, to be saved as " + path + ":\n")
	} else {
		b.WriteString("Wrote " + path + ":\n")
	}
	for _, line := range summary {
		b.WriteString("  " + line + "\n")
	}
	self := ownPath()
	b.WriteString("\nCheck it against the server:\n\n  " +
		host.ShellLine(append([]string{self, "check", path}, serverArgs(&f.Server)...)) + "\n")
	b.WriteString("\nPut it into your client's configuration, in place of the server:\n\n" +
		clientSnippet(server, append([]string{self, "run", "--policy", path}, serverArgs(&f.Server)...)) + "\n")
	if len(f.Server.Headers) > 0 {
		b.WriteString("\nHeaders are not repeated here, since they may be secret: set FSM_PROXY_UPSTREAM_HEADER in both places.\n")
	}
	return b.String()
}

// ownPath is how this binary can be started from anywhere.
func ownPath() string {
	path, err := os.Executable()
	if err != nil {
		return "fsm-proxy"
	}
	return path
}

// serverArgs are the arguments that name the same server from any folder, less headers.
func serverArgs(t *service.Server) []string {
	if t.URL == "" {
		var args []string
		for _, pair := range t.Env {
			args = append(args, "--env", pair)
		}
		return slices.Concat(args, []string{"--"}, portable(t.Command))
	}
	args := []string{"--upstream", t.URL}
	if t.SSE {
		args = append(args, "--upstream-sse")
	}
	if t.BearerFile != "" {
		args = append(args, "--upstream-bearer-file", host.Absolute(t.BearerFile))
	}
	if t.OAuth.ClientID != "" {
		args = append(args, "--upstream-oauth-client-id", t.OAuth.ClientID, "--upstream-oauth-client-secret-file", host.Absolute(t.OAuth.SecretFile))
	}
	if t.OAuth.MetadataURL != "" {
		args = append(args, "--upstream-oauth-metadata-url", t.OAuth.MetadataURL)
	}
	for _, scope := range t.OAuth.Scopes {
		args = append(args, "--upstream-oauth-scope", scope)
	}
	return args
}

// portable makes the program, and arguments that name existing files, absolute:
// clients start servers in folders of their own choice.
func portable(command []string) []string {
	out := slices.Clone(command)
	if path, err := exec.LookPath(out[0]); err == nil {
		out[0] = host.Absolute(path)
	}
	for i, arg := range out[1:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if _, err := os.Stat(arg); err == nil {
			out[1+i] = host.Absolute(arg)
		}
	}
	return out
}

// notInClientNames is what some client does not allow in a server's name.
var notInClientNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// clientSnippet is an entry of the mcpServers object that most clients read.
func clientSnippet(name string, command []string) string {
	type server struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	config := struct {
		Servers map[string]server `json:"mcpServers"`
	}{map[string]server{notInClientNames.ReplaceAllString(name, "-"): {command[0], command[1:]}}}
	text, err := json.Marshal(config, jsontext.WithIndentPrefix("  "), jsontext.WithIndent("  "))
	if err != nil {
		return err.Error() // invalid UTF-8 in a path
	}
	return "  " + string(text)
}
