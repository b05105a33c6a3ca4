package strictyaml

import (
	"regexp"
	"strconv"
)

// durations is what a duration is written as: whole hours, minutes and seconds, in this order.
const durations = `^([0-9]{1,6}h([0-9]{1,6}m)?([0-9]{1,8}s)?|[0-9]{1,6}m([0-9]{1,8}s)?|[0-9]{1,8}s)$`

var duration = regexp.MustCompile(durations)

// DurationSchema is the schema of what [ReadDuration] reads. It knows no bounds.
func DurationSchema() *Schema { return &Schema{Type: "string", Pattern: durations} }

// units are those of durations, and how many seconds they have.
var units = [...]struct {
	sign    byte
	seconds int
}{{'h', 3600}, {'m', 60}, {'s', 1}}

// ReadDuration reads a duration, such as 30s, 10m or 1h30m, in seconds.
func ReadDuration(text string) (seconds int, ok bool) {
	if !duration.MatchString(text) {
		return 0, false
	}
	n := 0
	for i := range len(text) {
		if text[i] >= '0' && text[i] <= '9' {
			n = 10*n + int(text[i]-'0')
			continue
		}
		for _, unit := range units {
			if unit.sign == text[i] {
				seconds += n * unit.seconds
			}
		}
		n = 0
	}
	return seconds, true
}

// Duration reads a duration between two others, in seconds, and returns 0 where there is none.
func (r *Reader) Duration(e Entry, least, most int) (seconds int) {
	const want = "a duration, such as 30s or 1h30m"
	t, ok := r.Scalar(e, want)
	if !ok {
		return 0
	}
	seconds, ok = ReadDuration(t.Value)
	within := "write a duration from " + DurationText(least) + " to " + DurationText(most)
	switch {
	case !ok:
		r.Errorf(t.Place, "duration", "%s: %s is no duration; write whole hours, minutes and seconds, such as 30s, 10m or 1h30m", e.Name(), Quote(t.Value))
	case seconds < least:
		r.Errorf(t.Place, "duration", "%s: %s is too short; %s", e.Name(), t.Value, within)
	case seconds > most:
		r.Errorf(t.Place, "duration", "%s: %s is too long; %s", e.Name(), t.Value, within)
	default:
		return seconds
	}
	return 0
}

// DurationText writes a duration as [ReadDuration] reads it, without what is zero in it.
func DurationText(seconds int) string {
	if seconds == 0 {
		return "0s"
	}
	text := ""
	for _, unit := range units {
		if n := seconds / unit.seconds; n > 0 {
			text += strconv.Itoa(n) + string(unit.sign)
		}
		seconds %= unit.seconds
	}
	return text
}
