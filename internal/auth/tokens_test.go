package auth

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func hashOf(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

func tokens(t *testing.T, text string) *Tokens {
	t.Helper()
	out := &Tokens{}
	if err := out.Set("tokens.yaml", []byte(text)).Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTokensWithNames(t *testing.T) {
	file := tokens(t, "version: 1\ntokens:\n  ann: "+hashOf("a1")+"\n  bob: ["+hashOf("b1")+", "+hashOf("b2")+"]\n")
	g := New(Config{Tokens: file, Bearer: func() string { return "one" }})
	for token, subject := range map[string]string{
		"a1": "ann", "b1": "bob", "b2": "bob", "one": "bearer",
		"a2": "", "": "", hashOf("a1"): "", hashOf("a1")[7:]: "", "ann": "",
	} {
		who, w := ask(g, "Bearer "+token)
		if who.Subject != subject || (subject == "") != (w.Code == 401) {
			t.Errorf("%q: %v, %d", token, who, w.Code)
		}
	}
	if who, _ := ask(g, "Bearer a1"); who != (wire.Principal{Issuer: "tokens", Subject: "ann"}) {
		t.Errorf("ann is %v", who)
	}
	if file.Set("tokens.yaml", []byte("version: 1\ntokens: {ann: oops}\n")).Err() == nil {
		t.Error("a token that is no hash is read")
	}
	if who, _ := ask(g, "Bearer a1"); !who.Known() {
		t.Error("a file with an error has replaced the one before")
	}
	if err := file.Set("tokens.yaml", []byte("version: 1\ntokens:\n  bob: "+hashOf("b1")+"\n")).Err(); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]bool{"a1": false, "b1": true, "b2": false} {
		if who, _ := ask(g, "Bearer "+token); who.Known() != want {
			t.Errorf("%q in the new file: %v", token, who)
		}
	}
	if who, _ := ask(New(Config{Tokens: &Tokens{}}), "Bearer a1"); who.Known() {
		t.Error("no tokens let somebody in")
	}
}

// Every mistake has its place, and no message repeats what may be a token.
func TestBadTokenFiles(t *testing.T) {
	hash := hashOf("x")
	for text, want := range map[string]string{
		"version: 1\ntokens: {ann: hunter2}\n":                                      `tokens.yaml:2:15: error: the token of "ann" is given by its hash`,
		"version: 1\ntokens: {ann: sha256:hunter2}\n":                               `tokens.yaml:2:15: error: the token of "ann" is given by its hash`,
		"version: 1\ntokens: {ann: [hunter2]}\n":                                    `tokens.yaml:2:16: error: the token of "ann" is given by its hash`,
		"version: 1\ntokens: {ann: {hunter2: 1}}\n":                                 `tokens.yaml:2:15: error: the token of "ann" is given by its hash`,
		"version: 1\ntokens: {ann: }\n":                                             `the token of "ann" is given by its hash`,
		"version: 1\ntokens: {ann: " + hash[:len(hash)-2] + "}\n":                   `is given by its hash`,
		"version: 1\ntokens: hunter2\n":                                             `tokens.yaml:2:1: error: tokens: wants a mapping`,
		"version: 1\ntokens: {\"\": " + hash + "}\n":                                `a name has 1 to 512 bytes`,
		"version: 1\ntokens: {\"a\\nb\": " + hash + "}\n":                           `a name has 1 to 512 bytes`,
		"version: 1\ntokens: {ann: " + hash + ", bob: " + hash + "}\n":              `the token of "bob" is "ann"'s as well`,
		"version: 1\ntokens: {ann: " + hash + ", ann: " + hashOf("hunter2") + "}\n": "ann",
		"tokens: {ann: " + hash + "}\n":                                             "version is missing",
		"version: 2\n":                                                              "version",
		"version: 1\ntoken: {ann: hunter2}\n":                                       "tokens",
		"version: 1\ntokens: {ann: hunter2\n":                                       "tokens.yaml:",
		"":                                                                          "version: 1",
		"hunter2":                                                                   "tokens.yaml:1:1",
	} {
		err := new(Tokens).Set("tokens.yaml", []byte(text)).Err()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") && text != "hunter2" {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
