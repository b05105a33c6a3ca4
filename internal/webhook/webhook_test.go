package webhook

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// The example of Standard Webhooks' own libraries (https://github.com/standard-webhooks/standard-webhooks): what a
// verifier of theirs takes is what is sent.
func TestSignature(t *testing.T) {
	key, err := readKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := Signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Error(got)
	}
}

func TestKeysThatAreNone(t *testing.T) {
	for _, key := range []string{"", "whsec_", "whsec_c2hvcnQ=", base64.StdEncoding.EncodeToString(make([]byte, 32)), "whsec_%%%"} {
		if _, err := New(Config{URL: "https://example.com", Key: func() string { return key }}); err == nil || !strings.Contains(err.Error(), "openssl rand") {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, url := range []string{"", "example.com", "ftp://example.com/", "http://", "file:///etc/passwd"} {
		if _, err := New(Config{URL: url, Key: func() string { return goodKey }}); err == nil {
			t.Errorf("%q is taken", url)
		}
	}
}

func event(id, body string) Event {
	return Event{ID: id, Body: []byte(body), Void: func() bool { return false }}
}

// An event that an endpoint hangs over or refuses holds up nothing else; one that is void is never posted.
func TestOneThatIsNotTakenHoldsUpNoOther(t *testing.T) {
	stuck, seen := make(chan struct{}), make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Webhook-Id")
		seen <- id
		switch id {
		case "stuck":
			<-stuck
		case "refused":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	s, err := New(Config{URL: server.URL, Key: func() string { return goodKey }, Log: hclog.NewNullLogger(), Base: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.Send(event("stuck", ""))
	s.Send(event("refused", ""))
	s.Send(Event{ID: "void", Void: func() bool { return true }})
	got := []string{<-seen, <-seen}
	s.Send(event("next", ""))
	got = append(got, <-seen)
	slices.Sort(got[:2])
	if want := []string{"refused", "stuck", "next"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	s.Close()
	close(stuck)
	select {
	case id := <-seen:
		t.Errorf("%s was posted", id)
	default:
	}
}

// An event of which nobody needs to be told any more is not tried again.
func TestVoidIsNotTriedAgain(t *testing.T) {
	key := goodKey
	x, url := endpoint(t, &key, 500)
	s, err := New(Config{URL: url, Key: func() string { return key }, Log: hclog.NewNullLogger(), Base: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	e := event("a", "1")
	e.Void = func() bool { asked++; return asked == 3 }
	s.Send(e)
	s.done.Wait()
	if x.ids() != "a:1 a:1" {
		t.Error(x.ids())
	}
	s.Close()
}

const goodKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// taken is what an endpoint was sent.
type taken struct {
	mu  sync.Mutex
	all []string
	got chan struct{}
}

func (x *taken) ids() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Join(x.all, " ")
}

// endpoint answers with statuses, one after the other, the last for all that follow, and notes the id of each
// request whose signature is right.
func endpoint(t *testing.T, key *string, statuses ...int) (*taken, string) {
	t.Helper()
	x := &taken{got: make(chan struct{}, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, at := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
		seconds, err := strconv.ParseInt(at, 10, 64)
		x.mu.Lock()
		raw, _ := readKey(*key)
		if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute || r.Header.Get("Webhook-Signature") != Signature(raw, id, at, body) {
			id += "?"
		}
		x.all = append(x.all, id+":"+string(body))
		status := statuses[min(len(x.all), len(statuses))-1]
		x.mu.Unlock()
		if status == http.StatusFound {
			w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = w.Write(bytes.Repeat([]byte("allow everything "), 100))
		x.got <- struct{}{}
	}))
	t.Cleanup(server.Close)
	return x, server.URL + "/secret-path"
}

// What is not taken is tried again under the same id, and a redirect is not followed; a key that was replaced signs
// what comes next.
func TestTriedAgain(t *testing.T) {
	key := goodKey
	x, url := endpoint(t, &key, 500, 302, 204, 200)
	s, err := New(Config{URL: url, Key: func() string { x.mu.Lock(); defer x.mu.Unlock(); return key }, Log: hclog.NewNullLogger(), Base: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Send(event("a", "1"))
	for range 3 {
		<-x.got
	}
	x.mu.Lock()
	key = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))
	x.mu.Unlock()
	s.Send(event("b", "2"))
	<-x.got
	if x.ids() != "a:1 a:1 a:1 b:2" {
		t.Error(x.ids())
	}
}

// An endpoint that takes nothing is given up after a while, without its URL in the log; what waits is bounded, and
// nobody who sends waits for it.
func TestNobodyTakesIt(t *testing.T) {
	key := goodKey
	_, url := endpoint(t, &key, 500)
	var log syncedBuffer
	s, err := New(Config{URL: url, Key: func() string { return key }, Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug}), Base: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.Send(event("a", "1"))
	log.await(t, "given up")
	for i := range 2 * maxEvents {
		s.Send(event(fmt.Sprint(i), ""))
	}
	s.Close()
	if text := log.String(); !strings.Contains(text, "given up") || !strings.Contains(text, "too many wait") {
		t.Errorf("%s", text)
	}

	gone, err := New(Config{URL: "http://127.0.0.1:1/secret-path", Key: func() string { return key }, Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug}), Base: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	gone.Send(event("nobody", ""))
	log.await(t, "id=nobody attempts=8")
	gone.Close()
	if strings.Contains(log.String(), "secret-path") {
		t.Errorf("the URL is in the log: %s", log.String())
	}
}

// syncedBuffer is a log.
type syncedBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written *sync.Cond
}

func (b *syncedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written != nil {
		b.written.Broadcast()
	}
	return b.text.Write(p)
}

func (b *syncedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *syncedBuffer) await(t *testing.T, text string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = sync.NewCond(&b.mu)
	for !strings.Contains(b.text.String(), text) {
		b.written.Wait()
	}
}
