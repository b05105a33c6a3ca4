package auth

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
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
	known      cache[[32]byte, *keySet] // tokens that open all, by their SHA-256
	ofRuns     cache[[32]byte, *keySet] // others, by inRun

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
	for _, name := range cfg.Algorithms {
		i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(name))
	}
	if cfg.Keys != nil {
		i.keys = &fixedKeys{}
		return i, i.SetKeys(cfg.Keys)
	}
	i.fetch(newFetcher(cfg.URL).keys)
	return i, nil
}

// fetch keeps the keys what a function gets.
func (i *Issuer) fetch(get func(context.Context) (*keySet, error)) {
	f := newFetchedKeys(get, i.cfg.Log)
	ctx, end := context.WithCancel(context.Background())
	i.keys, i.end = f, end
	i.running.Go(func() { f.run(ctx) })
}

// SetKeys replaces the keys that were given. After an error those from before stay.
func (i *Issuer) SetKeys(jwks []byte) error {
	set, err := readKeys(jwks)
	if err == nil {
		i.keys.(*fixedKeys).set.Store(set)
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
func (i *Issuer) holder(ctx context.Context, sum [32]byte, token, run string) (*asker.Who, *denial) {
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
	var to grant
	if no == nil {
		if to = c.grant(i.cfg.Audiences); !to.opens(run) {
			no = otherAudience
		}
	}
	if no != nil {
		i.cfg.Log.Debug("a token is not accepted", "why", no.text)
		return nil, no
	}
	who := &asker.Who{Issuer: i.cfg.URL, Subject: c.Subject, Scopes: c.scopes(), Claims: c.payload}
	k := known[*keySet]{who: who, by: set, until: instant(*c.Expires).Add(i.cfg.Skew)}
	if to.all {
		i.known.put(sum, k, maxKnown)
	} else {
		i.ofRuns.put(inRun(sum, run), k, maxKnown)
	}
	return who, nil
}

// maxKnown is how many verified tokens are remembered.
const maxKnown = 10_000

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
		if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
			return nil, nil, oddAlgorithm
		}
		return nil, nil, unreadable
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

// claims are what a token says that matters here (RFC 9068, section 2.2). A name
// that stands there twice, or in another case, is no name of these.
type claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Audience  texts    `json:"aud"`
	Expires   *float64 `json:"exp"`
	NotBefore *float64 `json:"nbf"`
	Issued    *float64 `json:"iat"`
	Scope     texts    `json:"scope"`
	Scp       texts    `json:"scp"` // the same at some issuers

	payload []byte // all of what it says
}

// texts is a text, or a list of them.
type texts []string

// UnmarshalJSON reads either.
func (t *texts) UnmarshalJSON(raw []byte) error {
	switch jsontext.Value(raw).Kind() {
	case jsontext.KindString:
		var one string
		err := json.Unmarshal(raw, &one)
		*t = texts{one}
		return err
	case jsontext.KindBeginArray:
		return json.Unmarshal(raw, (*[]string)(t))
	}
	return errors.New("neither a text nor a list")
}

// has reports whether one of the words is there.
func (t texts) has(word string) bool {
	return slices.ContainsFunc(t, func(item string) bool { return slices.Contains(strings.Fields(item), word) })
}

// The faults of tokens that are what they say they are.
var (
	unreadable    = invalid("the token cannot be read")
	otherIssuer   = invalid("the token was issued by somebody else")
	otherAudience = invalid("the token is for another audience")
	expired       = invalid("the token has expired")
	endless       = invalid("the token does not say when it expires")
	early         = invalid("the token is not valid yet")
	nobody        = invalid("the token does not say whose it is")
	oddSubject    = invalid("the token's subject is not one that can be written down")
	noAccess      = invalid("the token is of a kind that gives no access")
	oddAlgorithm  = invalid("the token's algorithm is not accepted")
	unsigned      = invalid("the token was signed by none of the issuer's keys")
)

func readClaims(payload []byte) (*claims, *denial) {
	c := &claims{payload: payload}
	if json.Unmarshal(payload, c) != nil {
		return nil, unreadable
	}
	return c, nil
}

// fault is why the claims let nobody in now; nil: they do.
func (c *claims) fault(cfg *IssuerConfig, now time.Time) *denial {
	switch {
	case c.Issuer != cfg.URL:
		return otherIssuer
	case c.grant(cfg.Audiences).none():
		return otherAudience
	case c.Expires == nil:
		return endless
	case !now.Before(instant(*c.Expires).Add(cfg.Skew)):
		return expired
	case c.NotBefore != nil && now.Add(cfg.Skew).Before(instant(*c.NotBefore)), c.Issued != nil && now.Add(cfg.Skew).Before(instant(*c.Issued)):
		return early
	case c.Subject == "":
		return nobody
	case !plainName(c.Subject):
		return oddSubject
	}
	return nil
}

// grant is what a token opens: all that is served, or the runs whose URLs it is for.
type grant struct {
	all  bool
	runs []string // ids
}

// grant returns what the token opens of these audiences.
func (c *claims) grant(audiences []string) (to grant) {
	for _, whom := range c.Audience {
		for _, own := range audiences {
			if id, of := strings.CutPrefix(whom, own+runs); of && id != "" {
				to.runs = append(to.runs, id)
			}
			to.all = to.all || whom == own
		}
	}
	return to
}

func (to grant) none() bool { return !to.all && to.runs == nil }

// opens reports whether a run is within it, "" for all that is served beside runs with
// a URL of their own.
func (to grant) opens(run string) bool { return to.all || run != "" && slices.Contains(to.runs, run) }

// instant is a NumericDate (RFC 7519, section 2), of this side of the year 9999.
func instant(seconds float64) time.Time {
	whole, part := math.Modf(min(max(seconds, 0), 253402300799))
	return time.Unix(int64(whole), int64(part*1e9))
}

// maxName is how long a name may be, in bytes.
const maxName = 512

// plainName reports whether a name can stand in a log as it is.
func plainName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// scopes are those that the token has, each once.
func (c *claims) scopes() (all []string) {
	for _, item := range slices.Concat(c.Scope, c.Scp) {
		for _, scope := range strings.Fields(item) {
			if !slices.Contains(all, scope) {
				all = append(all, scope)
			}
		}
	}
	return all
}

// lacks reports whether one of these scopes is missing.
func (c *claims) lacks(scopes []string) bool {
	return slices.ContainsFunc(scopes, func(scope string) bool { return !c.Scope.has(scope) && !c.Scp.has(scope) })
}
