package cli

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// defaultOutput is where the advice of init without -o supposes the policy.
const defaultOutput = "policy.yaml"

// nextSteps is what init tells about the policy that it wrote: what it forbids,
// how to check it, and how to put it into a client's configuration.
func nextSteps(f *initFlags, inv inventory, d *draft) string {
	var b strings.Builder
	path := absolute(f.output)
	if f.output == "" {
		path = absolute(defaultOutput)
		b.WriteString("The draft, to be saved as " + path + ":\n")
	} else {
		b.WriteString("Wrote " + path + ":\n")
	}
	for _, line := range d.summary() {
		b.WriteString("  " + line + "\n")
	}
	self := ownPath()
	b.WriteString("\nCheck it against the server:\n\n  " +
		shellLine(append([]string{self, "check", path}, f.target.args()...)) + "\n")
	b.WriteString("\nPut it into your client's configuration, in place of the server:\n\n" +
		clientSnippet(inv.server, append([]string{self, "run", "--policy", path}, f.target.args()...)) + "\n")
	if len(f.headers) > 0 {
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

// args are the arguments that name the same server from any folder, less headers.
func (t *target) args() []string {
	if t.url == "" {
		return append(t.environmentArgs(), append([]string{"--"}, portable(t.command)...)...)
	}
	args := []string{"--upstream", t.url}
	if t.sse {
		args = append(args, "--upstream-sse")
	}
	if t.bearerFile != "" {
		args = append(args, "--upstream-bearer-file", absolute(t.bearerFile))
	}
	if t.oauth.clientID != "" {
		args = append(args, "--upstream-oauth-client-id", t.oauth.clientID, "--upstream-oauth-client-secret-file", absolute(t.oauth.secretFile))
	}
	if t.oauth.metadata != "" {
		args = append(args, "--upstream-oauth-metadata-url", t.oauth.metadata)
	}
	for _, scope := range t.oauth.scopes {
		args = append(args, "--upstream-oauth-scope", scope)
	}
	return args
}

func (t *target) environmentArgs() []string {
	var args []string
	for _, pair := range t.env {
		args = append(args, "--env", pair)
	}
	return args
}

// portable makes the program, and arguments that name existing files, absolute:
// clients start servers in folders of their own choice.
func portable(command []string) []string {
	out := slices.Clone(command)
	if path, err := exec.LookPath(out[0]); err == nil {
		out[0] = absolute(path)
	}
	for i, arg := range out[1:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if _, err := os.Stat(arg); err == nil {
			out[1+i] = absolute(arg)
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

// shellSafe are arguments that a shell takes as they stand.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellLine writes a command as a POSIX shell reads it.
func shellLine(command []string) string {
	quoted := make([]string, len(command))
	for i, arg := range command {
		quoted[i] = arg
		if !shellSafe.MatchString(arg) {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
