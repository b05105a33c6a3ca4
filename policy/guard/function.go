package guard

import (
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// words cuts a text into words of letters, digits and _@+=:,./- with spaces between them.
func words(text string) ([]string, *Error) {
	for _, c := range []byte(text) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == ' ', strings.IndexByte("_@+=:,./-", c) >= 0:
		default:
			return nil, notEvaluable("words: a character that is no letter, digit, space or one of _@+=:,./-")
		}
	}
	fields := strings.Fields(text)
	if len(fields) > 0 && assignment(fields[0]) {
		return nil, notEvaluable("words: the first word is an assignment to a shell")
	}
	return fields, nil
}

// assignment reports whether a shell reads a first word as NAME=value and takes the next one for the command.
func assignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	name = strings.TrimSuffix(name, "+")
	return ok && name != "" && !strings.ContainsAny(name, "@+:,./-") && (name[0] < '0' || name[0] > '9')
}

// pathUnder reports whether an absolute path is root or stands beneath it. Where a file system may see it
// otherwise, it is an error.
func pathUnder(path, root string) (bool, *Error) {
	of, err := segments(path)
	if err != nil {
		return false, err
	}
	under, err := segments(root)
	if err != nil {
		return false, err
	}
	for i, want := range under {
		if i == len(of) {
			return false, nil
		}
		if of[i] == want {
			continue
		}
		if strings.EqualFold(of[i], want) {
			return false, notEvaluable("path_under: the path is under the root but for upper and lower case")
		}
		for _, s := range [...]string{of[i], want} {
			if !plainName(s) {
				return false, notEvaluable("path_under: file systems differ in whether %q and %q are one name", of[i], want)
			}
		}
		return false, nil
	}
	return true, nil
}

// plainName reports whether a name of a file has one spelling, except for its case: some file systems compose
// and leave out characters, drop dots and spaces at the end, and know short names (A~1) and streams (a::$DATA).
func plainName(name string) bool {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf || name[i] == '~' || name[i] == ':' {
			return false
		}
	}
	return !strings.HasSuffix(name, ".") && !strings.HasSuffix(name, " ")
}

// segments cuts an absolute path at its slashes; one at the end is left out.
func segments(path string) ([]string, *Error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil, notEvaluable("path_under: a relative path")
	}
	for _, c := range path {
		if c < ' ' || 0x7f <= c && c <= 0x9f || c == '%' || c == '\\' || c == utf8.RuneError {
			return nil, notEvaluable("path_under: a path with a %q", c)
		}
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" && len(path) <= 1 {
		return nil, nil
	}
	segments := strings.Split(rest, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return nil, notEvaluable("path_under: a path with a segment %q", s)
		}
	}
	return segments, nil
}

// host returns the host of an absolute URL of http or https, in lower case. Where those who read URLs could find
// another host in it, it is an error (RFC 3986, section 3.2; https://url.spec.whatwg.org reads more as a URL).
func host(url string) (string, *Error) {
	rest, ok := strings.CutPrefix(url, "https://")
	if !ok {
		if rest, ok = strings.CutPrefix(url, "http://"); !ok {
			return "", notEvaluable("host: a text that does not begin with http:// or https://")
		}
	}
	for _, c := range rest {
		if c <= ' ' || 0x7f <= c && c <= 0x9f || c == '\\' || c == utf8.RuneError {
			return "", notEvaluable("host: a URL with a %q", c)
		}
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	name, port, ported := strings.Cut(rest, ":")
	if n, err := strconv.ParseUint(port, 10, 16); ported && (err != nil || n == 0 || port[0] < '1' || port[0] > '9') {
		return "", notEvaluable("host: a URL with the port %q", port)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !plainLabel(label) {
			return "", notEvaluable("host: a URL with the host %q", name)
		}
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' { // which is an address to some, in many spellings
		if at, err := netip.ParseAddr(name); err != nil || !at.Is4() {
			return "", notEvaluable("host: a URL with the host %q", name)
		}
	}
	return strings.ToLower(name), nil
}

// plainLabel reports whether a text is a part of a host's name that has one spelling, except for its case.
func plainLabel(label string) bool {
	for _, c := range []byte(label) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return label != "" && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-'
}

// parse returns the value of a JSON text, read strictly.
func parse(text string) (ref.Val, *Error) {
	raw := []byte(text)
	if err := scan(raw, nil, nil); err != nil {
		return nil, notEvaluable("json: %s", err.message)
	}
	v, err := decode(raw, nil)
	if err != nil {
		return nil, notEvaluable("json: %s", err.message)
	}
	return v, nil
}

// ours are the functions that standard CEL has not.
func ours() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("words", cel.Overload("words_string", []*cel.Type{cel.StringType}, cel.ListType(cel.StringType),
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				fields, err := words(string(v.(types.String)))
				if err != nil {
					return types.WrapErr(err)
				}
				return types.NewStringList(types.DefaultTypeAdapter, fields)
			}))),
		cel.Function("path_under", cel.Overload("path_under_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(path, root ref.Val) ref.Val {
				under, err := pathUnder(string(path.(types.String)), string(root.(types.String)))
				if err != nil {
					return types.WrapErr(err)
				}
				return types.Bool(under)
			}))),
		cel.Function("host", cel.Overload("host_string", []*cel.Type{cel.StringType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				name, err := host(string(v.(types.String)))
				if err != nil {
					return types.WrapErr(err)
				}
				return types.String(name)
			}))),
		cel.Function("json", cel.Overload("json_string", []*cel.Type{cel.StringType}, cel.DynType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				value, err := parse(string(v.(types.String)))
				if err != nil {
					return types.WrapErr(err)
				}
				return value
			}))),
	}
}

// The costs of calls. CEL's own tracker goes by overload, which is not known of a call on an argument, and takes
// its price after the work is done. So here prices go by function and values, and bounded says no to work that
// is too much before it begins.

// maxCost is what one evaluation may cost.
const maxCost = 100_000

// matchRate is how many instructions, on ten bytes each, make a unit.
const matchRate = 50

// maxRegex is how many instructions a regular expression may have.
const maxRegex = 1000

// prices tell what calls cost; they know the program's regular expressions, and how many instructions each has.
type prices map[string]int

// CallCost implements cost.ActualCostEstimator.
func (p prices) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	price := uint64(1)
	switch function {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		price = uint64(min(weigh(args[0], maxCost), weigh(args[1], maxCost)))
	case operators.In:
		if _, ok := args[1].(*set); !ok {
			price = uint64(weigh(args[1], maxCost))
		}
	case operators.Add:
		if _, ok := result.(traits.MutableLister); ok {
			break // a loop's, to which one element is added
		}
		price = uint64(max(1, length(result)))
	case overloads.Contains:
		price = uint64(1 + length(args[0])*(1+length(args[1]))/4)
	case "json":
		price = uint64(1 + length(args[0])/4)
	case overloads.Matches:
		pattern, _ := args[1].(types.String)
		price = uint64(1 + length(args[0])*p[string(pattern)]/matchRate)
	case overloads.Size, overloads.StartsWith, overloads.EndsWith, "words", "path_under", "host",
		overloads.TypeConvertString, overloads.TypeConvertBytes, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration:
		for _, a := range args {
			if _, ok := a.(traits.Lister); !ok {
				price += uint64(length(a) / 4)
			}
		}
	}
	return &price
}

// length returns a tenth of a text's length, and a list's.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v) / 10
	case types.Bytes:
		return len(v) / 10
	case *set:
		return 0
	case traits.Lister:
		n, _ := v.Size().(types.Int)
		return int(n)
	}
	return 0
}

// tooMuch ends an evaluation, as CEL's tracker does.
func tooMuch() {
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: errCost.message})
}

// bounded replaces the operations that may take long by ones that look at their arguments first.
func bounded(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	var op functions.FunctionOp
	switch call.Function() {
	case operators.Equals:
		op = func(args ...ref.Val) ref.Val { return equal(args[0], args[1]) }
	case operators.NotEquals:
		op = func(args ...ref.Val) ref.Val {
			same := equal(args[0], args[1])
			if b, ok := same.(types.Bool); ok {
				return !b
			}
			return same
		}
	case operators.In:
		op = in
	case overloads.Matches:
		var err error
		if op, err = matches(call); err != nil {
			return nil, err
		}
	default:
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), op), nil
}

func equal(a, b ref.Val) ref.Val {
	if weigh(a, maxCost) > maxCost && weigh(b, maxCost) > maxCost {
		tooMuch()
	}
	return types.Equal(a, b)
}

func in(args ...ref.Val) ref.Val {
	if _, ok := args[1].(*set); !ok && weigh(args[1], maxCost) > maxCost {
		tooMuch()
	}
	holder, ok := args[1].(traits.Container)
	if !ok {
		return types.WrapErr(notEvaluable("in: a %s holds nothing", args[1].Type().TypeName()))
	}
	return holder.Contains(args[0])
}

// matches compiles a call's regular expression. How long a match takes grows with the text and with the
// expression's instructions.
func matches(call interpreter.InterpretableCall) (functions.FunctionOp, error) {
	pattern := string(call.Args()[1].(interpreter.InterpretableConst).Value().(types.String))
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	size := instructions(pattern)
	return func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		if length(text)*size/matchRate > maxCost {
			tooMuch()
		}
		return types.Bool(compiled.MatchString(string(text)))
	}, nil
}

// instructions returns how many instructions a regular expression has; of one that is wrong, more than are allowed.
func instructions(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return maxRegex + 1
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return maxRegex + 1
	}
	return len(program.Inst)
}
