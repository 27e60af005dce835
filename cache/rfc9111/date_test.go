package rfc9111

import (
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

func TestParseDate(t *testing.T) { // RFC 9110, 5.6.7
	sample := time.Date(1994, time.November, 6, 8, 49, 37, 0, time.UTC)
	for _, s := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT",
		"Sun Nov  6 08:49:37 1994",
		"Sun Nov 06 08:49:37 1994",
		"SUN, 06 nov 1994 08:49:37 gMT",
		"sunday, 06-NOV-94 08:49:37 gmt",
		"Mon, 06 Nov 1994 08:49:37 GMT", // it was a Sunday
	} {
		if got, ok := ParseDate(s, noon); !ok || !got.Equal(sample) {
			t.Errorf("%q: %v %v", s, got, ok)
		}
	}
	for s, want := range map[string]time.Time{
		"Thursday, 18-Aug-50 02:01:18 GMT": time.Date(2050, 8, 18, 2, 1, 18, 0, time.UTC),
		"Sunday, 22-Nov-76 12:00:00 GMT":   time.Date(2076, 11, 22, 12, 0, 0, 0, time.UTC), // 50 years to the second
		"Monday, 22-Nov-76 12:00:01 GMT":   time.Date(1976, 11, 22, 12, 0, 1, 0, time.UTC),
		"Sun, 21 Nov 2286 04:46:39 GMT":    time.Date(2286, 11, 21, 4, 46, 39, 0, time.UTC),
		"Sat, 31 Dec 2016 23:59:60 GMT":    time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC), // a leap second
		"Thu, 29 Feb 2024 00:00:00 GMT":    time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
	} {
		if got, ok := ParseDate(s, noon); !ok || !got.Equal(want) {
			t.Errorf("%q: %v %v, want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{
		"", "0", "-1", "Sun", "Sun,", "now", "784111777",
		"Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 AEST", "Sun, 06 Nov 1994 08:49:37 +0000",
		"Sun, 06 Nov 1994 08:49:37", "Sun 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 94 08:49:37 GMT",
		"Sun, 06  Nov  1994 08:49:37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT", "Sun, 06 Nov 1994 08.49.37 GMT",
		"Sun, 06 Nov 1994 8:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37  GMT",
		"Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 1994 08:49:61 GMT",
		"Sun, 31 Apr 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 29 Feb 2023 08:49:37 GMT",
		"Xyz, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Xyz 1994 08:49:37 GMT", "Sun, 06 an  1994 08:49:37 GMT",
		"Sun, 06-Nov-94 08:49:37 GMT", "Sunday, 06 Nov 1994 08:49:37 GMT", "Sun Nov 6 08:49:37 1994",
		"Sun Nov  6 08:49:37 94", "Sunday, 6-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT ",
	} {
		if got, ok := ParseDate(s, noon); ok {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}

func TestModified(t *testing.T) { // 4.3.2
	h := http.Header{"Date": {on(0)}}
	if got := Modified(h, noon); !got.Equal(noon) {
		t.Errorf("with Date alone: %v", got)
	}
	h["Last-Modified"] = []string{on(-time.Hour)}
	if got := Modified(h, noon); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("with Last-Modified: %v", got)
	}
	if got := Modified(http.Header{}, noon); !got.IsZero() {
		t.Errorf("with nothing: %v", got)
	}
}

// on is a date some time from noon.
func on(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }

// header makes one of "Name: value" lines.
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		for i := range line {
			if line[i] == ':' {
				h.Add(line[:i], line[i+2:])
				break
			}
		}
	}
	return h
}
