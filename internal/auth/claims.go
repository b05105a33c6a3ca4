package auth

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

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
	unreadable   = invalid("the token cannot be read")
	otherIssuer  = invalid("the token was issued by somebody else")
	otherReach   = invalid("the token is for another audience")
	expired      = invalid("the token has expired")
	endless      = invalid("the token does not say when it expires")
	early        = invalid("the token is not valid yet")
	nobody       = invalid("the token does not say whose it is")
	oddSubject   = invalid("the token's subject is not one that can be written down")
	noAccess     = invalid("the token is of a kind that gives no access")
	oddAlgorithm = invalid("the token's algorithm is not accepted")
	unsigned     = invalid("the token was signed by none of the issuer's keys")
)

func readClaims(payload []byte) (*claims, *denial) {
	c := &claims{}
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
	case c.reach(cfg.Audiences).none():
		return otherReach
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

// reach is what a token opens: all that is served, or the runs whose URLs it is for.
type reach struct {
	all  bool
	runs []string // ids
}

// reach is what the token opens of these audiences.
func (c *claims) reach(audiences []string) (to reach) {
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

func (to reach) none() bool { return !to.all && to.runs == nil }

// opens reports whether a run is within it, "" for all that is served beside runs with
// a URL of their own.
func (to reach) opens(run string) bool { return to.all || run != "" && slices.Contains(to.runs, run) }

// instant is a NumericDate (RFC 7519, section 2), of this side of the year 9999.
func instant(seconds float64) time.Time {
	whole, part := math.Modf(min(max(seconds, 0), 253402300799))
	return time.Unix(int64(whole), int64(part*1e9))
}

// maxName is how long a name may be, in bytes.
const maxName = 512

// plainName reports whether a name can stand in a log as it is.
func plainName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, unprintable)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// lacks reports whether one of these scopes is missing.
func (c *claims) lacks(scopes []string) bool {
	return slices.ContainsFunc(scopes, func(scope string) bool { return !c.Scope.has(scope) && !c.Scp.has(scope) })
}
