package streamhttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// padded is a message of more than 1000 bytes.
func padded(format string) string { return fmt.Sprintf(format, strings.Repeat("x", 1000)) }

// What is too large is refused under its id, wherever that stands, and with a status at which no SDK gives up the session.
func TestTooLargeIsRefusedUnderItsID(t *testing.T) {
	r := newRig(t, ServerConfig{MaxMessage: 1000}, nil)
	c := r.begin("2025-06-18")
	for name, test := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"first":             {padded(`{"id":7,"jsonrpc":"2.0","method":"ping","params":{"x":"%s"}}`), 200, `"id":7,"error":{"code":-32600`},
		"last":              {padded(`{"jsonrpc":"2.0","method":"ping","params":{"x":"%s"},"id":"a\"b"}`), 200, `"id":"a\"b","error":{"code":-32600`},
		"escaped":           {padded(`{"jsonrpc":"2.0","method":"ping","params":{"x":"%s"},"\u0069d":7}`), 200, `"id":7,"error":{"code":-32600`},
		"and others nested": {padded(`{"params":{"id":8,"x":"%s","y":[{"id":9}]},"id":7,"method":"ping"}`), 200, `"id":7,"error":{"code":-32600`},
		"a notification":    {padded(`{"jsonrpc":"2.0","method":"notifications/x","params":{"id":8,"x":"%s"}}`), 200, `"id":null,"error":{"code":-32600`},
		"an answer":         {padded(`{"jsonrpc":"2.0","id":7,"result":{"x":"%s"}}`), 200, `"id":null,"error":{"code":-32600`},
		"nested alone":      {padded(`{"jsonrpc":"2.0","method":"ping","params":{"id":7,"x":"%s"}}`), 200, `"id":null,"error":{"code":-32600`},
		"two":               {padded(`{"id":7,"jsonrpc":"2.0","method":"ping","params":{"x":"%s"},"id":8}`), 413, `"id":null,"error":{"code":-32600`},
		"no id that is one": {padded(`{"id":7.5,"jsonrpc":"2.0","method":"ping","params":{"x":"%s"}}`), 413, `"id":null,"error":{"code":-32600`},
		"a batch":           {padded(`[{"id":7,"jsonrpc":"2.0","method":"ping","params":{"x":"%s"}}]`), 413, `"id":null,"error":{"code":-32600`},
		"no JSON":           {padded(`no %s`), 413, `"id":null,"error":{"code":-32600`},
	} {
		t.Run(name, func(t *testing.T) {
			c.post(test.body).want(t, test.status, test.want).wantHeader(t, "Content-Type", typeJSON)
			c.post(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(test.body), test.body), "Content-Length: -", "Transfer-Encoding: chunked").want(t, test.status, test.want)
		})
	}
	c.post(padded(`{"id":7,"method":"ping","params":{"x":"%s"}}`), "Accept: text/event-stream").
		want(t, 200, "event: message\ndata: {").wantHeader(t, "Content-Type", typeSSE)
	c.post(ping).want(t, 200, `"result"`)
	if got := c.methods(); got != "initialize ping" {
		t.Errorf("the session has got %s", got)
	}
}

// A body is read past for its id only so far; then its connection ends.
func TestEndlessBodyIsNotReadToTheEnd(t *testing.T) {
	r := newRig(t, ServerConfig{MaxMessage: 1000}, nil)
	c := r.begin("2025-06-18")
	vast := c.connect().send(post1(`{"id":7,`, c.id, fmt.Sprintf("Content-Length: %d", 1000+maxPast+1))).reply()
	if vast.want(t, 413, `"id":null`); !vast.Close {
		t.Error("the connection goes on behind a body that was not read")
	}
	endless := c.connect()
	endless.send(post1("", c.id, "Content-Length: -", "Transfer-Encoding: chunked"))
	written := make(chan int)
	go func() {
		chunk := "10000\r\n" + strings.Repeat("x", 1<<16) + "\r\n"
		for n := 0; ; n += 1 << 16 {
			if _, err := io.WriteString(endless, chunk); err != nil {
				written <- n
				return
			}
		}
	}()
	if n := <-written; n < maxPast || n > maxPast+64<<20 { // what the system buffers is read by nobody
		t.Errorf("%d bytes of it were taken", n)
	}
}

// A body that trickles has its time, and no more.
func TestTricklingBodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, ServerConfig{MaxMessage: 1000}, nil)
		c := r.begin("2025-06-18")
		began := time.Now()
		slow := c.connect()
		slow.send(post1("", c.id, fmt.Sprintf("Content-Length: %d", 1<<20)))
		hungUp := make(chan struct{})
		go func() {
			defer close(hungUp)
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(slow, strings.Repeat("x", 100)); err != nil {
					return
				}
			}
		}()
		if answer := slow.reply().want(t, 413, `"id":null`); !answer.Close {
			t.Error("the connection goes on behind a body that was not read")
		}
		if took := time.Since(began); took > 45*time.Second+time.Second {
			t.Errorf("it took %v", took)
		}
		<-hungUp
		c.post(ping).want(t, 200, `"result"`)
	})
}

// Where there is no room for a body, a client with a session is told so under the id; one without by the status alone.
func TestNoRoomIsToldUnderTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { noRoomIsToldUnderTheID(t, httpserver.NewBodyBudget(256<<10)) })
}

func noRoomIsToldUnderTheID(t *testing.T, budget *httpserver.BodyBudget) {
	r := newBubbleRig(t, ServerConfig{MaxMessage: 8 << 20, Bodies: budget}, nil)
	c := r.begin("2025-06-18")
	other := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, 256<<10)))
	all := budget.Claim(other, true, nil)
	if _, err := all.Read(other, 1<<20); err != nil {
		t.Fatal("there is no room for the first:", err)
	}
	defer all.Release()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","method":"ping","params":{"id":1,"x":"%s"},"id":7}`, strings.Repeat("x", 1<<20))
	refused := make(chan served)
	go func() { refused <- c.post(body) }()
	stranger := r.connect()
	go func() { _, _ = io.WriteString(stranger, post1(body)) }() // which nobody reads to its end
	stranger.reply().want(t, http.StatusServiceUnavailable, "send the request again").wantHeader(t, "Retry-After", "1").
		wantHeader(t, "Content-Type", valueText[0])
	(<-refused).want(t, 200, `"id":7,"error":{"code":-32603,"message":"the bodies of other requests take the memory`)
	c.post(ping).want(t, 200, `"result"`)
}

// A stranger learns nothing by a session's id: what is too large is not read, and the answer is that of no session.
func TestTooLargeForSomebodyElsesSession(t *testing.T) {
	r := newRig(t, ServerConfig{MaxMessage: 1000, Authenticate: bearers("ann", "bob")}, nil)
	p := r.do(post1(initialize(), as("ann"))).want(t, 200, "result")
	id := "Mcp-Session-Id: " + p.Header.Get(headerSession)
	for _, bad := range []string{"X: y", "Content-Type: text/plain", "Accept: text/html", "MCP-Protocol-Version: 2024-11-05"} {
		r.do(post1(padded(`{"id":7,"method":"ping","params":{"x":"%s"}}`), id, as("bob"), bad)).want(t, 404, "no such session").wantHeader(t, "Content-Type", valueText[0])
	}
}
