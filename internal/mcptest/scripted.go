package mcptest

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
)

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
