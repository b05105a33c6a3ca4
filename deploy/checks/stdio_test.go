package checks

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

func stdioPod(t *testing.T) (all []byte, pod core.PodTemplateSpec) {
	t.Helper()
	all = kustomize(t, "kustomize", "stdio")
	return all, the[*apps.Deployment](t, objects(t, all)).Spec.Template
}

// The pod of a server that speaks stdio is confined and probed as a sidecar is. It needs no preStop: fsm-proxy gets the
// kubelet's SIGTERM at once, and its grace outlasts the drain.
func TestStdioExample(t *testing.T) {
	stream, pod := stdioPod(t)
	all := objects(t, stream)
	c := pod.Spec.Containers[0]
	checkProbes(t, c)
	checkConfinement(t, c)
	checkVolumes(t, c, pod.Spec.Volumes)
	checkService(t, the[*core.Service](t, all), false)
	checkMaps(t, all)
	checkNoServiceLinks(t, pod.Spec)
	checkRestricted(t, pod)
	if pod.Labels["fsm-proxy.dev/sidecar"] != "true" {
		t.Error("the pod lacks the label that the NetworkPolicy selects")
	}
	drain, err := time.ParseDuration(flag(c, "drain"))
	if grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; err != nil || grace <= drain+restOfEnd {
		t.Errorf("drain %v, grace %v: %v", drain, grace, err)
	}
	if got, want := readFile(t, "kustomize", "stdio", "policy.yaml"), readFile(t, "..", "policies", "filesystem.yaml"); string(got) != string(want) {
		t.Error("kustomize/stdio/policy.yaml is not policies/filesystem.yaml; copy it")
	}
}

// The image of deploy/kustomize/stdio/Dockerfile runs as its pod has it: as 65532, in a root that it cannot write to, as
// process 1. A client writes a file through it once the policy lets it; SIGTERM ends it and the server.
func TestStdioImageRuns(t *testing.T) {
	stream, pod := stdioPod(t)
	c := pod.Spec.Containers[0]
	box := newBox(t, objects(t, stream), c)
	box.install(t)
	health := box.start(t, c)
	box.await(t, "http://"+health+c.StartupProbe.HTTPGet.Path)
	box.await(t, "http://"+health+c.ReadinessProbe.HTTPGet.Path)
	client := &agent{t: t, url: "http://" + box.serves + "/mcp"}
	client.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"agent","version":"1"}}`)
	client.call("notifications/initialized", `{}`)
	write := `{"name":"write_file","arguments":{"path":"/data/a.txt","content":"hello"}}`
	if said := client.call("tools/call", write); !strings.Contains(said, "guard_failed") {
		t.Errorf("write_file is not refused: %s\n%s", said, box.log)
	}
	if said := client.call("tools/call", `{"name":"get_file_info","arguments":{"path":"/data/a.txt"}}`); !strings.Contains(said, "isError\":true") {
		t.Errorf("get_file_info of no file: %s\n%s", said, box.log)
	}
	client.call("tools/call", write)
	if text, err := os.ReadFile(filepath.Join(box.root, "data", "a.txt")); err != nil || string(text) != "hello" {
		t.Errorf("what was written is %q: %v", text, err)
	}
	first, err := strconv.Atoi(box.first(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := box.exitCode(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, box.log)
	}
}

// An agent speaks to an address in a session.
type agent struct {
	t       *testing.T
	url     string
	session string
	last    int
}

// call sends a request, or a notification, and returns the answer.
func (a *agent) call(method, params string) string {
	a.t.Helper()
	a.last++
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.last, method, params)
	if strings.HasPrefix(method, "notifications/") {
		message = fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
	}
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url, strings.NewReader(message))
	if err != nil {
		a.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer secret", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	} {
		request.Header.Set(name, value)
	}
	if a.session != "" {
		request.Header.Set("Mcp-Session-Id", a.session)
		request.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		a.t.Fatalf("%s: %s: %v: %s", method, answer.Status, err, body)
	}
	if a.session == "" {
		a.session = answer.Header.Get("Mcp-Session-Id")
	}
	return string(body)
}

var (
	npmInstall = regexp.MustCompile(`^RUN npm install --ignore-scripts (@?[^@ ]+)@(\S+)$`)
	nodeFolder = filepath.Join("..", "internal", "mcptest", "node", "node_modules")
)

// install does what the Dockerfile says, instruction by instruction: the base image's Node with its libraries, the npm
// package with what it needs, and the program, which lies there already.
func (b *box) install(t *testing.T) {
	t.Helper()
	folder, user := "", ""
	for _, line := range instructionsOf(t, "kustomize", "stdio", "Dockerfile") {
		word, rest, _ := strings.Cut(line, " ")
		switch npm := npmInstall.FindStringSubmatch(line); {
		case word == "FROM" && strings.HasPrefix(rest, "node:22"):
			b.copyProgram(t, filepath.Join(root(t), "deploy", nodeFolder, "node", "bin", "node"), "/usr/local/bin/node")
			b.env = append(b.env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		case word == "WORKDIR":
			folder = rest
		case npm != nil:
			b.copyPackage(t, filepath.Join(b.root, folder, "node_modules"), npm[1], npm[2])
		case word == "COPY" && strings.HasSuffix(rest, " "+entrypoint+" "+entrypoint):
		case word == "USER":
			user = rest
		case line == `ENTRYPOINT ["`+entrypoint+`"]`:
		default:
			t.Fatalf("the Dockerfile has an instruction that this test does not know: %s", line)
		}
	}
	if user != "65532" {
		t.Errorf("the image's user is %q", user)
	}
}

var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// copyProgram copies a program and the libraries that it is linked with.
func (b *box) copyProgram(t *testing.T, from, to string) {
	t.Helper()
	b.copyFile(t, from, to)
	for _, m := range library.FindAllStringSubmatch(run(t, nil, "ldd", from), -1) {
		b.copyFile(t, m[1], m[1])
	}
}

func (b *box) copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	to = filepath.Join(b.root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}

// copyPackage copies an npm package, and all that it depends on. A version is asked for where it has to be that one.
func (b *box) copyPackage(t *testing.T, modules, name, version string) {
	t.Helper()
	from, to := filepath.Join(root(t), "deploy", nodeFolder, name), filepath.Join(modules, name)
	if _, err := os.Stat(to); err == nil {
		return
	}
	text, err := os.ReadFile(filepath.Join(from, "package.json"))
	if err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	var manifest struct {
		Version      string
		Dependencies map[string]string
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if version != "" && manifest.Version != version {
		t.Fatalf("%s is installed as %s, and the Dockerfile has %s", name, manifest.Version, version)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	for needed := range manifest.Dependencies {
		if _, err := os.Stat(filepath.Join(from, "node_modules", needed)); err != nil {
			b.copyPackage(t, modules, needed, "")
		}
	}
}
