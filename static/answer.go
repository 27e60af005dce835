package static

import (
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

// content is one encoding of a file before it becomes an answer.
type content struct {
	coding   negotiate.Coding
	size     int64
	modified time.Time
	tag      string // entity tag without quotes and suffix; empty for none
	body     []byte
	file     *send.File
	base     int64 // where the body begins in file
}

// Header values that are the same for all.
var (
	nosniff        = []string{"nosniff"}
	bytesRanges    = []string{"bytes"}
	varyEncoding   = []string{"Accept-Encoding"}
	encodingHeader = [negotiate.Codings][]string{
		negotiate.Gzip:   {negotiate.Gzip.String()},
		negotiate.Zstd:   {negotiate.Zstd.String()},
		negotiate.Brotli: {negotiate.Brotli.String()},
	}
)

// finish makes the answer. Each encoding has its own strong entity tag, as
// RFC 9110, 8.8.3.3 demands.
func (h *Handler) finish(s *snapshot, p content) *send.Answer {
	kind := h.typeOf(s.found.file)
	rules := kind // those for an image hold for its variants
	file, variant := h.pictured(s.found.file)
	if variant {
		rules = h.typeOf(file)
	} else {
		file = s.found.file
	}
	header := http.Header{
		"Content-Type":           {kind.name},
		"Content-Length":         {strconv.FormatInt(p.size, 10)},
		"Cache-Control":          {h.cacheControl(file, rules)},
		"Last-Modified":          {p.modified.Format(http.TimeFormat)},
		"Accept-Ranges":          bytesRanges,
		"X-Content-Type-Options": nosniff,
	}
	a := &send.Answer{Header: header, Body: p.body, File: p.file, Base: p.base, Size: p.size, LastModified: p.modified}
	if p.tag != "" {
		suffix := strings.Replace(siblings[p.coding], ".", "-", 1)
		a.ETag = `"` + p.tag + suffix + `"`
		header["Etag"] = []string{a.ETag}
	}
	switch {
	case s.pictured && s.vary:
		header["Vary"] = varyBoth
	case s.pictured:
		header["Vary"] = varyAccept
	case s.dictionary > 0:
		header["Vary"] = varyDictionaryHeader
		header[dictionary.Field] = []string{h.options.Dictionaries.Match(s.dictionary, h.options.Mount)}
	case s.vary:
		header["Vary"] = varyEncoding
	}
	if p.coding != negotiate.Identity {
		header["Content-Encoding"] = encodingHeader[p.coding]
	}
	asked := s.name
	if variant {
		asked = file
	}
	h.rules.load().applyHeaders(header, "/"+asked, true)
	return a
}

const (
	// hashedCache is for names that change with the content (RFC 8246).
	hashedCache = "public, max-age=31536000, immutable"
	// pageCache is for HTML: it names everything else, so it must be current.
	// Revalidation is one 304.
	pageCache = "no-cache"
	// otherCache is for files that HTML refers to by a lasting name. A visit
	// does not ask for them on every page; a new version arrives in minutes.
	otherCache = "max-age=300"
)

func (h *Handler) cacheControl(file string, kind mediaType) string {
	for _, rule := range h.options.CacheControl {
		if rule.matches(file) {
			return rule.Value
		}
	}
	switch {
	case kind.page:
		return pageCache
	case contentHashed(path.Base(file)):
		return hashedCache
	}
	return otherCache
}

func (c CacheRule) matches(file string) bool { return Matches(c.Match, file) }

// Matches reports whether a pattern, as CacheRule.Match has them, covers a file,
// named by its path below the root.
func Matches(pattern, file string) bool {
	pattern, rooted := strings.CutPrefix(pattern, "/")
	switch {
	case strings.HasSuffix(pattern, "/"):
		return strings.HasPrefix(file, pattern)
	case !rooted && !strings.Contains(pattern, "/"):
		file = path.Base(file)
	}
	ok, _ := path.Match(pattern, file) // the pattern was checked at the start
	return ok
}
