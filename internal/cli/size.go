package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a flag's value in bytes: a number, with KiB, MiB or GiB after it where
// wanted.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String renders the size in the largest unit that divides it.
func (s *size) String() string {
	for _, u := range sizeUnits {
		if int64(*s) >= u.bytes && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.suffix
		}
	}
	return "0"
}

// Set reads "4MiB", "32 KiB" or "1000".
func (s *size) Set(text string) error {
	digits, unit := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if n := len(digits) - len(u.suffix); n > 0 && strings.EqualFold(digits[n:], u.suffix) {
			digits, unit = strings.TrimSpace(digits[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size; write a number of bytes, or one with KiB, MiB or GiB", text)
	}
	*s = size(n * unit)
	return nil
}

// Type names the value in --help.
func (s *size) Type() string { return "size" }
