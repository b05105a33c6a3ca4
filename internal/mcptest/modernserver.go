package mcptest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// listings are the open subscriptions of a raw upstream of the modern era.
type listings struct {
	mu   sync.Mutex // guards all below, and is held while something is sent: no notification comes after the end
	open map[int]listing
	last int
}

// listing is one subscription: what it wants, and its line to the client.
type listing struct {
	id    json.RawMessage
	wants filter
	send  func(line string)
}

// filter is what a client subscribes to (2026-07-28, basic/patterns/subscriptions).
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

func (f filter) wants(m Message) bool {
	switch m.Method {
	case "notifications/tools/list_changed":
		return f.Tools
	case "notifications/prompts/list_changed":
		return f.Prompts
	case "notifications/resources/list_changed":
		return f.Resources
	case "notifications/resources/updated":
		return slices.Contains(f.URIs, m.Name)
	}
	return false
}

// begin acknowledges a subscriptions/listen and keeps it. Ids are their clients' own, so it has a number besides.
func (l *listings) begin(m Message, send func(string)) (number int) {
	var read struct {
		Notifications filter `json:"notifications"`
	}
	_ = json.Unmarshal(m.Params, &read) // what cannot be read wants nothing
	s := listing{id: m.ID, wants: read.Notifications, send: send}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[int]listing{}
	}
	l.last++
	l.open[l.last] = s
	send(tagged(Notification("notifications/subscriptions/acknowledged", `{"notifications":`+string(encode(s.wants))+`}`), s.id))
	return l.last
}

// end forgets a subscription.
func (l *listings) end(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, number)
}

// endID forgets the subscription of an id, and reports whether there was one.
func (l *listings) endID(id json.RawMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for number, s := range l.open {
		if string(s.id) == string(id) {
			delete(l.open, number)
			return true
		}
	}
	return false
}

// announce sends a notification to all who want it.
func (l *listings) announce(line string) {
	m := ParseMessage([]byte(line))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.open {
		if s.wants.wants(m) {
			s.send(tagged(line, s.id))
		}
	}
}

// tagged is a notification with the id of its subscription.
func tagged(line string, id json.RawMessage) string {
	m := ParseMessage([]byte(line))
	tag := `"_meta":{"` + metaSubscription + `":` + string(id) + `}`
	if inner := strings.TrimSpace(strings.Trim(string(m.Params), "{}")); inner != "" {
		tag = string(m.Params[1:len(m.Params)-1]) + "," + tag
	}
	return Notification(m.Method, "{"+tag+"}")
}

// modernFault says why a server of the modern era alone takes no such message; header is nil on stdio. The zero code:
// nothing.
func modernFault(m Message, header http.Header) (code int, text string) {
	if !m.IsRequest() {
		return 0, ""
	}
	if m.Method == "initialize" {
		return -32022, "Unsupported protocol version"
	}
	if !m.IsModern() {
		return -32602, "_meta says no protocol version"
	}
	want := http.Header{}
	modernHeader(want, m)
	for name := range want {
		if header != nil && header.Get(name) != want.Get(name) {
			return -32020, "Header mismatch: " + name
		}
	}
	return 0, ""
}

// modernStatus is the HTTP status of an answer of the modern era.
func modernStatus(line string) int {
	var read struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(line), &read) != nil {
		return http.StatusOK
	}
	switch read.Error.Code {
	case -32601:
		return http.StatusNotFound
	case -32020, -32021, -32022:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// modernResult is a result with what the modern era wants in all of them.
func modernResult(result string) string {
	if !strings.HasPrefix(result, "{") || strings.Contains(result, `"resultType"`) {
		return result
	}
	if result == "{}" {
		return `{"resultType":"complete"}`
	}
	return `{"resultType":"complete",` + result[1:]
}

// discovered answers server/discover.
func (s Script) discovered() string {
	return `{"supportedVersions":["` + ModernRevision + `"],` + s.offer() +
		`,"ttlMs":0,"cacheScope":"private","_meta":{"` + metaPrefix + `serverInfo":{"name":"raw","version":"1.0.0"}}}`
}
