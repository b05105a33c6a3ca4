package syntax

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// audience is what for says, as parts of an expression over who that all have to hold.
type audience struct{ parts []string }

// audienceKeys are the keys of for.
func audienceKeys(*audience) []field[audience] {
	values := func() *schema {
		return &schema{AnyOf: []*schema{textSchema(), {Type: "array", Items: textSchema(), MinItems: 1}}}
	}
	texts := func(part func(list string) string) func(*reader, entry, *audience) {
		return func(r *reader, e entry, into *audience) {
			if list, ok := readAnyOf(r, e, false); ok {
				into.parts = append(into.parts, part(list))
			}
		}
	}
	return []field[audience]{
		key("subject", "Who it is to the issuer: a name of a token file, a token's sub, a certificate's subject.", values,
			texts(func(list string) string { return "who.subject in " + list })),
		key("issuer", "Who vouches for the subject.", values, texts(func(list string) string { return "who.issuer in " + list })),
		key("scope", "What the token is good for.", values, texts(func(list string) string { return "who.scopes.exists(s, s in " + list + ")" })),
		key("claim", "Claims of the token by their whole names: a claim's value, or a list that it is, has the value.", strictyaml.Map(values), readClaims),
	}
}

// readAudience reads whom something is for.
func readAudience[T any](of func(*T) *Text) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		if !r.Mapping(e, "a mapping, such as {scope: build}") {
			return
		}
		var a audience
		strictyaml.ReadFields(r, e.Value, "for", audienceKeys(&a), &a)
		if len(e.Value.Content) == 0 {
			r.Errorf(strictyaml.PlaceOf(e.Value), "value", "for: an empty mapping is for nobody; remove it, or name a subject, issuer, scope or claim")
		}
		*of(into) = Text{Place: e.Place(), Value: strings.Join(a.parts, " && "), Given: len(a.parts) > 0}
	}
}

// readAnyOf reads a value, or a list of some, as a list of CEL's. Where they may be of any type those without
// quotes are what YAML reads.
func readAnyOf(r *reader, e entry, typed bool) (list string, ok bool) {
	nodes := []*yaml.Node{e.Value}
	if e.Value.Kind == yaml.SequenceNode {
		if nodes = e.Value.Content; len(nodes) == 0 {
			r.Errorf(strictyaml.PlaceOf(e.Value), "value", "%s: an empty list is for nobody; remove it, or name what is allowed", e.Name())
			return "", false
		}
	}
	var values []string
	for _, n := range nodes {
		n = strictyaml.Resolve(n)
		if n.Kind != yaml.ScalarNode || strictyaml.IsNothing(n) || n.Value == "" {
			r.WrongType(entry{Key: e.Key, Value: n}, "a value, or a list of values")
			return "", false
		}
		value := strconv.Quote(n.Value)
		switch {
		case !typed || !strictyaml.IsResolved(n):
		case n.Tag == "!!bool":
			value = strings.ToLower(n.Value)
		case n.Tag == "!!int" || n.Tag == "!!float":
			f, err := strconv.ParseFloat(n.Value, 64)
			if err != nil {
				r.WrongType(entry{Key: e.Key, Value: n}, "a number as JSON writes it, or a text in quotes")
				return "", false
			}
			if value = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(value, ".") {
				value += ".0"
			}
		}
		values = append(values, value)
	}
	return "[" + strings.Join(values, ", ") + "]", true
}

func readClaims(r *reader, e entry, into *audience) {
	if !r.Mapping(e, "a mapping of claims, such as {team: payments}") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		if list, ok := readAnyOf(r, x, true); ok {
			claim := "who.claims[" + strconv.Quote(x.Name()) + "]"
			into.parts = append(into.parts, "(type("+claim+") == list ? "+claim+".exists(v, v in "+list+") : "+claim+" in "+list+")")
		}
	}
	if len(e.Value.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "value", "claim: none is named; remove it, or name one")
	}
}
