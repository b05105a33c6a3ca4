package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// ValueKind is what an argument that selects a case can be. The zero value is NoValue.
type ValueKind uint8

// The kinds of values, as JSON has them.
const (
	NoValue      ValueKind = iota // missing, null, an object or an array: no case is that
	TextValue                     // a string
	NumberValue                   // a number
	BooleanValue                  // true or false
)

// ValueKinds is the number of kinds, for arrays indexed by ValueKind.
const ValueKinds = int(BooleanValue) + 1

var valueKinds = [ValueKinds]string{"no value", "text", "number", "boolean"}

// String returns "text", "number" or "boolean", and "no value" for NoValue.
func (k ValueKind) String() string {
	if int(k) < ValueKinds {
		return valueKinds[k]
	}
	return fmt.Sprintf("ValueKind(%d)", uint8(k))
}

// Argument is the value of one argument of a call, as far as cases compare it. Two are
// equal, and == says so, if they are of one kind and the same text, number or boolean:
// numbers are compared by value and exactly. The zero value is no value.
type Argument struct {
	kind ValueKind
	text string // a number's and a boolean's is the one way to write it that they have here
}

// Kind returns what the argument is.
func (a Argument) Kind() ValueKind { return a.kind }

// String returns the text as it is, and a number or boolean in the one way to write it.
func (a Argument) String() string { return a.text }

// Arguments are those of a call, as far as cases look at them.
type Arguments interface {
	// Argument returns the argument at a path: the first name is an argument's, each
	// further one a member's of the object before it. It returns the zero value where there
	// is none, and never looks into arrays.
	Argument(path []string) Argument
}

// Lookup is a function that is Arguments; nil has none.
type Lookup func(path []string) Argument

// Argument implements [Arguments].
func (l Lookup) Argument(path []string) Argument {
	if l == nil {
		return Argument{}
	}
	return l(path)
}

// Text returns the argument that is a text, decoded.
func Text(text string) Argument { return Argument{TextValue, text} }

// Literal returns the argument that JSON writes without quotes: a number or a boolean. All
// else, and a number whose exponent has more than 18 digits, is no value.
func Literal(json string) Argument {
	if json == "true" || json == "false" {
		return Argument{BooleanValue, json}
	}
	if n := canonicalNumber(json); n != "" {
		return Argument{NumberValue, n}
	}
	return Argument{}
}

// maxExponent is how many digits an exponent may have: so it fits into an int64 together
// with the number's own digits.
const maxExponent = 18

// canonicalNumber writes a JSON number in the one way that all numbers of its value have:
// its digits without zeros around them, and the power of ten that they are multiplied by.
// It returns "" for what is no number. It takes time in proportion to the text, whatever
// the exponent.
func canonicalNumber(text string) string {
	sign, rest := "", text
	if strings.HasPrefix(rest, "-") {
		sign, rest = "-", rest[1:]
	}
	whole, rest := digits(rest)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return ""
	}
	if rest == "" && whole[len(whole)-1] != '0' {
		return text
	}
	fraction := ""
	if strings.HasPrefix(rest, ".") {
		if fraction, rest = digits(rest[1:]); fraction == "" {
			return ""
		}
	}
	power, fits, ok := exponent(rest)
	all := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(all, "0")
	switch {
	case !ok:
		return ""
	case significant == "": // -0 too
		return "0"
	case !fits:
		return ""
	}
	power += int64(len(all)-len(significant)) - int64(len(fraction))
	if power == 0 {
		return sign + significant
	}
	return sign + significant + "e" + strconv.FormatInt(power, 10)
}

// digits cuts a text behind the digits with which it begins.
func digits(text string) (number, rest string) {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	return text[:i], text[i:]
}

// exponent reads what stands behind a number's digits: nothing, or its exponent. fits is
// false where that has more digits than are read, ok where it is neither.
func exponent(text string) (power int64, fits, ok bool) {
	if text == "" {
		return 0, true, true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return 0, false, false
	}
	sign, text := "", text[1:]
	if text != "" && (text[0] == '+' || text[0] == '-') {
		sign, text = text[:1], text[1:]
	}
	number, rest := digits(text)
	if number == "" || rest != "" {
		return 0, false, false
	}
	if number = strings.TrimLeft(number, "0"); len(number) > maxExponent {
		return 0, false, true
	}
	power, _ = strconv.ParseInt(sign+"0"+number, 10, 64)
	return power, true, true
}

// caseName is how entries, metrics and messages call a case: a text as it is, a number and
// a boolean as the file has them. A text that could be taken for one of those is quoted,
// so that no two cases of a binding have one name.
func caseName(written string, a Argument) string {
	switch {
	case a.kind == BooleanValue:
		return a.text
	case a.kind == TextValue && (strings.HasPrefix(written, `"`) || Literal(written).kind != NoValue):
		return strconv.Quote(written)
	}
	return written
}
