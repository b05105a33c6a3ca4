package http1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// answering is a server that gives each request of its one connection the next
// of some raw answers, and then hangs up.
func answering(t *testing.T, answers ...string) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		br := bufio.NewReader(c)
		for _, answer := range answers {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(c, answer)
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/mcp"}
}

// TestKnownAnswers: an answer like the one before it, but for its length, is
// not taken for anything else, and one unlike it not for it.
func TestKnownAnswers(t *testing.T) {
	answer := func(kind, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
	}
	long := strings.Repeat("0123456789", 3000)
	chunked := "HTTP/1.1 200 OK\r\nContent-Type: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
	want := []struct {
		answer, kind, body string
		status             int
	}{
		{answer("a", "x"), "a", "x", 200},
		{answer("a", long), "a", long, 200},
		{answer("a", ""), "a", "", 200},
		{answer("b", "yy"), "b", "yy", 200},
		{answer("a", "zz"), "a", "zz", 200},
		{chunked, "a", "hi", 200},
		{strings.Replace(answer("a", "no"), "200 OK", "404 Not Found", 1), "a", "no", 404},
		{answer("a", "zz"), "a", "zz", 200},
		{"HTTP/1.1 100 Continue\r\n\r\n" + answer("a", "end"), "a", "end", 200},
	}
	var all []string
	for _, w := range want {
		all = append(all, w.answer)
	}
	short := answer("a", "cut off")
	u := answering(t, append(all, short[:len(short)-2])...)
	tr := new(Transport)
	defer tr.CloseIdleConnections()
	post := func() (*http.Response, string, error) {
		resp, err := tr.RoundTrip(&http.Request{Method: http.MethodPost, URL: u, Body: io.NopCloser(strings.NewReader("{}"))})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp, string(body), err
	}
	for i, w := range want {
		resp, body, err := post()
		if err != nil || resp.StatusCode != w.status || resp.Header.Get("Content-Type") != w.kind || body != w.body {
			t.Errorf("answer %d: got %s %v %.20q, %v", i, resp.Status, resp.Header, body, err)
		}
	}
	if resp, body, err := post(); err != io.ErrUnexpectedEOF {
		t.Errorf("cut off: got %s %q, %v", resp.Status, body, err)
	}
}
