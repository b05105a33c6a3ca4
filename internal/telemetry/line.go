package telemetry

import (
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/redact"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// line is one line of the audit being made: the members of its object behind
// number and time, each with a comma in front.
type line struct{ b []byte }

var lines = sync.Pool{New: func() any { return new(line) }}

func newLine(event string) *line {
	l := lines.Get().(*line)
	l.b = l.b[:0]
	l.word("event", event)
	return l
}

// free returns the line to the pool.
func (l *line) free() {
	if cap(l.b) <= 64<<10 {
		lines.Put(l)
	}
}

// appendTo appends the whole line to out, which has its number in an instance.
func (l *line) appendTo(out []byte, instance string, number uint64, at time.Time) []byte {
	out = strconv.AppendUint(append(out, `{"seq":`...), number, 10)
	if instance != "" {
		out = append(append(append(out, `,"instance":"`...), instance...), '"')
	}
	out = at.UTC().AppendFormat(append(out, `,"time":"`...), timeLayout)
	out = append(append(out, '"'), l.b...)
	return append(out, '}', '\n')
}

// decision writes the members of a decision.
func (l *line) decision(d *observe.Decision) {
	switch {
	case d.Fault != observe.Fault{}:
		l.word("decision", "refuse")
		l.word("reason", d.Fault.String())
	case d.Shadow != policy.CodeNone:
		l.word("decision", "shadow")
		l.word("reason", d.Shadow.String())
	default:
		l.word("decision", "allow")
	}
	l.client(d.Peer)
	if d.Message == nil {
		return
	}
	l.about(d.Message, d.Named, d.Kind, d.Name)
	l.text("case", d.Case)
	l.note(d.Note)
	l.text("run", d.Run)
	if d.Seq != 0 {
		l.number("run_seq", int64(d.Seq))
	}
	l.text("approval", d.Approval)
	l.text("said", d.Said)
	l.text("state", d.State)
	l.rule(d.Rule)
	if d.Policy != nil {
		l.word("policy", d.Policy.Digest())
	}
}

// ended writes the members of what came of a decision.
func (l *line) ended(number uint64, of observe.Peer, op *observe.Operation) {
	l.number("of", int64(number))
	if op.Outcome != "" {
		l.word("outcome", op.Outcome)
	}
	l.text("error", op.Fault.String())
	l.text("from", op.From)
	l.text("to", op.To)
	l.text("run", op.Run)
	if op.Seq != 0 {
		l.number("run_seq", int64(op.Seq))
	}
	l.client(of)
	l.about(op.Message, op.Named, op.Kind, op.Name)
	l.number("microseconds", op.Total.Microseconds())
	l.number("upstream_microseconds", op.Upstream.Microseconds())
}

// entry writes the members of what has become of a run.
func (l *line) entry(e *observe.Entry) {
	l.text("verb", e.Verb)
	l.text("type", e.Type)
	l.text("run", e.Run)
	if e.Seq != 0 {
		l.number("run_seq", int64(e.Seq))
	}
	if l.text("parent", e.Parent); e.Parent != "" {
		l.number("fork", int64(e.Fork))
	}
	if e.Begun != 0 {
		l.number("begun", int64(e.Begun))
	}
	if e.Named {
		l.word("kind", e.Kind.String())
		l.text("name", e.Name)
	}
	l.text("outcome", e.Outcome)
	l.text("from", e.From)
	l.text("to", e.To)
	l.rule(e.Rule)
	if e.Policy != nil {
		l.word("policy", e.Policy.Digest())
	}
	l.note(e.Note)
	l.client(e.Peer)
}

// about writes what a request asks for.
func (l *line) about(m *wire.Message, named bool, k policy.Kind, name string) {
	l.text("method", m.Method)
	if named {
		l.word("kind", k.String())
		l.key("name")
		l.b = quoteText(l.b, name)
	}
}

// client writes who asks.
func (l *line) client(p observe.Peer) {
	l.text("session", p.Session)
	l.text("remote", p.Remote)
	l.text("issuer", p.Principal.Issuer)
	l.text("subject", p.Principal.Subject)
}

func (l *line) key(name string) {
	l.b = append(append(append(l.b, `,"`...), name...), `":`...)
}

// word writes a member of our own making.
func (l *line) word(key, value string) {
	l.key(key)
	l.b = append(append(append(l.b, '"'), value...), '"')
}

// text writes a member that may hold anybody's text, if there is any.
func (l *line) text(key, value string) {
	if value != "" {
		l.key(key)
		l.b = quoteText(l.b, value)
	}
}

// note writes what somebody wrote for the record, which is bounded, and not cut.
func (l *line) note(text string) {
	if text != "" {
		l.key("note")
		l.b = append(appendVisible(append(l.b, '"'), text, true), '"')
	}
}

// rule writes where the binding stands that decided, as [policy.Rule.String] does.
func (l *line) rule(r policy.Rule) {
	if r.Line == 0 {
		return
	}
	l.key("rule")
	l.b = appendVisible(append(l.b, '"'), r.File, true)
	l.b = strconv.AppendInt(append(l.b, ':'), int64(r.Line), 10)
	l.b = append(strconv.AppendInt(append(l.b, ':'), int64(r.Column), 10), '"')
}

// timeLayout is RFC 3339 to the microsecond.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

func (l *line) time(key string, at time.Time) {
	l.key(key)
	l.b = append(at.UTC().AppendFormat(append(l.b, '"'), timeLayout), '"')
}

func (l *line) number(key string, n int64) {
	l.key(key)
	l.b = strconv.AppendInt(l.b, n, 10)
}

// maxArguments is how many bytes of arguments are recorded as they are. Of longer
// ones the beginning is, as a text.
const maxArguments = 16 << 10

// arguments writes the arguments of a call, without what is taken out of them.
func (l *line) arguments(sent []byte, taken *redact.Redaction) {
	raw, err := taken.Of(sent)
	if err != nil { // others may read them otherwise
		l.number("arguments_bytes", int64(len(sent)))
		return
	}
	if len(raw) <= maxArguments {
		l.key("arguments")
		l.b = appendVisible(l.b, string(raw), false)
		return
	}
	l.key("arguments_cut")
	l.b = append(appendVisible(append(l.b, '"'), string(raw[:maxArguments]), true), '"')
	l.number("arguments_bytes", int64(len(raw)))
}

// quoteText appends a text as a JSON string, cut where it is long.
func quoteText(out []byte, text string) []byte {
	out = append(out, '"')
	if len(text) > maxText {
		return append(appendVisible(out, text[:maxText], true), `…"`...)
	}
	return append(appendVisible(out, text, true), '"')
}

// appendVisible appends text with what does not print escaped as JSON has it, so
// that a line is one line, and no terminal takes it for a command. Of a text to be
// quoted quotes and backslashes are escaped as well; of JSON line breaks between
// tokens, where alone they can be, become spaces.
func appendVisible(out []byte, text string, quoted bool) []byte {
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < 0x7f {
			if quoted && (c == '"' || c == '\\') {
				out = append(out, '\\')
			}
			out = append(out, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch {
		case !quoted && (r == '\n' || r == '\r' || r == '\t'):
			out = append(out, ' ')
		case r == utf8.RuneError || !unicode.IsPrint(r):
			out = appendEscaped(out, r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

func appendEscaped(out []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		return appendUnit(appendUnit(out, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	return appendUnit(out, r)
}

func appendUnit(out []byte, unit rune) []byte {
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[unit>>12&15], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
}
