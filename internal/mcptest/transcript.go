package mcptest

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
	"golang.org/x/tools/txtar"
)

// A Transcript is a txtar archive:
//
//	-- policy.yaml --     the policy
//	-- upstream --        optional: answers of a raw upstream
//	-- session --         what the client sends and gets, in order
//
// Lines of the session begin with what they are:
//
//	# a comment
//	> {"jsonrpc":…}      the client sends; after a request the runner reads up to its answer
//	= {"jsonrpc":…}      what reached the raw upstream of it
//	< {"jsonrpc":…}      what the client got
//
// `> tool NAME ARGUMENTS`, `> read URI`, `> prompt NAME ARGUMENTS` and `> list tools|resources|prompts` are short
// for requests with the next id. The session opens with initialize by itself. Only comments and `>` lines are
// read; all others are compared with what happened, and rewritten by -update.
//
// Lines of the upstream are `METHOD NAME => JSON`, where JSON has the member "result" or "error" of the answer;
// NAME may be left out. Several lines for the same call answer it in turn, and the last one for good.
type Transcript struct {
	// Upstream is the command to wrap when the archive has no upstream of its own.
	Upstream []string

	// Arguments are further flags of `fsm-proxy run`.
	Arguments []string

	// Settle makes what varies in a line steady. Default: as it is.
	Settle func(line string) string

	// Compact shows of a tools/call's answer only its text, of lists only the names, and of a notification
	// only its method: for transcripts about the order of things rather than about bytes.
	Compact bool
}

// ScriptedName is the raw upstream that transcripts with an upstream of their own are run on. A package that
// has such transcripts gives Main the pair ScriptedName: Scripted().
const ScriptedName = "scripted"

// Run plays the archive at the path with the proxy on stdio, and compares.
func (r Transcript) Run(t *testing.T, path string) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatalf("reading the transcript: %v", err)
	}
	played := r.play(t, archive)
	want := string(section(t, archive, "session"))
	if played == want {
		return
	}
	if golden.Updating() {
		replace(archive, "session", played)
		golden.Write(t, path, txtar.Format(archive))
		return
	}
	t.Errorf("%s: the session differs (-update rewrites it):\n%s", filepath.Base(path), difference(want, played))
}

// Glob runs every archive that matches the pattern as a subtest.
func (r Transcript) Glob(t *testing.T, pattern string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcript matches %s: %v", pattern, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { r.Run(t, path) })
	}
}

// player is one transcript being played.
type player struct {
	Transcript
	session  *Session
	upstream *Upstream // nil when the upstream is a real one
	seen     int       // of the upstream's messages
	out      strings.Builder
}

func (r Transcript) play(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	p := &player{Transcript: r}
	command := r.Upstream
	if len(command) == 0 {
		p.upstream = Stdio(t, ScriptedName)
		script := filepath.Join(t.TempDir(), "upstream")
		if err := os.WriteFile(script, section(t, archive, "upstream"), 0o600); err != nil {
			t.Fatal(err)
		}
		command = append(p.upstream.Command(), script)
	}
	policy := WritePolicy(t, string(section(t, archive, "policy.yaml")))
	argv := append([]string{Proxy(t), "run", "--policy", policy}, r.Arguments...)
	p.session, _ = Dial(t, append(append(argv, "--"), command...)...)
	p.session.Initialize()
	if p.upstream != nil {
		p.upstream.Await(t, 1, "notifications/initialized")
		p.seen = len(p.upstream.Received())
	}
	for line := range strings.Lines(string(section(t, archive, "session"))) {
		p.line(strings.TrimSuffix(line, "\n"))
	}
	return p.out.String()
}

// line plays one line of the archive.
func (p *player) line(text string) {
	sent, ok := strings.CutPrefix(text, "> ")
	if !ok {
		if strings.HasPrefix(text, "#") || text == "" {
			p.out.WriteString(text + "\n")
		}
		return
	}
	p.out.WriteString(text + "\n")
	message := ParseMessage([]byte(p.message(sent)))
	p.session.Send(message.String())
	if !message.IsRequest() {
		return
	}
	answer, before := p.session.Answer(message.ID)
	p.reached()
	for _, m := range append(before, answer) {
		p.print("< ", m)
	}
}

// message spells out the short forms of requests.
func (p *player) message(text string) string {
	word, rest, _ := strings.Cut(text, " ")
	name, arguments, _ := strings.Cut(rest, " ")
	switch word {
	case "tool":
		return p.request("tools/call", ToolParams(name, arguments))
	case "prompt":
		return p.request("prompts/get", ToolParams(name, arguments))
	case "read":
		return p.request("resources/read", `{"uri":`+string(encode(name))+`}`)
	case "list":
		return p.request(name+"/list", "")
	}
	return text
}

func (p *player) request(method, params string) string {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	p.session.nextID++
	return Request(p.session.nextID, method, params)
}

// reached prints what has reached the raw upstream since the last time. Lists are fetched whenever the proxy
// sees fit, and say nothing about the session.
func (p *player) reached() {
	if p.upstream == nil {
		return
	}
	all := p.upstream.Received()
	for _, m := range all[p.seen:] {
		if !strings.HasSuffix(m.Method, "/list") {
			p.print("= ", m)
		}
	}
	p.seen = len(all)
}

// mappedID is the id that the proxy gave a request: its own, and of no interest here.
var mappedID = regexp.MustCompile(`"id":("[^"]*"|\d+)`)

func (p *player) print(mark string, m Message) {
	text := m.String()
	if p.Compact {
		text = compact(m)
	} else if mark == "= " {
		text = mappedID.ReplaceAllString(text, `"id":…`)
	}
	if p.Settle != nil {
		text = p.Settle(text)
	}
	p.out.WriteString(mark + text + "\n")
}

// compact says what a message is about.
func compact(m Message) string {
	if m.Method != "" {
		return strings.TrimSpace(m.Method + " " + m.Name)
	}
	if m.Error != nil {
		return "error " + string(m.Error)
	}
	var read struct {
		Content []struct {
			Type, Text string
		}
		IsError                   bool
		Tools, Resources, Prompts []struct{ Name, URI string }
	}
	if json.Unmarshal(m.Result, &read) != nil {
		return string(m.Result)
	}
	var parts []string
	for _, item := range read.Content {
		parts = append(parts, cmp.Or(item.Text, "("+item.Type+")"))
	}
	for _, item := range append(append(read.Tools, read.Prompts...), read.Resources...) {
		parts = append(parts, cmp.Or(item.URI, item.Name))
	}
	text := strings.ReplaceAll(strings.Join(parts, " | "), "\n", "⏎")
	if read.IsError {
		return "isError " + text
	}
	return cmp.Or(text, string(m.Result))
}

func section(t *testing.T, archive *txtar.Archive, name string) []byte {
	t.Helper()
	for _, file := range archive.Files {
		if file.Name == name {
			return file.Data
		}
	}
	t.Fatalf("the transcript has no section %s", name)
	return nil
}

func replace(archive *txtar.Archive, name, text string) {
	for i, file := range archive.Files {
		if file.Name == name {
			archive.Files[i].Data = []byte(text)
		}
	}
}

// difference shows both texts from their first differing line on.
func difference(want, got string) string {
	wanted, gotten := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(wanted) && i < len(gotten) && wanted[i] == gotten[i] {
		i++
	}
	return "want:\n" + strings.Join(wanted[i:], "\n") + "\ngot:\n" + strings.Join(gotten[i:], "\n")
}

// Scripted returns the raw upstream that answers as the file named by its last argument says; see Transcript
// for the lines of that file.
func Scripted() Server {
	read := sync.OnceValue(func() *answers { return readAnswers(os.Args[len(os.Args)-1]) })
	plain := Script{}.Server()
	return Server{Handle: func(e *Exchange) {
		if answer, ok := read().next(e.Message); ok {
			e.Answer(`{"jsonrpc":"2.0","id":` + string(e.ID) + "," + answer + "}")
			return
		}
		plain.Handle(e)
	}}
}

// answers are the lines of a script. They are used by the read loop alone.
type answers struct {
	lines map[string][]string // by "METHOD" or "METHOD NAME": the members of the answer, in turn
}

func readAnswers(path string) *answers {
	a := &answers{lines: map[string][]string{}}
	text, err := os.ReadFile(path)
	if err != nil {
		return a
	}
	for line := range strings.Lines(string(text)) {
		key, answer, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if ok && json.Valid([]byte(answer)) {
			answer = strings.TrimSpace(answer)
			a.lines[key] = append(a.lines[key], answer[1:len(answer)-1])
		}
	}
	return a
}

// next returns the answer to a request: the one for its name, else the one for its method.
func (a *answers) next(m Message) (string, bool) {
	if !m.IsRequest() {
		return "", false
	}
	for _, key := range []string{m.Method + " " + m.Name, m.Method} {
		if lines := a.lines[key]; len(lines) > 0 {
			if len(lines) > 1 {
				a.lines[key] = lines[1:]
			}
			return lines[0], true
		}
	}
	return "", false
}
