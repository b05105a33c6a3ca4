package mcptest

import (
	"encoding/json"
	"fmt"
	"sync"
)

// carrier is what an Exchange answers through: a process's standard output, or one HTTP response.
type carrier interface {
	send(line string)             // one whole message towards the client, beside the answer
	answer(line string)           // the message that answers the request; HTTP may use a plain body
	announce(line string)         // one message that belongs to no request
	raw(text string)              // bytes without framing
	stderr(text string)           // bytes for standard error; nothing on HTTP
	status(code int, body string) // an HTTP status with a body; nothing on stdio
	async(work func())            // runs the work beside the read loop
	truncate(line string)         // half of the message, then the end of the connection
	die()                         // the end of the connection
	hang()                        // keeps the request open until its client gives up
	spawn()                       // a child process that outlives its parent's polite end
}

// Exchange is one message that reached a raw upstream, and the ways, good and bad, to answer it.
type Exchange struct {
	Message
	Session string // the Mcp-Session-Id of the POST; empty on stdio
	Modern  bool   // the server is one of the modern era
	carrier carrier
	world   *world
}

// Result answers the request. The result is JSON and is sent byte for byte, but for the resultType that a modern
// server's have.
func (e *Exchange) Result(result string) {
	if e.Modern {
		result = modernResult(result)
	}
	e.carrier.answer(Result(e.ID, result))
}

// Fail answers the request with a JSON-RPC error.
func (e *Exchange) Fail(code int, message string) { e.carrier.answer(Failure(e.ID, code, message)) }

// Answer answers the request with a whole message of the script's making.
func (e *Exchange) Answer(line string) { e.carrier.answer(line) }

// Send sends a message on the request's own stream: progress, a log message, a request to the client.
func (e *Exchange) Send(line string) { e.carrier.send(line) }

// Announce sends a message that belongs to no request: on HTTP it goes to the session's GET streams.
func (e *Exchange) Announce(line string) { e.carrier.announce(line) }

// Ask sends a request to the client on the exchange's stream and waits for its answer. It is to be called in
// Async, since the answer arrives by the read loop. In the modern era, see [Exchange.Require].
func (e *Exchange) Ask(method, params string) Message {
	id, answered := e.world.ask()
	e.carrier.send(Request(id, method, params))
	select {
	case m := <-answered:
		return m
	case <-e.world.ended():
		return Message{Error: []byte(`"the test has ended"`)}
	}
}

// Require returns what the client has answered to a question, if this is the retry that brings the answer along.
// Otherwise the request is answered with the question, and there is nothing more to do.
func (e *Exchange) Require(key, method, params string) (answer string, ok bool) {
	var read struct {
		Responses map[string]json.RawMessage `json:"inputResponses"`
	}
	if json.Unmarshal(e.Params, &read) == nil && read.Responses[key] != nil {
		return string(read.Responses[key]), true
	}
	e.Result(`{"resultType":"input_required","inputRequests":{` + string(encode(key)) + `:{"method":` + string(encode(method)) +
		`,"params":` + params + `}},"requestState":` + string(encode("state of "+e.Name)) + `}`)
	return "", false
}

// RequestState returns the state that a retry brings back; empty: none.
func (e *Exchange) RequestState() string {
	var read struct {
		State string `json:"requestState"`
	}
	_ = json.Unmarshal(e.Params, &read) // what is no string is none
	return read.State
}

// Async runs the work while further messages are read.
func (e *Exchange) Async(work func()) { e.carrier.async(work) }

// Gate waits until the test opens the gate.
func (e *Exchange) Gate(name string) { e.world.gate(name) }

// Noise writes bytes that are no message to where messages are expected.
func (e *Exchange) Noise(text string) { e.carrier.raw(text) }

// Stderr writes to the process's standard error.
func (e *Exchange) Stderr(text string) { e.carrier.stderr(text) }

// Status answers the POST with an HTTP status and a body. On stdio it does nothing.
func (e *Exchange) Status(code int, body string) { e.carrier.status(code, body) }

// Accepted answers the request as if it were a notification: 202 and no body. On stdio it does nothing.
func (e *Exchange) Accepted() { e.carrier.status(202, "") }

// Truncate sends the first half of the answer and ends the connection.
func (e *Exchange) Truncate(result string) { e.carrier.truncate(Result(e.ID, result)) }

// Die ends the process, or drops the connection, without an answer.
func (e *Exchange) Die() { e.carrier.die() }

// Silent never answers the request.
func (e *Exchange) Silent() { e.carrier.hang() }

// Spawn starts a child process that keeps the parent's pipes and lives until somebody ends it. It counts in
// Upstream.Live. On HTTP it does nothing.
func (e *Exchange) Spawn() { e.carrier.spawn() }

// Progress sends a progress notification with the token of the request, if it has one.
func (e *Exchange) Progress(done, total int) {
	var read struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(e.Params, &read) != nil || read.Meta.Token == nil {
		return
	}
	e.Send(Notification("notifications/progress",
		fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":%d}`, read.Meta.Token, done, total)))
}

// Argument returns a top-level string argument of a tools/call.
func (e *Exchange) Argument(name string) string {
	var read struct {
		Arguments map[string]any `json:"arguments"`
	}
	if json.Unmarshal(e.Params, &read) != nil {
		return ""
	}
	value, _ := read.Arguments[name].(string)
	return value
}

// world is what all exchanges of one process, or of one HTTP upstream, share.
type world struct {
	gate func(name string)

	mu      sync.Mutex // guards asked and waiting
	asked   int
	waiting map[string]chan Message // by the id's bytes
}

func newWorld(gate func(string)) *world {
	return &world{gate: gate, waiting: map[string]chan Message{}}
}

// ended returns a channel that closes when the test ends.
func (w *world) ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		w.gate(endGate)
		close(ended)
	}()
	return ended
}

func (w *world) ask() (id string, answered <-chan Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	id = fmt.Sprintf("raw-%d", w.asked)
	c := make(chan Message, 1)
	w.waiting[string(encode(id))] = c
	return id, c
}

// answered hands a response to the Ask that waits for it, and reports whether there was one.
func (w *world) answered(m Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.waiting[string(m.ID)]
	delete(w.waiting, string(m.ID))
	if ok {
		c <- m
	}
	return ok
}
