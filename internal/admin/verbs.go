package admin

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Verbs are what can be done to runs, as --admin-verbs names it.
var Verbs = []string{"start", "reset", "end", "fork", "annotate", "accept", "release", "signal", "approve", "migrate"}

// allowed has f serve a verb where there is that.
func (a *Admin) allowed(verb string, f http.HandlerFunc) http.HandlerFunc {
	if a.Verbs == nil || slices.Contains(a.Verbs, verb) {
		return f
	}
	return func(w http.ResponseWriter, r *http.Request) {
		here, it := "here", "fsm-proxy"
		if _, passed := a.sender(r); passed {
			here, it = "in "+a.Self+", which this was passed on to", "that one"
		}
		refuse(w, http.StatusForbidden, verb+" is switched off "+here+": start "+it+" with it among --admin-verbs")
	}
}

// form is what comes with a verb.
type form struct {
	key  string
	must bool // it is not left out
}

var (
	reasonForm = form{key: "reason"}
	textForm   = form{key: "text", must: true}
)

// verb has done to the run that a path names, if it names one, what an operator with a token says: read takes what comes with it, returns what
// does it, and says what is wrong.
func (a *Admin) verb(pattern string, read func(w http.ResponseWriter, r *http.Request, v Verb) (do func() (any, error), fault string)) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		v := Verb{Run: strings.Join(parameters(pattern, r.URL.Path), "")}
		var ok bool
		if v.From, v.Remote, ok = a.operator(w, r); !ok {
			return nil
		}
		do, fault := read(w, r, v)
		if fault != "" {
			refuse(w, http.StatusBadRequest, fault)
			return nil
		}
		done, err := do()
		if err == nil {
			answer(w, done)
		}
		return err
	}
}

// here has f answer a request that is about this process.
func here(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			fail(w, err)
		}
	}
}

// with reads a verb with which a form comes alone.
func with[T any](f form, do func(Verb) (T, error)) func(http.ResponseWriter, *http.Request, Verb) (func() (any, error), string) {
	return func(w http.ResponseWriter, r *http.Request, v Verb) (_ func() (any, error), fault string) {
		given, send := map[string]string{}, `send {"`+f.key+`": "…"}`
		if fault := readBody(w, r, &given, send); fault != "" {
			return nil, fault
		}
		var there bool
		if v.Text, there = given[f.key]; len(given) > 1 || len(given) == 1 && !there || f.must && v.Text == "" {
			return nil, notTaken + send
		}
		return func() (any, error) { return do(v) }, printed(f.key, v.Text)
	}
}

const notTaken = "the body is not what is taken here: "

// readBody takes a body, an object of those members alone that into has, or nothing, and says what is wrong with it. send says
// what is taken.
func readBody(w http.ResponseWriter, r *http.Request, into any, send string) (fault string) {
	if r.URL.RawQuery != "" {
		return "nothing is given in the query here: " + send + ", as the body"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignalBody))
	if err != nil {
		return "the body cannot be read: " + send
	}
	if len(body) > 0 && (jsontext.Value(body).Kind() != '{' || json.Unmarshal(body, into, json.RejectUnknownMembers(true)) != nil) {
		return notTaken + send
	}
	return ""
}

const forkForm = `send {"at": SEQ}, the number of an entry, and reason where there is one, or nothing`

// fork reads which run begins that is what another one was.
func (a *Admin) fork(w http.ResponseWriter, r *http.Request, v Verb) (do func() (any, error), fault string) {
	f := Fork{Verb: v}
	if fault := readBody(w, r, &f, forkForm); fault != "" {
		return nil, fault
	}
	if f.At != nil && *f.At == 0 {
		return nil, notTaken + forkForm
	}
	f.Text = f.Reason
	return func() (any, error) { return a.Fork(f) }, printed("reason", f.Reason)
}

const startForm = `send {"key": "path"}, or another kind of --run-key, with value, or issuer and subject, and reason where there is one`

// start begins a run. It takes nothing from anybody, and needs no token where none is asked for.
func (a *Admin) start(w http.ResponseWriter, r *http.Request) {
	var s Start
	if a.Who != nil {
		var ok bool
		if s.From, s.Remote, ok = a.operator(w, r); !ok {
			return
		}
	}
	if fault := readBody(w, r, &s, startForm); fault != "" {
		refuse(w, http.StatusBadRequest, fault)
		return
	}
	for name, text := range map[string]string{"key": s.Key, "value": s.Value, "issuer": s.Issuer, "subject": s.Subject, "reason": s.Reason} {
		if fault := printed(name, text); fault != "" {
			refuse(w, http.StatusBadRequest, fault)
			return
		}
	}
	run, err := a.Start(s)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, run)
}

// printed says what is wrong with a text that people are to read.
func printed(name, text string) string {
	if len(text) > maxNote {
		return name + " is longer than " + strconv.Itoa(maxNote) + " bytes"
	}
	for _, c := range text {
		if !unicode.IsPrint(c) {
			return name + " has characters in it that nobody sees, or line breaks: leave them out"
		}
	}
	return ""
}
