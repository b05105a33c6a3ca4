package attack

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// guarded is a policy with one tool, under a guard.
func guarded(when string) string {
	return fmt.Sprintf("version: 1\nname: who\ninitial: start\nstates:\n  start:\n    tools:\n      ok: {when: %q}\n", when)
}

// mayCall reports whether a client's next request, with the token and the certificate that it has, is within the guard.
func (r *rig) mayCall(modern bool) bool {
	r.t.Helper()
	body := call("7", `{"name":"ok"}`)
	if modern {
		body = aloneCall(`{"name":"ok"}`)
	}
	answer := r.web.Post(r.t.Context(), body)
	refused := strings.Contains(string(answer.Body), "guard_failed")
	if answer.Status != http.StatusOK || !refused && (len(answer.Messages) == 0 || denied(string(answer.Body))) {
		r.t.Errorf("answered %d %s", answer.Status, answer.Body)
	}
	return !refused
}

// What a guard sees of who asks is what the request itself shows: a session begun with one token goes on with another
// of the same principal, and each request is decided by its own.
func TestGuardsSeeTheTokenOfEachRequest(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	r := web.with(openID(issuer)...).under(guarded(`who.subject == "ann" && who.issuer == "` + issuer.URL +
		`" && "build" in who.scopes && who.claims.team == "red" && !("token" in who.scopes)`)).start(t)
	type says = mcptest.Claims
	tokens := map[string]struct {
		token string
		may   bool
	}{
		"all":           {issuer.Token("ann", says{"scope": mcptest.Scope + " build", "team": "red"}), true},
		"scp, a list":   {issuer.Token("ann", says{"scp": []string{"build", "x"}, "team": "red"}), true},
		"scp, a text":   {issuer.Token("ann", says{"scp": "x build", "team": "red"}), true},
		"no scope":      {issuer.Token("ann", says{"team": "red"}), false},
		"a longer one":  {issuer.Token("ann", says{"scope": mcptest.Scope + " builds", "team": "red"}), false},
		"another team":  {issuer.Token("ann", says{"scope": mcptest.Scope + " build", "team": "blue"}), false},
		"no team":       {issuer.Token("ann", says{"scope": mcptest.Scope + " build"}), false},
		"a list":        {issuer.Token("ann", says{"scope": mcptest.Scope + " build", "team": []string{"red"}}), false},
		"another case":  {issuer.Token("ann", says{"scope": mcptest.Scope + " build", "Team": "red"}), false},
		"two lookalike": {issuer.Token("ann", says{"scope": mcptest.Scope + " build", "team": "red", "Team": "blue"}), false},
	}
	session := r.client(tokens["no scope"].token)
	session.Initialize()
	alone := r.modernClient("")
	for range 2 { // the second time what they say is remembered
		for name, c := range tokens {
			for _, modern := range []bool{false, true} {
				by := map[bool]*rig{false: session, true: alone}[modern].as(c.token)
				if got := by.mayCall(modern); got != c.may {
					t.Errorf("%s, modern %v: %v, want %v", name, modern, got, c.may)
				}
			}
		}
	}
	bob := r.client(issuer.Token("bob", says{"scope": mcptest.Scope + " build", "team": "red"}))
	bob.Initialize()
	if bob.mayCall(false) {
		t.Error("somebody else is within the guard")
	}
}

// Names of a token file and subjects of certificates are seen, and have neither scopes nor claims.
func TestGuardsSeeNames(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	hash := func(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("token of "+name))) }
	if err := os.WriteFile(tokens, []byte("version: 1\ntokens:\n  ann: "+hash("ann")+"\n  bob: "+hash("bob")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := web.with("--tokens", tokens).under(guarded(`who.subject == "ann" && who.issuer == "tokens"`)).start(t)
	claiming := web.with("--tokens", tokens).under(guarded(`who.claims.sub == "ann"`)).start(t)
	for name, may := range map[string]bool{"ann": true, "bob": false} {
		c := named.client("token of " + name)
		c.Initialize()
		if got := c.mayCall(false); got != may {
			t.Errorf("%s: %v, want %v", name, got, may)
		}
		other := claiming.client("token of " + name)
		other.Initialize()
		if other.mayCall(false) {
			t.Errorf("%s has claims", name)
		}
	}

	ours := mcptest.NewAuthority("ours")
	authorities := filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(authorities, ours.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := webTLS.with("--client-ca", authorities).under(guarded(`who.subject == "spiffe://example.com/ann" && who.issuer == "CN=ours"`)).start(t)
	for name, may := range map[string]bool{"ann": true, "bob": false} {
		c := r.client("")
		c.web.Present(ours.Client(name, nil, "spiffe://example.com/"+name))
		c.Initialize()
		if got := c.mayCall(false); got != may {
			t.Errorf("the certificate of %s: %v, want %v", name, got, may)
		}
	}
}

// Where nobody is told apart, what a guard reads of who asks is an error, which refuses.
func TestGuardsSeeNobody(t *testing.T) {
	for _, w := range []way{pipes, web} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			r := w.under(guarded(`who.subject != "mallory"`)).open(t)
			if answer := r.Tool("ok", "{}"); !strings.Contains(string(answer.Result), "guard_failed") {
				t.Errorf("answered %s", answer.Result)
			}
		})
	}
}

// What is for somebody else is neither listed nor callable, and refused as what there is not: in a session whose tokens
// change, and where requests stand alone.
func TestWhatIsForOthersIsNotThere(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	r := web.with(openID(issuer)...).under("version: 1\nname: who\ninitial: start\nstates:\n  start:\n    tools:\n      ok: {for: {scope: build}}\n      noise: stay\n").start(t)
	may := issuer.Token("ann", mcptest.Claims{"scope": mcptest.Scope + " build"})
	mayNot := issuer.Token("ann", mcptest.Claims{"scope": mcptest.Scope})
	session := r.client(mayNot)
	session.Initialize()
	alone := r.modernClient("")
	for range 2 {
		for _, x := range []struct {
			token string
			may   bool
		}{{mayNot, false}, {may, true}, {mayNot, false}} {
			for _, modern := range []bool{false, true} {
				by, list, ok, unknown := session.as(x.token), `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, call("7", `{"name":"ok"}`), call("7", `{"name":"nobody has this"}`)
				if modern {
					by, list, ok, unknown = alone.as(x.token), `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":`+mcptest.Modern{}.Params("")+`}`, aloneCall(`{"name":"ok"}`), aloneCall(`{"name":"nobody has this"}`)
				}
				listed := string(by.web.Post(t.Context(), list).Body)
				if strings.Contains(listed, `"name":"ok"`) != x.may || !strings.Contains(listed, `"name":"noise"`) {
					t.Errorf("modern %v, may %v: listed %s", modern, x.may, listed)
				}
				answer, nothing := string(by.web.Post(t.Context(), ok).Body), string(by.web.Post(t.Context(), unknown).Body)
				if refused := strings.Contains(answer, "unknown_action"); refused == x.may {
					t.Errorf("modern %v, may %v: %s", modern, x.may, answer)
				}
				if !x.may && strings.ReplaceAll(nothing, "nobody has this", "ok") != answer {
					t.Errorf("what is for others reads\n%s\nwhat there is not\n%s", answer, nothing)
				}
			}
		}
	}
}
