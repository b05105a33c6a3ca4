package auth

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// IssuerConfig says whose access tokens are accepted. URL and Audiences are
// required.
type IssuerConfig struct {
	// URL is the issuer, letter by letter as its tokens have it. It is https, but on
	// this machine.
	URL string
	// Audiences are whom tokens may be for: one of these is enough.
	Audiences []string
	// Scopes are what a token must have, all of it.
	Scopes []string
	// Algorithms are the signatures that are accepted, of [Algorithms]; none:
	// [DefaultAlgorithms].
	Algorithms []string
	// Skew is how far the issuer's clock may be off.
	Skew time.Duration
	// Keys are its keys, as a JWK set, kept up to date by [Issuer.SetKeys]; nil: they
	// are fetched from where the issuer says they are.
	Keys []byte
	Log  hclog.Logger // nil: none
}

// Check says what is wrong with it, and fills in what was left out.
func (c *IssuerConfig) Check() error {
	if err := checkURL(c.URL); err != nil {
		return fmt.Errorf("the issuer %w", err)
	}
	if len(c.Audiences) == 0 {
		return errors.New("no audience is given: a token that is for somebody else would be as good as one for this proxy")
	}
	if len(c.Algorithms) == 0 {
		c.Algorithms = DefaultAlgorithms
	}
	for _, name := range c.Algorithms {
		if !slices.Contains(Algorithms, name) {
			return fmt.Errorf("the algorithm %q is none of %s", name, strings.Join(Algorithms, ", "))
		}
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	return nil
}

// Issuer verifies the access tokens of one issuer: JWTs (RFC 9068). It is safe for
// concurrent use, and is ended by [Issuer.Close].
type Issuer struct {
	cfg        IssuerConfig
	algorithms []jose.SignatureAlgorithm
	keys       source
	known      cache // tokens that open all
	ofRuns     cache // others, by inRun

	end     context.CancelFunc
	running sync.WaitGroup
}

// NewIssuer begins to fetch the issuer's keys, or reads those that are given. An
// issuer that cannot be reached is no error: that is tried again and again.
func NewIssuer(cfg IssuerConfig) (*Issuer, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	i := &Issuer{cfg: cfg, end: func() {}}
	i.known.init()
	i.ofRuns.init()
	for _, name := range cfg.Algorithms {
		i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(name))
	}
	if cfg.Keys != nil {
		i.keys = &held{}
		return i, i.SetKeys(cfg.Keys)
	}
	i.fetch(newFetcher(cfg.URL).keys)
	return i, nil
}

// fetch keeps the keys what a function gets.
func (i *Issuer) fetch(get func(context.Context) (*keySet, error)) {
	f := newFetched(get, i.cfg.Log)
	ctx, end := context.WithCancel(context.Background())
	i.keys, i.end = f, end
	i.running.Go(func() { f.run(ctx) })
}

// SetKeys replaces the keys that were given. After an error those from before stay.
func (i *Issuer) SetKeys(jwks []byte) error {
	set, err := readKeys(jwks)
	if err == nil {
		i.keys.(*held).set.Store(set)
	}
	return err
}

// Close ends the fetching of keys.
func (i *Issuer) Close() {
	i.end()
	i.running.Wait()
}

var unavailable = &denial{streamhttp.ReasonUnverified, http.StatusServiceUnavailable, "",
	"tokens cannot be verified yet, since the issuer's keys are not known: try again soon"}

// holder says whose token it is that a request shows for a run that has a URL of its
// own, or for none ("").
func (i *Issuer) holder(ctx context.Context, sum [32]byte, token, run string) (wire.Principal, *denial) {
	now := time.Now()
	if who, ok := i.known.find(sum, i.keys.current(), now); ok {
		return who, nil
	}
	if who, ok := i.ofRuns.find(inRun(sum, run), i.keys.current(), now); ok {
		return who, nil
	}
	c, set, no := i.verify(ctx, token)
	if no == nil {
		no = c.fault(&i.cfg, now)
	}
	if no == nil && c.lacks(i.cfg.Scopes) {
		no = insufficient
	}
	var to reach
	if no == nil {
		if to = c.reach(i.cfg.Audiences); !to.opens(run) {
			no = otherReach
		}
	}
	if no != nil {
		i.cfg.Log.Debug("a token is not accepted", "why", no.text)
		return wire.Principal{}, no
	}
	who := wire.Principal{Issuer: i.cfg.URL, Subject: c.Subject}
	k := known{who: who, keys: set, until: instant(*c.Expires).Add(i.cfg.Skew)}
	if to.all {
		i.known.put(sum, k)
	} else {
		i.ofRuns.put(inRun(sum, run), k)
	}
	return who, nil
}

// inRun is under what a token is remembered for one run.
func inRun(sum [32]byte, run string) [32]byte { return digest(string(sum[:]) + run) }

// insufficient is a token that is good, and does not reach as far as here.
var insufficient = &denial{streamhttp.ReasonScope, http.StatusForbidden, "insufficient_scope", "the token lacks a scope that is needed here"}

// kinds are the types of tokens that give access (RFC 9068, section 2.1), in lower
// case; most issuers say "JWT", or nothing.
var kinds = []string{"jwt", "at+jwt", "application/at+jwt"}

func givesAccess(header jose.Header) bool {
	kind, given := header.ExtraHeaders[jose.HeaderType]
	text, _ := kind.(string)
	return !given || slices.Contains(kinds, strings.ToLower(text))
}

// verify checks who has signed a token, and returns what it says with the keys that
// were used.
func (i *Issuer) verify(ctx context.Context, token string) (*claims, *keySet, *denial) {
	jws, err := jose.ParseSignedCompact(token, i.algorithms)
	if err != nil {
		return nil, nil, unparsed(err)
	}
	if !givesAccess(jws.Signatures[0].Protected) {
		return nil, nil, noAccess
	}
	set := i.keys.find(ctx, jws.Signatures[0].Protected.KeyID)
	if set == nil {
		return nil, nil, unavailable
	}
	check := &check{jws: jws, set: set}
	said, err := oidc.NewVerifier(i.cfg.URL, check, &oidc.Config{
		SupportedSigningAlgs: i.cfg.Algorithms, SkipClientIDCheck: true, SkipExpiryCheck: true, SkipIssuerCheck: true, // fault looks at those
	}).Verify(ctx, token)
	switch {
	case !check.signed:
		return nil, nil, unsigned
	case err != nil:
		return nil, nil, unreadable
	}
	var payload jsontext.Value
	if said.Claims(&payload) != nil {
		return nil, nil, unreadable
	}
	c, no := readClaims(payload)
	return c, set, no
}

func unparsed(err error) *denial {
	if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return oddAlgorithm
	}
	return unreadable
}

// check is one look at a signature, as [oidc.KeySet].
type check struct {
	jws    *jose.JSONWebSignature
	set    *keySet
	signed bool
}

// VerifySignature returns what the token says, if it was signed by a key of the set.
func (c *check) VerifySignature(context.Context, string) (payload []byte, err error) {
	if payload, c.signed = c.set.verify(c.jws); !c.signed {
		return nil, errors.New("verifying a token: none of the keys has signed it")
	}
	return payload, nil
}
