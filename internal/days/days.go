// Package days reads durations that may be written in days: what is kept for long is kept for days.
package days

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// day has 24 hours, also where a clock is changed for the summer.
const day = 24 * time.Hour

// Pattern is what [Parse] reads as a schema says it, but for the sign.
const Pattern = `^([0-9]+d|([0-9]+d)?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`

// Parse reads "30d", "1d12h", and what [time.ParseDuration] does.
func Parse(text string) (time.Duration, error) {
	digits, rest, has := strings.Cut(text, "d")
	if !has {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || digits[0] == '+' || n < 0 || digits[0] == '-' || n > math.MaxInt64/int64(day) {
		return 0, fmt.Errorf("%q is no duration: days come first, and are a whole number", text)
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || rest[0] == '-' || rest[0] == '+' || more > math.MaxInt64-d {
		return 0, fmt.Errorf("%q is no duration: behind its days are hours, minutes and seconds", text)
	}
	return d + more, nil
}

// Value is the value of a flag that takes a duration, as pflag wants it.
type Value time.Duration

// Set reads a duration.
func (v *Value) Set(text string) error {
	d, err := Parse(text)
	if err == nil {
		*v = Value(d)
	}
	return err
}

// String is the duration as [time.Duration.String] has it.
func (v *Value) String() string { return time.Duration(*v).String() }

// Type names the value in a help.
func (v *Value) Type() string { return "duration" }
