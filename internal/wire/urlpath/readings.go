package urlpath

import (
	"net/url"
	"slices"
	"strings"
)

// Readings lists the paths that some server may take a request's path for, each
// once, the clean one first (see [Clean]). Servers differ in whether an encoded
// slash divides segments, whether a backslash does, whether slashes without a name
// between them count as one, whether dot segments are resolved, before or after that,
// or before encoded dots are decoded, whether they may have parameters ("..;a"), and
// whether a NUL ends the path. A path in which nothing of this occurs has one reading.
func Readings(u *url.URL) []string {
	clean, was := Clean(u.Path)
	list := []string{clean}
	if was && !Several(u.Path, u.RawPath) {
		return list
	}
	paths := []string{u.Path}
	if kept, ok := slashesKept(u); ok {
		paths = append(paths, kept)
	}
	if p := dotsFirst(u); p != "" {
		paths = append(paths, p)
	}
	for _, p := range paths {
		if before, _, has := strings.Cut(p, "\x00"); has {
			paths = append(paths, before)
		}
	}
	for _, p := range paths {
		if strings.IndexByte(p, '\\') >= 0 {
			paths = append(paths, strings.ReplaceAll(p, `\`, "/"))
		}
	}
	for _, p := range paths {
		if bare := withoutParameters(p); bare != p {
			paths = append(paths, bare)
		}
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

// Several reports whether a path may have more than one reading. raw is how it came, if
// that is not as it would be escaped here: see [url.URL].
func Several(path, raw string) bool {
	_, clean := Clean(path)
	return !clean || strings.IndexByte(path, '\\') >= 0 || strings.IndexByte(path, 0) >= 0 || strings.Contains(path, ".;") || EncodesSlash(raw)
}

// EncodesSlash reports whether an escaped path holds an encoded slash or
// backslash: they would become separators that others on the way did not see.
func EncodesSlash(raw string) bool {
	for i := 0; i+2 < len(raw); i++ {
		if raw[i] != '%' {
			continue
		}
		if hi, lo := raw[i+1], raw[i+2]|0x20; hi == '2' && lo == 'f' || hi == '5' && lo == 'c' {
			return true
		}
	}
	return false
}

// slashesKept is the path to which an encoded slash is a character like any other;
// false if there is none.
func slashesKept(u *url.URL) (string, bool) {
	if !EncodesSlash(u.RawPath) { // a path with an encoded slash has a RawPath
		return "", false
	}
	kept := strings.NewReplacer("%2F", "%252F", "%2f", "%252f").Replace(u.EscapedPath())
	p, err := url.PathUnescape(kept)
	return p, err == nil && p != u.Path
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

// withoutParameters is the path to which "..;a=b" is "..", as Java's servers have it.
func withoutParameters(p string) string {
	if !strings.Contains(p, ".;") {
		return p
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if name, _, has := strings.Cut(s, ";"); has && (name == "." || name == "..") {
			segments[i] = name
		}
	}
	return strings.Join(segments, "/")
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
