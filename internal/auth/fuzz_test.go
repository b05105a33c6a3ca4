package auth

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Whatever a token looks like, nobody is let in but by what the issuer has signed.
func FuzzToken(f *testing.F) {
	issuer := mcptest.NewIssuer(f)
	g := accepting(f, issuer, nil)
	good := issuer.Token("ann", nil)
	all := issuer.Says("ann", nil)
	for _, seed := range []string{good, good[:len(good)-1], issuer.Unsigned(all), issuer.Confused(issuer.PublicPEM(), all), "a.b.c", "..", "{}",
		issuer.Signed(mcptest.Claims{"crit": []string{"b64"}, "b64": false}, all), issuer.Signed(mcptest.Claims{"typ": 7}, all)} {
		f.Add(seed)
	}
	signed := good[:strings.LastIndexByte(good, '.')]
	f.Fuzz(func(t *testing.T, token string) {
		who, w := ask(g, "Bearer "+token)
		if who.Known() && !strings.HasPrefix(strings.TrimSpace(token), signed+".") {
			t.Errorf("%q is let in as %v", token, who)
		}
		if !who.Known() && (w.Code < 400 || w.Code > 403) {
			t.Errorf("%q is answered %d", token, w.Code)
		}
	})
}
