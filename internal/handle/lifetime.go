package handle

import (
	"strconv"
	"time"
)

// Lifetime is how long a run lasts. Zero is without end.
type Lifetime struct {
	Idle time.Duration // from its last use
	Age  time.Duration // from its beginning
}

// String is the rest of a sentence that begins with "a run ends".
func (l Lifetime) String() string {
	idle := "when it has not been used for " + inWords(l.Idle)
	switch {
	case l.Idle <= 0 && l.Age <= 0:
		return "when " + EndName + " is called"
	case l.Age <= 0:
		return idle
	case l.Idle <= 0:
		return inWords(l.Age) + " after it began"
	}
	return idle + ", and at the latest " + inWords(l.Age) + " after it began"
}

// inWords is a duration in the largest unit of which it is a multiple.
func inWords(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / u.unit; {
		case d%u.unit != 0:
		case n == 1:
			return "1 " + u.name
		default:
			return strconv.FormatInt(int64(n), 10) + " " + u.name + "s"
		}
	}
	return d.String()
}
