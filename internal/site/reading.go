package site

import (
	"net/url"
	"slices"
	"strings"
)

// Readings lists the paths that some server may take a request's path for, each
// once, the clean one first (see Clean). Servers differ in whether an encoded
// slash divides segments, whether slashes without a name between them count as
// one, and whether dot segments are resolved, before or after that, or before
// encoded dots are decoded. A path in which nothing of this occurs has one reading.
func Readings(u *url.URL) []string {
	clean, was := Clean(u.Path)
	list := []string{clean}
	if was {
		return list
	}
	paths := []string{u.Path}
	kept := strings.NewReplacer("%2F", "%252F", "%2f", "%252f").Replace(u.EscapedPath())
	if p, err := url.PathUnescape(kept); err == nil && p != u.Path {
		paths = append(paths, p)
	}
	if p := dotsFirst(u); p != "" {
		paths = append(paths, p)
	}
	for _, p := range paths {
		merged := mergeSlashes(p)
		for _, reading := range [...]string{p, merged, resolveDots(p), resolveDots(merged), mergeSlashes(resolveDots(p))} {
			if !slices.Contains(list, reading) {
				list = append(list, reading)
			}
		}
	}
	return list
}

// dotsFirst is the path to which "%2e%2e" is a name like any other until the dots
// that came as such are resolved: "/a/b/%2e%2e/../x" is "/a/b/x". It is "" where
// no dot is encoded.
func dotsFirst(u *url.URL) string {
	escaped := u.EscapedPath()
	if !strings.Contains(escaped, "%2e") && !strings.Contains(escaped, "%2E") {
		return ""
	}
	p, err := url.PathUnescape(resolveDots(escaped))
	if err != nil {
		return ""
	}
	return p
}

// OnlyRoute returns what answers for a path whichever way it is read, or nil
// when there are two ways to read it that lead to different routes: then it is
// for nobody but who reads it as Clean does.
func (s *Site) OnlyRoute(u *url.URL) *Route {
	var only *Route
	for i, p := range Readings(u) {
		r := s.Route(p)
		if r == nil || i > 0 && r != only {
			return nil
		}
		only = r
	}
	return only
}

func mergeSlashes(p string) string {
	if !strings.Contains(p, "//") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := range len(p) {
		if p[i] != '/' || len(b) == 0 || b[len(b)-1] != '/' {
			b = append(b, p[i])
		}
	}
	return string(b)
}

// resolveDots is remove_dot_segments (RFC 3986, 5.2.4), to which the empty name
// between two slashes is a segment.
func resolveDots(p string) string {
	if !strings.Contains(p, "/.") {
		return p
	}
	segments := strings.Split(p, "/")
	out := segments[:1:1] // before the first slash: nothing
	for i, s := range segments[1:] {
		last := i == len(segments)-2
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return strings.Join(out, "/")
}
