//go:build unix

package upstream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// play plays a part in a child process.
func play(role string) {
	switch role {
	case "server":
		serve()
	case "refuse":
		line, _ := bufio.NewReader(os.Stdin).ReadBytes('\n')
		m, _ := wire.Read(line, wire.FromUpstream)
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such version","data":{"supported":["x"]}}}`+"\n", m.Bytes(m.ID))
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "modern", "modern-only", "hasty", "late", "slow":
		serveEras(role)
	case "fragile": // it fails while a file is there
		if _, err := os.Stat(os.Getenv(brokenVar)); err != nil {
			serve()
			return
		}
		fallthrough
	case "die":
		fmt.Fprintln(os.Stderr, "cannot open the database")
		os.Exit(3)
	case "starting": // for long, and by no end of its input to be stopped
		fmt.Fprintln(os.Stderr, "\x1b[2K\x1b[33mfetching\x1b[0m a \x1b]8;;http://x\x07package\x1b]8;;\x07\r")
		<-time.After(time.Hour)
	case "mute":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "stubborn": // neither the end of its input nor SIGTERM ends it
		signal.Ignore(syscall.SIGTERM)
		go serve()
		select {}
	case "sleep":
		signal.Ignore(syscall.SIGTERM)
		select {}
	}
}

// brokenVar names the file of the part "fragile".
const brokenVar = "UPSTREAM_TEST_BROKEN"

// child is the configuration of a child that plays a part.
func child(role string) Config {
	return Config{Quote: true, Command: []string{os.Args[0]}, Env: append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0")}
}

// spoken guards the child's output.
var spoken sync.Mutex

func say(format string, args ...any) {
	spoken.Lock()
	defer spoken.Unlock()
	fmt.Printf(format+"\n", args...)
}

// serve is a stdio MCP server whose tools are the faults under test. Every
// line that it gets is counted.
func serve() {
	lines, count := bufio.NewReader(os.Stdin), 0
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		count++
		line = line[:len(line)-1]
		m, err := wire.Read(line, wire.FromUpstream)
		if err != nil {
			fmt.Fprintln(os.Stderr, "unreadable:", err)
			continue
		}
		respond(m, count)
	}
}

func respond(m *wire.Message, count int) {
	id := m.Bytes(m.ID)
	switch {
	case m.Method == "initialize":
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"early"}}`)
		say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"c","version":"1"}}}`, id)
	case m.Method == "ping":
		say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	case m.Method == "tools/list":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"count-%d"}]}}`, id, count)
	case m.Method == "tools/call":
		tool(m, count)
	case m.Method == "notifications/cancelled":
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%s}}`, quoted(m.Raw))
	case m.Kind == wire.Result:
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%s}}`, quoted(m.Raw))
	}
}

func quoted(raw []byte) []byte {
	out, _ := json.Marshal(string(raw))
	return out
}

// result answers with a text.
func result(id []byte, text string) {
	say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, quoted([]byte(text)))
}

func tool(m *wire.Message, count int) {
	id := m.Bytes(m.ID)
	switch m.P.Name {
	case "echo":
		result(id, string(m.Raw))
	case "count":
		result(id, strconv.Itoa(count))
	case "hang": // nothing more is read
		fmt.Fprintln(os.Stderr, "waiting for the lock")
		<-time.After(time.Hour)
	case "hang-aloud":
		for range time.Tick(10 * time.Millisecond) {
			say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"still at it"}}`)
		}
	case "die":
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(7)
	case "answer-and-die":
		result(id, "last words")
		os.Exit(0)
	case "silent":
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"started"}}`)
	case "twice":
		result(id, "first")
		result(id, "second")
	case "stranger":
		say(`{"jsonrpc":"2.0","id":987654,"result":{}}`)
		say(`{"jsonrpc":"2.0","id":"x","result":{}}`)
		say(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`)
		result(id, "mine")
	case "noise":
		say("npm WARN deprecated\n\n{\n[]\n[1]\nnull\n\x00\xff")
		say(`{"jsonrpc":"2.0"}`)
		say("%s", strings.Repeat("x", 3<<20))
		result(id, "after the noise")
	case "unreadable":
		say(`{"jsonrpc":"2.0","id":%s,"result":{},"result":{}}`, id)
	case "unreadable-request":
		say(`{"jsonrpc":"2.0","id":%s,"method":"roots/list","method":"ping"}`, id)
		result(id, "still here")
	case "progress":
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.10,"progressToken":%s, "message":"half"}}`, m.Bytes(m.P.MetaToken))
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.1,"progressToken":"unknown"}}`)
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.1,"progressToken":99999}}`)
		result(id, "done")
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.9,"progressToken":%s}}`, m.Bytes(m.P.MetaToken))
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"end"}}`)
	case "ask":
		say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		say(`{"jsonrpc":"2.0","id":%s,"method":"roots/list"}`, id)
		result(id, "asked")
	case "batch":
		say(`[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":%s,"result":{"batch":true}}]`, id)
	case "changed":
		say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		result(id, "changed")
	case "env":
		result(id, strings.Join(os.Environ(), "\n"))
	case "pid":
		result(id, strconv.Itoa(os.Getpid()))
	case "spawn":
		result(id, strconv.Itoa(spawn()))
	case "spawn-and-die":
		result(id, strconv.Itoa(spawn()))
		os.Exit(0)
	case "flood":
		for i := range 20_000 {
			fmt.Fprintf(os.Stderr, "line %d %s\n", i, strings.Repeat("y", 100))
		}
		fmt.Fprintln(os.Stderr, strings.Repeat("z", 100_000))
		fmt.Fprintln(os.Stderr, "\x1b[31mred\x07")
		result(id, "flooded")
	case "close-output":
		os.Stdout.Close()
	}
}

// spawn starts a child of the child that holds all its files and ends by no
// gentle means.
func spawn() int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"=sleep")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0
	}
	return cmd.Process.Pid
}

// textOf is the text of a result made by result.
func textOf(t testing.TB, raw string) string {
	t.Helper()
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal([]byte(raw), &r); err != nil || len(r.Content) != 1 {
		t.Fatalf("%s: %v", raw, err)
	}
	return r.Content[0].Text
}
