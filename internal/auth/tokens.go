package auth

import (
	"encoding/hex"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// TokensIssuer is the issuer of all who have a token of a token file.
const TokensIssuer = "tokens"

// Tokens are the principals of a token file, by the SHA-256 of their tokens: who
// reads the file can use none of them. The zero Tokens are none. It is safe for
// concurrent use.
type Tokens struct {
	all atomic.Pointer[map[[32]byte]*asker.Who]
}

// Set reads a token file, and replaces the tokens by its own, at once. name is put into
// findings. After an error the tokens from before stay.
func (t *Tokens) Set(name string, src []byte) strictyaml.Findings {
	r := strictyaml.NewReader(name, tokenLanguage)
	root := r.Tree(src)
	if root == nil {
		return r.Findings()
	}
	into := tokenFile{all: make(map[[32]byte]*asker.Who)}
	strictyaml.ReadFields(r, root, tokenLanguage.Name, tokenFields, &into)
	if !into.version {
		r.Errorf(strictyaml.PlaceOf(root), "version", "version is missing; write \"version: 1\"")
	}
	if r.OK() {
		t.all.Store(&into.all)
	}
	return r.Findings()
}

// holder says who has the token of this SHA-256. The time that a look-up takes tells
// of the hash at most, from which nobody finds a token.
func (t *Tokens) holder(sum [32]byte) (*asker.Who, bool) {
	all := t.all.Load()
	if all == nil {
		return nil, false
	}
	who, ok := (*all)[sum]
	return who, ok
}

// tokenLanguage is the token file in messages. Somebody may have written a token
// where its hash belongs, so no message repeats a value.
var tokenLanguage = strictyaml.Language{Name: "a token file", Begin: `"version: 1" and "tokens:"`, Secrets: true}

// tokenFile is a token file while it is read.
type tokenFile struct {
	version bool
	all     map[[32]byte]*asker.Who
}

type tokenField = strictyaml.Field[tokenFile]

var tokenFields = []tokenField{
	{Name: "version", Read: func(r *strictyaml.Reader, e strictyaml.Entry, into *tokenFile) {
		into.version = true
		r.Version(e)
	}},
	{Name: "tokens", Read: func(r *strictyaml.Reader, e strictyaml.Entry, into *tokenFile) {
		if e.Value.Kind != yaml.MappingNode {
			r.Errorf(e.Place(), "type", "tokens: wants a mapping of names to hashes, like \"ann: sha256:…\"")
			return
		}
		for _, owner := range r.Entries(e.Value) {
			into.owner(r, owner)
		}
	}},
}

// owner reads one principal's hashes: one, or a list of them while a token is
// replaced by another.
func (f *tokenFile) owner(r *strictyaml.Reader, e strictyaml.Entry) {
	if !plainName(e.Name()) {
		r.Errorf(e.Place(), "name", "a name has 1 to %d bytes, all of them printable", maxName)
		return
	}
	who := &asker.Who{Issuer: TokensIssuer, Subject: e.Name()}
	if e.Value.Kind != yaml.SequenceNode {
		f.token(r, e.Value, who)
		return
	}
	for _, item := range e.Value.Content {
		f.token(r, strictyaml.Resolve(item), who)
	}
}

func (f *tokenFile) token(r *strictyaml.Reader, n *yaml.Node, who *asker.Who) {
	sum, ok := hashIn(n)
	if !ok {
		r.Errorf(strictyaml.PlaceOf(n), "value", "the token of %s is given by its hash: \"sha256:\" and 64 hex digits, "+
			"as 'printf %%s TOKEN | sha256sum' prints them", strictyaml.Quote(who.Subject))
		return
	}
	if other, taken := f.all[sum]; taken {
		r.Errorf(strictyaml.PlaceOf(n), "duplicate", "the token of %s is %s's as well; each needs its own", strictyaml.Quote(who.Subject), strictyaml.Quote(other.Subject))
		return
	}
	f.all[sum] = who
}

func hashIn(n *yaml.Node) (sum [32]byte, ok bool) {
	text, ok := strings.CutPrefix(n.Value, "sha256:")
	raw, err := hex.DecodeString(text)
	if n.Kind != yaml.ScalarNode || !ok || err != nil || len(raw) != len(sum) {
		return sum, false
	}
	return [32]byte(raw), true
}
