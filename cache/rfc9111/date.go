package rfc9111

import (
	"net/http"
	"strings"
	"time"

	"millrace/internal/wire/field"
)

// ParseDate reads an HTTP date in any of its three forms (RFC 9110, 5.6.7), to
// the letter but for upper and lower case: no other zone than GMT, no missing
// digits, no other whitespace. The name of the day is not held against the
// date. A two-digit year more than 50 years after now is in the century before.
func ParseDate(s string, now time.Time) (time.Time, bool) {
	day, rest, found := strings.Cut(s, ",")
	switch {
	case !found: // Sun Nov  6 08:49:37 1994
		return asctime(s)
	case len(day) == 3: // Sun, 06 Nov 1994 08:49:37 GMT
		return imf(day, rest)
	default: // Sunday, 06-Nov-94 08:49:37 GMT
		return rfc850(day, rest, now)
	}
}

const (
	dayNames   = "monday tuesday wednesday thursday friday saturday sunday "
	monthNames = "jan feb mar apr may jun jul aug sep oct nov dec "
)

func imf(day, s string) (time.Time, bool) {
	const form = " 06 Nov 1994 08:49:37 GMT"
	if len(s) != len(form) || !weekday(day, 3) || !at(s, 0, " ") || !at(s, 3, " ") || !at(s, 7, " ") || !at(s, 12, " ") || !gmt(s[21:]) {
		return time.Time{}, false
	}
	return instant(s[8:12], s[4:7], s[1:3], s[13:21])
}

func rfc850(day, s string, now time.Time) (time.Time, bool) {
	const form = " 06-Nov-94 08:49:37 GMT"
	if len(s) != len(form) || !weekday(day, 0) || !at(s, 0, " ") || !at(s, 3, "-") || !at(s, 7, "-") || !at(s, 10, " ") || !gmt(s[19:]) {
		return time.Time{}, false
	}
	short, ok1 := number(s[8:10])
	m, ok2 := month(s[4:7])
	d, ok3 := number(s[1:3])
	c, ok4 := clock(s[11:19])
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return time.Time{}, false
	}
	now = now.UTC()
	year := now.Year() - now.Year()%100 + short
	if time.Date(year, m, d, 0, 0, 0, 0, time.UTC).Add(c).After(now.AddDate(50, 0, 0)) {
		year -= 100
	}
	return dated(year, m, d, c)
}

func asctime(s string) (time.Time, bool) {
	const form = "Sun Nov  6 08:49:37 1994"
	if len(s) != len(form) || !weekday(s[:3], 3) || !at(s, 3, " ") || !at(s, 7, " ") || !at(s, 10, " ") || !at(s, 19, " ") {
		return time.Time{}, false
	}
	date := s[8:10]
	if date[0] == ' ' {
		date = "0" + date[1:]
	}
	return instant(s[20:], s[4:7], date, s[11:19])
}

func instant(year, monthName, date, timeOfDay string) (time.Time, bool) {
	y, ok1 := number(year)
	m, ok2 := month(monthName)
	d, ok3 := number(date)
	c, ok4 := clock(timeOfDay)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return time.Time{}, false
	}
	return dated(y, m, d, c)
}

// dated refuses a day that the month does not have.
func dated(year int, month time.Month, day int, clock time.Duration) (time.Time, bool) {
	t := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	return t.Add(clock), day > 0 && t.Day() == day
}

// clock reads hour:minute:second, with the leap second 60.
func clock(s string) (time.Duration, bool) {
	h, ok1 := number(s[0:2])
	m, ok2 := number(s[3:5])
	sec, ok3 := number(s[6:8])
	if !ok1 || !ok2 || !ok3 || s[2] != ':' || s[5] != ':' || h > 23 || m > 59 || sec > 60 {
		return 0, false
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec)*time.Second, true
}

func month(name string) (time.Month, bool) {
	i := strings.Index(monthNames, field.Lower(name)+" ")
	return time.Month(i/4 + 1), i >= 0 && i%4 == 0
}

// weekday reports whether s is the name of a day; cut is the length it is cut
// to, 0 for the full name.
func weekday(s string, cut int) bool {
	s = field.Lower(s)
	for name := range strings.FieldsSeq(dayNames) {
		if cut > 0 && name[:cut] == s || cut == 0 && name == s {
			return true
		}
	}
	return false
}

func number(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

func at(s string, i int, what string) bool { return s[i:i+1] == what }
func gmt(s string) bool                    { return field.Lower(s) == " gmt" }

// Modified is the time that If-Modified-Since is to be compared with: that of
// Last-Modified, or without a readable one that of Date (4.3.2); else zero.
func Modified(h http.Header, now time.Time) time.Time {
	for _, name := range [...]string{"Last-Modified", "Date"} {
		if t, ok := dateField(h, name, now); ok {
			return t
		}
	}
	return time.Time{}
}

// dateField reads a field that must be one date and nothing else.
func dateField(h http.Header, name string, now time.Time) (time.Time, bool) {
	lines := h[name]
	if len(lines) != 1 {
		return time.Time{}, false
	}
	return ParseDate(strings.Trim(lines[0], " \t"), now)
}
