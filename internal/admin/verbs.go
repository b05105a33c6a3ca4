package admin

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"io"
	"net/http"
	"slices"
	"strconv"
	"unicode"
)

// Verbs are what can be done to runs, as --admin-verbs names it.
var Verbs = []string{"start", "reset", "end", "fork", "annotate", "accept", "signal", "approve", "migrate"}

// allowed has f serve a verb where there is that.
func (a *Admin) allowed(verb string, f http.HandlerFunc) http.HandlerFunc {
	if a.Verbs == nil || slices.Contains(a.Verbs, verb) {
		return f
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, verb+" is switched off here: start fsm-proxy with it among --admin-verbs")
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

// verb has do done to the run that a path names, as an operator with a token says.
func (a *Admin) verb(pattern string, of form, do func(Verb) (Stands, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := Verb{Run: parameters(pattern, r.URL.Path)[0]}
		var ok bool
		if v.From, v.Remote, ok = a.operator(w, r); !ok {
			return
		}
		var fault string
		if v.Text, fault = of.read(w, r); fault != "" {
			refuse(w, http.StatusBadRequest, fault)
			return
		}
		at, err := do(v)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, at)
	}
}

// read takes what comes with a verb, and says what is wrong with it.
func (f form) read(w http.ResponseWriter, r *http.Request) (text, fault string) {
	send := `send {"` + f.key + `": "…"}`
	if r.URL.RawQuery != "" {
		return "", "nothing is given in the query here: " + send + ", as the body"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignalBody))
	if err != nil {
		return "", "the body cannot be read: " + send
	}
	given := map[string]string{}
	if len(body) > 0 && (jsontext.Value(body).Kind() != '{' || json.Unmarshal(body, &given) != nil) {
		return "", "the body is not what is taken here: " + send
	}
	text, there := given[f.key]
	switch {
	case len(given) > 1, len(given) == 1 && !there, f.must && text == "":
		return "", "the body is not what is taken here: " + send
	}
	return text, printed(f.key, text)
}

const forkForm = `send {"at": SEQ}, the number of an entry, and reason where there is one, or nothing`

// fork begins a run that is what another one was.
func (a *Admin) fork(w http.ResponseWriter, r *http.Request) {
	f := Fork{Verb: Verb{Run: parameters(forkPath, r.URL.Path)[0]}}
	var ok bool
	if f.From, f.Remote, ok = a.operator(w, r); !ok {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignalBody))
	if err != nil || r.URL.RawQuery != "" || len(body) > 0 && (jsontext.Value(body).Kind() != '{' || json.Unmarshal(body, &f, json.RejectUnknownMembers(true)) != nil) || f.At != nil && *f.At == 0 {
		refuse(w, http.StatusBadRequest, "the body is not what is taken here: "+forkForm)
		return
	}
	if fault := printed("reason", f.Reason); fault != "" {
		refuse(w, http.StatusBadRequest, fault)
		return
	}
	f.Text = f.Reason
	forked, err := a.Fork(f)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, forked)
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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSignalBody))
	if err != nil || r.URL.RawQuery != "" || len(body) > 0 && (jsontext.Value(body).Kind() != '{' || json.Unmarshal(body, &s, json.RejectUnknownMembers(true)) != nil) {
		refuse(w, http.StatusBadRequest, "the body is not what is taken here: "+startForm)
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
