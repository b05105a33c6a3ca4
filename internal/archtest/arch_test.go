package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fsm-proxy/fsm-proxy"

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath   string
	Name         string
	Doc          string
	Dir          string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
	DepOnly      bool
}

// folder is the package's path within the module; "." at its root.
func (p pkg) folder() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// list asks the go command about packages.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Doc,Dir,Standard,Imports,TestImports,XTestImports,GoFiles,DepOnly"}, args...)...)
	command.Dir = root(t)
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("listing packages: %v\n%s", err, complaints.String())
	}
	return decode(t, out)
}

func decode(t *testing.T, out []byte) []pkg {
	t.Helper()
	var packages []pkg
	stream := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := stream.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("reading go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// A rule says what one package may import, beside the standard library, and why. An entry ending in "/..."
// stands for all beneath it.
type rule struct {
	pkg   string
	allow []string
	why   string
}

// rules are section 7 of the design; the libraries that a package needs for its own work are named with it.
var rules = []rule{
	{
		pkg:   "policy",
		allow: []string{module + "/policy/guard", module + "/policy/limit", module + "/policy/register", module + "/policy/syntax", module + "/internal/strictyaml", "github.com/looplab/fsm"},
		why:   "the policy is pure: it decides alike in a test, a check and a proxy, without I/O, clock or logger",
	},
	{
		pkg: "policy/guard",
		allow: []string{
			module + "/internal/asker",     // who asks
			module + "/internal/lookalike", // names that a server may take for those that a guard reads
			"cel.dev/cel-go/...",           // the language of expressions
		},
		why: "an expression is pure: a call in, a value or an error out, within a bounded time",
	},
	{
		pkg: "internal/asker",
		why: "what is known of who asks is values, for whoever finds it out and whoever decides by it",
	},
	{
		pkg: "internal/redact",
		why: "what is taken out is bytes in, bytes out, for whoever writes them down",
	},
	{
		pkg: "internal/lookalike",
		why: "which names are taken for another is one rule for whoever reads names",
	},
	{
		pkg:   "policy/syntax",
		allow: []string{module + "/internal/strictyaml", "go.yaml.in/yaml/v4"},
		why:   "what a file says is read before anything is known of what it means",
	},
	{
		pkg:   "policy/report",
		allow: []string{module + "/policy", module + "/policy/guard", module + "/policy/limit", module + "/policy/register", module + "/internal/strictyaml"},
		why:   "what is said of a policy is read from the table that decides, and decides nothing",
	},
	{
		pkg:   "internal/admin",
		allow: []string{module + "/internal/httpserver", module + "/internal/journal", module + "/internal/visible"},
		why:   "it answers operators with what it is given, journals too; who may ask is looked at as it is for clients",
	},
	{
		pkg: "internal/auth",
		allow: []string{
			module + "/internal/wire", module + "/internal/asker", module + "/internal/streamhttp", module + "/internal/strictyaml", "go.yaml.in/yaml/v4",
			"github.com/coreos/go-oidc/v3/oidc", "github.com/go-jose/go-jose/v4", // what access tokens are verified by
			"github.com/hashicorp/go-hclog",
		},
		why: "who is asking is found out before anything is asked of a run: it knows requests, and no policy",
	},
	{
		pkg: "internal/journal",
		why: "what is kept of runs is bytes and points: it knows no policy, no run and no database",
	},
	{
		pkg:   "internal/journal/stores",
		allow: []string{module + "/internal/journal", module + "/internal/journal/sqlite", module + "/internal/journal/postgres"},
		why:   "which store a URL names is known in one place, and nothing else of them",
	},
	{
		pkg:   "internal/journal/memory",
		allow: []string{module + "/internal/journal"},
		why:   "a store keeps what it is given",
	},
	{
		pkg: "internal/journal/sqlite",
		allow: []string{
			module + "/internal/journal",
			"modernc.org/sqlite",     // SQLite without C
			"github.com/gofrs/flock", // one process a file
			"golang.org/x/sys/...",   // what a folder is on
		},
		why: "a store keeps what it is given",
	},
	{
		pkg: "internal/journal/postgres",
		allow: []string{
			module + "/internal/journal",
			"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool", // the protocol, its errors, the pool
			"golang.org/x/sys/...", // for how long a connection may be unanswered
		},
		why: "a store keeps what it is given",
	},
	{
		pkg:   "internal/journal/journaltest",
		allow: []string{module + "/internal/journal", module + "/internal/journal/memory", "pgregory.net/rapid"},
		why:   "what is true of every store knows none but the plainest",
	},
	{
		pkg:   "internal/bridge",
		allow: []string{module + "/internal/wire", module + "/internal/words", module + "/internal/deadline"},
		why:   "how eras differ is bytes: it knows no policy and no run",
	},
	{
		pkg: "internal/deadline",
		why: "it tells time, and nothing of what it is for",
	},
	{
		pkg: "internal/days",
		why: "it reads durations, of flags and files alike",
	},
	{
		pkg: "internal/config",
		allow: []string{
			module + "/internal/days",
			module + "/internal/strictyaml", "go.yaml.in/yaml/v4", "github.com/spf13/pflag", module + "/internal/exit",
			module + "/internal/service",                                                      // whose fields the settings are
			module + "/internal/auth", module + "/internal/handle", module + "/internal/wire", // what is built in
		},
		why: "a setting is a row of one table, from which flags and the file come; cli knows commands, and what they print",
	},
	{
		pkg: "internal/explain",
		allow: []string{
			module + "/policy", module + "/policy/guard", module + "/policy/limit", module + "/policy/register", module + "/proxy/run",
			module + "/internal/asker", module + "/internal/play", module + "/internal/strictyaml",
		},
		why: "a call is explained by the run that decides for the proxy, without one: no client, no server, no file",
	},
	{
		pkg:   "internal/handle",
		allow: []string{module + "/internal/wire"},
		why:   "how a call carries its run's handle is bytes; the proxy knows which run it is",
	},
	{
		pkg:   "internal/httpserver",
		allow: []string{"github.com/hashicorp/go-hclog", "golang.org/x/sys/unix"},
		why:   "a listener's connections and deadlines are HTTP's: it knows nothing of MCP",
	},
	{
		pkg: "internal/peers",
		allow: []string{
			module + "/internal/asker", module + "/internal/http1", module + "/internal/httpserver", module + "/internal/journal",
			"github.com/hashicorp/go-hclog",
			"golang.org/x/sys/unix", // for how long a connection may be unanswered
		},
		why: "what is passed on is HTTP, whole: who passes it on knows no message, no run and no database",
	},
	{
		pkg: "internal/http1",
		why: "a client of HTTP/1.1 knows nothing of who asks through it: the standard library is all it needs",
	},
	{
		pkg:   "internal/streamhttp",
		allow: []string{module + "/internal/wire", module + "/internal/asker", module + "/internal/httpserver", "github.com/hashicorp/go-hclog"},
		why:   "the server's side of Streamable HTTP hands messages to sessions, and knows neither what they do nor the client's side",
	},
	{
		pkg:   "internal/resume",
		allow: []string{module + "/internal/wire", module + "/internal/asker", "github.com/hashicorp/go-hclog"},
		why:   "what a client has said is messages, said again: it knows no run, no store and no HTTP",
	},
	{
		pkg:   "internal/streamhttp/client",
		allow: []string{module + "/internal/wire", module + "/internal/deadline", module + "/internal/http1", "github.com/hashicorp/go-hclog"},
		why:   "the client's side of Streamable HTTP posts messages over a transport, and knows no server's side",
	},
	{
		pkg:   "internal/lock",
		allow: []string{module + "/policy", module + "/internal/wire", module + "/internal/strictyaml", "go.yaml.in/yaml/v4"},
		why:   "locked definitions are content, compared in a check and in a proxy alike; internal/policyfile reads and writes the file",
	},
	{
		pkg: "internal/play",
		allow: []string{
			module + "/policy", module + "/policy/guard", module + "/proxy/run", module + "/proxy/approval",
			module + "/internal/asker", module + "/internal/strictyaml", module + "/internal/wire", "go.yaml.in/yaml/v4",
		},
		why: "tests of policies are played on the run that decides for the proxy, without one: no client, no server, no clock",
	},
	{
		pkg: "internal/play/suite",
		allow: []string{
			module + "/internal/play", module + "/policy", module + "/internal/policyfile", module + "/internal/strictyaml", module + "/internal/exit",
		},
		why: "files of tests are read and reported here, and played by what knows no files",
	},
	{
		pkg:   "internal/process",
		allow: []string{module + "/internal/stdio", "github.com/hashicorp/go-hclog"},
		why:   "a child process is lines, an environment and an end: it knows nothing of MCP",
	},
	{
		pkg:   "internal/strictyaml",
		allow: []string{"go.yaml.in/yaml/v4"},
		why:   "the strict reader of policies and configurations is as pure as the policy that is read with it",
	},
	{
		pkg: "proxy",
		allow: []string{
			module + "/policy", module + "/proxy/run", module + "/proxy/approval", module + "/proxy/catalogue", module + "/proxy/drain", module + "/proxy/link", module + "/proxy/asks", module + "/proxy/flight", module + "/proxy/observe", module + "/proxy/operator", module + "/proxy/outcome", module + "/proxy/refusal", module + "/proxy/runs", module + "/proxy/settings", module + "/proxy/tasks", module + "/proxy/subscriptions", module + "/proxy/surface", module + "/internal/wire", module + "/internal/words",
			module + "/internal/bridge",     // makes clients and upstreams of all eras alike
			module + "/internal/deadline",   // of calls, and instants of the monotonic clock
			module + "/internal/handle",     // how a call carries its run's handle
			module + "/internal/lock",       // the definitions that tools are held to
			"github.com/hashicorp/go-hclog", // a line per transition and refusal
		},
		why: "the seven steps speak to upstreams and notifier through interfaces of their own",
	},
	{
		pkg: "proxy/catalogue",
		allow: []string{
			module + "/policy", module + "/policy/report", module + "/proxy/run", module + "/internal/wire", module + "/internal/handle", module + "/internal/lock",
			"github.com/santhosh-tekuri/jsonschema/v6",                // validate: true
			"github.com/yosida95/uritemplate/v3",                      // a bound URI that only a template serves
			"golang.org/x/text/language", "golang.org/x/text/message", // what jsonschema prints its findings with
		},
		why: "what is shown is lists in, bytes out: it knows no session, no connection and no log",
	},
	{
		pkg:   "proxy/link",
		allow: []string{module + "/internal/bridge", module + "/internal/wire", "github.com/hashicorp/go-hclog"},
		why:   "a connection that comes back knows nothing of who uses it",
	},
	{
		pkg: "proxy/operator",
		allow: []string{
			module + "/policy", module + "/proxy/approval", module + "/proxy/run", module + "/proxy/runs", module + "/proxy/observe", module + "/proxy/surface", module + "/internal/wire",
			"github.com/hashicorp/go-hclog", // a line per signal and refusal
		},
		why: "an operator asks a run, and no client: it knows no session and no connection",
	},
	{
		pkg: "proxy/durable",
		allow: []string{
			module + "/policy", module + "/policy/limit", module + "/proxy/run", module + "/internal/journal", module + "/internal/wire",
			"github.com/hashicorp/go-hclog", // that the store cannot be written
		},
		why: "how a run is kept is entries in, records out: it knows no session, no call and no database",
	},
	{
		pkg:   "proxy/outcome",
		allow: []string{module + "/policy", module + "/internal/bridge", module + "/internal/wire"},
		why:   "what an answer means to a run is told from the answer alone",
	},
	{
		pkg: "proxy/refusal",
		allow: []string{
			module + "/policy", module + "/proxy/run", module + "/proxy/surface", module + "/internal/bridge", module + "/internal/handle", module + "/internal/lock",
			module + "/internal/wire", module + "/internal/words",
		},
		why: "a refusal is values in, bytes out: it knows no call, no lock and no log",
	},
	{
		pkg:   "proxy/subscriptions",
		allow: []string{module + "/internal/bridge", module + "/internal/deadline", module + "/internal/wire", module + "/proxy/link"},
		why:   "what the upstream is to tell hangs on what sessions want, and on nothing else of them",
	},
	{
		pkg: "proxy/surface",
		allow: []string{
			module + "/policy", module + "/policy/guard", module + "/proxy/run", module + "/proxy/catalogue", module + "/proxy/observe", module + "/internal/bridge", module + "/internal/handle", module + "/internal/lock",
			module + "/internal/wire", module + "/internal/words",
			"github.com/hashicorp/go-hclog", // clients that do not list again
		},
		why: "what a client is shown hangs on its introduction, the lists and where its run stands: it knows no session and no call",
	},
	{
		pkg:   "proxy/tasks",
		allow: []string{module + "/policy", module + "/proxy/run", module + "/internal/bridge", module + "/internal/wire"},
		why:   "what becomes of a task is found out alike for whatever call began it",
	},
	{
		pkg:   "proxy/run",
		allow: []string{module + "/policy", module + "/policy/guard", module + "/policy/limit", module + "/policy/register", module + "/proxy/approval", module + "/internal/redact"},
		why:   "a run is pure: its decisions and its moves are told in tests, without a proxy, a client or an upstream",
	},
	{
		pkg:   "proxy/approval",
		allow: []string{module + "/policy", module + "/internal/visible"},
		why:   "what is asked and answered is told in tests, without a run, an operator or a clock",
	},
	{
		pkg: "policy/limit",
		why: "what is counted is keys and times: it knows no policy, no run and no clock",
	},
	{
		pkg:   "policy/register",
		allow: []string{module + "/policy/guard"},
		why:   "what a run remembers is values and the room for them: it knows no call and no edge",
	},
	{
		pkg: "upstream",
		allow: []string{
			module + "/internal/wire", module + "/internal/stdio", module + "/internal/process", module + "/internal/secret",
			module + "/internal/http1", module + "/internal/streamhttp/client", module + "/internal/deadline",
			"github.com/mark3labs/mcp-go/client/transport",
			"github.com/hashicorp/go-hclog",
		},
		why: "a connection knows messages and framings, and mcp-go for OAuth; it knows no policy",
	},
	{
		pkg: "notify",
		why: "dirty bits know nothing of what they stand for",
	},
	{
		pkg:   "internal/wire",
		allow: []string{module + "/internal/asker", module + "/internal/lookalike"},
		why:   "messages are read strictly, once, by the standard library's decoder and nothing else",
	},
}

// forbidden are imports that no package outside the exempt ones may have.
var forbidden = []struct {
	imports string
	except  []string
	why     string
}{
	{
		imports: "github.com/mark3labs/mcp-go/server",
		except:  []string{"internal/crossroads", "internal/bench", "internal/mcptest", "internal/demo"},
		why:     "mcp-go's server loses bytes and notifications; it serves only what demo, bench and tests wrap",
	},
	{
		imports: "github.com/modelcontextprotocol/go-sdk/mcp",
		except:  []string{"internal/bench", "internal/mcptest"},
		why:     "the official SDK is the tests' independent client, and no part of the proxy",
	},
	{
		imports: "github.com/looplab/fsm",
		except:  []string{"policy"},
		why:     "the machines execute what policy/automaton.go gives them, and nothing else steps",
	},
	{
		imports: "go.opentelemetry.io/otel/trace",
		except:  []string{"internal/telemetry"},
		why:     "who is followed knows the small interfaces of proxy, and no SDK",
	},
	{
		imports: "github.com/prometheus/client_golang/prometheus",
		except:  []string{"internal/telemetry"},
		why:     "who counts implements the small interfaces of who is counted",
	},
	{
		imports: module + "/internal/mcptest",
		except:  []string{"internal/mcptest", "internal/journal/journaltest"},
		why:     "test helpers stay in tests",
	},
	{
		imports: module + "/internal/mcptest/golden",
		except:  []string{"internal/mcptest", "internal/journal/journaltest"},
		why:     "test helpers stay in tests",
	},
	{
		imports: "github.com/spf13/cobra",
		except:  []string{"internal/cli"},
		why:     "commands are the command line's",
	},
	{
		imports: "github.com/spf13/pflag",
		except:  []string{"internal/cli", "internal/config"},
		why:     "a service takes a configuration, and knows no flags",
	},
	{
		imports: module + "/internal/cli",
		except:  []string{"cmd/fsm-proxy", "internal/archtest"},
		why:     "the command line knows all, and nobody knows it but main",
	},
	{
		imports: "testing",
		except:  []string{"internal/mcptest", "internal/journal/journaltest"},
		why:     "the binary carries no test framework",
	},
}

func TestImportRules(t *testing.T) {
	packages := own(t)
	standard := standardLibrary(t)
	for _, r := range rules {
		i := slices.IndexFunc(packages, func(p pkg) bool { return p.folder() == r.pkg })
		if i < 0 {
			t.Errorf("package %s is not there, and the rules speak of it", r.pkg)
			continue
		}
		for _, imported := range packages[i].Imports {
			if !standard[imported] && !matches(r.allow, imported) {
				t.Errorf("%s imports %s: %s", r.pkg, imported, r.why)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range own(t) {
		for _, f := range forbidden {
			exempt := slices.ContainsFunc(f.except, func(folder string) bool { return within(p.folder(), folder) })
			if !exempt && slices.Contains(p.Imports, f.imports) {
				t.Errorf("%s imports %s: %s", p.folder(), f.imports, f.why)
			}
		}
	}
}

// policy, upstream and notify never know each other, in tests neither.
func TestSeparateRooms(t *testing.T) {
	rooms := []string{"policy", "upstream", "notify"}
	for _, p := range own(t) {
		if !slices.Contains(rooms, p.folder()) {
			continue
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			other := strings.TrimPrefix(imported, module+"/")
			if other != p.folder() && slices.Contains(rooms, other) {
				t.Errorf("%s imports %s: policy, upstream and notify never import each other", p.folder(), other)
			}
		}
	}
}

// The pure core starts no goroutine, reads no clock and does no I/O; what it could do it with is not imported.
func TestPolicyIsPure(t *testing.T) {
	impure := []string{"os", "net", "net/http", "time", "log", "log/slog", "io/ioutil", "os/exec", "math/rand", "math/rand/v2"}
	for _, p := range own(t) {
		if !slices.Contains([]string{"policy", "policy/syntax", "policy/report", "internal/strictyaml", "proxy/catalogue"}, p.folder()) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(impure, imported) {
				t.Errorf("%s imports %s: the core does no I/O and knows no clock and no chance", p.folder(), imported)
			}
		}
	}
}

// A run is told the time: it reads no clock, and holds no lock.
func TestRunIsPure(t *testing.T) {
	clocks := []string{"time.Now(", "time.Since(", "time.Until(", "time.After(", "time.AfterFunc(", "time.New", "time.Tick("}
	for _, p := range own(t) {
		if p.folder() != "proxy/run" {
			continue
		}
		for _, imported := range []string{"os", "net", "log", "log/slog", "context", "sync", "sync/atomic", "math/rand", "math/rand/v2"} {
			if slices.Contains(p.Imports, imported) {
				t.Errorf("%s imports %s: a run does no I/O, and is guarded by who has it", p.folder(), imported)
			}
		}
		for _, file := range p.GoFiles {
			text := content(t, p.folder()+"/"+file)
			for _, clock := range clocks {
				if bytes.Contains(text, []byte(clock)) {
					t.Errorf("%s/%s calls %s: time is an argument", p.folder(), file, clock)
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range own(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.folder())
		}
	}
}

func TestNoPackageIsCalledUtil(t *testing.T) {
	vague := []string{"util", "utils", "common", "helpers", "misc", "shared"}
	for _, p := range own(t) {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, path.Base(p.ImportPath)) {
			t.Errorf("%s: a package is named after what it is for", p.folder())
		}
	}
}

// The house has the rooms of the design and no others at its top.
func TestTopLevelFolders(t *testing.T) {
	rooms := []string{"policy", "upstream", "proxy", "notify", "policies", "cmd", "internal", "docs", "deploy"}
	for _, p := range own(t) {
		top, _, _ := strings.Cut(p.folder(), "/")
		if !slices.Contains(rooms, top) {
			t.Errorf("%s: the top-level folders are %v", p.folder(), rooms)
		}
	}
}

func own(t *testing.T) []pkg {
	t.Helper()
	return list(t, "-tags", "long", "./...")
}

func standardLibrary(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, p := range list(t, "std") {
		names[p.ImportPath] = true
	}
	return names
}

// matches reports whether an import path is among the allowed ones.
func matches(allowed []string, imported string) bool {
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		if beneath, ok := strings.CutSuffix(pattern, "/..."); ok {
			return strings.HasPrefix(imported, beneath+"/")
		}
		return imported == pattern
	})
}

// within reports whether a folder is another one or lies in it.
func within(folder, other string) bool {
	return folder == other || strings.HasPrefix(folder, other+"/")
}
