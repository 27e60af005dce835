package rfc9111

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/internal/wire/field"
)

// maxTags bounds If-None-Match: more variants than this are not asked about,
// so that the request stays well below what servers accept as a header.
const maxTags = 32

// Conditional makes a request ask for validation of every stored response (4.3.1):
// If-None-Match with all entity tags, If-Modified-Since if there is but one
// date. It reports false, and changes nothing, when none has a validator.
// Preconditions of the client are replaced. Of more than 32 tags the
// first count: the stored responses should come with the likeliest first.
func Conditional(request *field.Lines, stored []http.Header) bool {
	var tags, dates []string
	for _, s := range stored {
		tag, date := validators(s)
		if tag != "" && !slices.Contains(tags, tag) && len(tags) < maxTags {
			tags = append(tags, tag)
		}
		if date != "" && !slices.Contains(dates, date) {
			dates = append(dates, date)
		}
	}
	if len(tags) == 0 && len(dates) != 1 {
		return false
	}
	for _, name := range [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		request.Delete(name)
	}
	if len(tags) > 0 {
		request.Add("If-None-Match", strings.Join(tags, ", "))
	}
	if len(dates) == 1 {
		request.Add("If-Modified-Since", dates[0])
	}
	return true
}

// Selected is the index of the stored response that a 304 speaks of (4.3.4):
// by strong tag, weak tag, Last-Modified, or the only one there is; else -1.
//
// The only one is selected even when the 304 names another validator, where
// 4.3.4 would let it go: it was the only one asked about, so the 304 can be
// about nothing else, and Freshen keeps its tag, by which the next validation
// will ask again.
func Selected(notModified http.Header, stored []http.Header) int {
	if len(stored) == 1 {
		return 0
	}
	tag, date := validators(notModified)
	if tag != "" {
		for i, s := range stored {
			if t, _ := validators(s); t == tag {
				return i
			}
		}
		for i, s := range stored {
			if t, _ := validators(s); t != "" && weakly(t) == weakly(tag) {
				return i
			}
		}
		if !weak(tag) {
			return -1 // a strong validator that none has
		}
	}
	if date != "" {
		for i, s := range stored {
			if _, d := validators(s); d == date {
				return i
			}
		}
	}
	return -1
}

// sameRepresentation reports whether a 304's validators are those of the
// stored response, as far as both have them.
func sameRepresentation(stored, notModified http.Header) bool {
	tag, date := validators(stored)
	newTag, newDate := validators(notModified)
	if tag != "" && newTag != "" {
		return weakly(tag) == weakly(newTag)
	}
	return newDate == "" || date == newDate
}

// validators are what a response can be validated by (RFC 9110, 8.8): its
// entity tag and its Last-Modified as they came, "" for what it has not.
func validators(h http.Header) (tag, date string) {
	if lines := h["Etag"]; len(lines) == 1 {
		if t := strings.Trim(lines[0], " \t"); usableTag(t) {
			tag = t
		}
	}
	if lines := h["Last-Modified"]; len(lines) == 1 {
		if d := strings.Trim(lines[0], " \t"); len(d) > 0 {
			if _, ok := ParseDate(d, time.Time{}); ok {
				date = d
			}
		}
	}
	return tag, date
}

// usableTag reports whether t can stand in If-None-Match: an entity-tag (RFC
// 9110, 8.8.3), or one without quotes, as some origins make and compare them,
// which nobody could take for a list or for *.
func usableTag(t string) bool {
	opaque := weakly(t)
	if len(opaque) >= 2 && opaque[0] == '"' && opaque[len(opaque)-1] == '"' {
		return !slices.ContainsFunc([]byte(opaque[1:len(opaque)-1]), func(c byte) bool { return c == '"' || c < 0x21 || c == 0x7f })
	}
	return field.Token(t) && t != "*"
}

func weak(tag string) bool     { return strings.HasPrefix(tag, "W/") }
func weakly(tag string) string { return strings.TrimPrefix(tag, "W/") }
