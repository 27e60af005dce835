package send

import (
	"crypto/rand"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/condition"
)

const (
	// maxRanges is the most ranges in a request. Viewers of PDF files ask for a dozen;
	// hundreds are an attack (RFC 9110, 17.15).
	maxRanges = 32
	// maxOverlaps is how many ranges may overlap another one (RFC 9110, 14.2).
	maxOverlaps = 2
)

// span is a satisfiable range of a body.
type span struct{ start, length int64 }

func (s span) contentRange(size int64) string {
	return string(AppendContentRange(nil, s.start, s.length, size))
}

// AppendContentRange appends the value of Content-Range for a part of a body of a size (RFC
// 9110, 14.4), as in "bytes 0-99/501".
func AppendContentRange(b []byte, start, length, size int64) []byte {
	b = strconv.AppendInt(append(b, "bytes "...), start, 10)
	b = strconv.AppendInt(append(b, '-'), start+length-1, 10)
	return strconv.AppendInt(append(b, '/'), size, 10)
}

// serveRanges answers a request for ranges. It returns false, and has sent nothing, if the
// whole body is to be sent: without a Range header, or with one that must be ignored.
func serveRanges(w http.ResponseWriter, r *http.Request, a *Answer) bool {
	lines := r.Header["Range"]
	if lines == nil {
		return false
	}
	f := condition.Of(r.Header)
	spans, ok := spansOf(nil, lines, &f, a)
	if !ok {
		return false
	}
	switch len(spans) {
	case 0:
		refuseRange(w, a)
	case 1:
		setPart(w, a, spans[0])
		sendPart(w, a, spans[0])
	default:
		if len(a.Header["Content-Encoding"]) > 0 {
			// Clients differ in whether the coding is of the parts or of the
			// multipart body. So all of it is sent.
			return false
		}
		serveMultipart(w, a, spans)
	}
	return true
}

// spansOf appends to dst the satisfiable ranges of a request with these lines of Range. ok is
// false if the whole body is to be sent.
func spansOf(dst []span, lines []string, f *condition.Fields, a *Answer) (spans []span, ok bool) {
	if len(lines) != 1 || !slices.Equal(a.Header["Accept-Ranges"], []string{"bytes"}) {
		return nil, false
	}
	spans, ok = parseRanges(dst, lines[0], a.Size)
	return spans, ok && f.Ranges(a.ETag, a.LastModified)
}

// refuseRange answers 416: none of the ranges is satisfiable (RFC 9110, 15.5.17).
func refuseRange(w http.ResponseWriter, a *Answer) {
	w.Header()["Content-Range"] = []string{"bytes */" + strconv.FormatInt(a.Size, 10)}
	refuse(w, a, http.StatusRequestedRangeNotSatisfiable)
}

// setPart sends the status and the header for one range.
func setPart(w http.ResponseWriter, a *Answer, s span) {
	setHeader(w, a, false)
	s.describe(w.Header(), a)
	w.WriteHeader(http.StatusPartialContent)
}

// describe sets the fields that a part has instead of those of the whole answer.
func (s span) describe(h http.Header, a *Answer) {
	h["Content-Range"] = []string{s.contentRange(a.Size)}
	h[contentLength] = []string{strconv.FormatInt(s.length, 10)}
}

// PartOf returns what [Serve] sends of a, whose status is 200, to a GET with these lines of
// Range: the status, 200 or 206, and which bytes of the body. status is 0 for several ranges and
// for none that can be satisfied. It allocates nothing.
func PartOf(lines []string, f *condition.Fields, a *Answer) (status int, start, length int64) {
	var room [1]span
	spans, ok := spansOf(room[:0], lines, f, a)
	switch {
	case !ok:
		return http.StatusOK, 0, a.Size
	case len(spans) != 1:
		return 0, 0, 0
	}
	return http.StatusPartialContent, spans[0].start, spans[0].length
}

// Part returns the range of a request, for callers whose body has a known size but is still
// arriving, so that [Serve] cannot send it. Of a it reads Header, which must have
// "Accept-Ranges: bytes", Size, ETag and LastModified. length is 0 if the range cannot be
// satisfied. ok is false if the whole body is to be sent, as for several ranges.
func Part(r *http.Request, a *Answer) (start, length int64, ok bool) {
	if r.Method != http.MethodGet {
		return 0, 0, false
	}
	f := condition.Of(r.Header)
	spans, ok := spansOf(nil, r.Header["Range"], &f, a)
	switch {
	case !ok || len(spans) > 1:
		return 0, 0, false
	case len(spans) == 0:
		return 0, 0, true
	}
	return spans[0].start, spans[0].length, true
}

// BeginPart sends the status and the header for the range from Part. The caller then sends
// length bytes.
func BeginPart(w http.ResponseWriter, a *Answer, start, length int64) {
	if length == 0 {
		refuseRange(w, a)
		return
	}
	setPart(w, a, span{start, length})
}

// serveMultipart sends several ranges as multipart/byteranges (RFC 9110, 14.6).
func serveMultipart(w http.ResponseWriter, a *Answer, spans []span) {
	boundary := rand.Text()
	heads := make([]string, len(spans))
	end := "\r\n--" + boundary + "--\r\n"
	total := int64(len(end))
	for i, s := range spans {
		var b strings.Builder
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("--" + boundary + "\r\n")
		if ct := a.Header.Get("Content-Type"); ct != "" {
			b.WriteString("Content-Type: " + ct + "\r\n")
		}
		b.WriteString("Content-Range: " + s.contentRange(a.Size) + "\r\n\r\n")
		heads[i] = b.String()
		total += int64(len(heads[i])) + s.length
	}
	setHeader(w, a, false)
	h := w.Header()
	h["Content-Type"] = []string{"multipart/byteranges; boundary=" + boundary}
	h["Content-Length"] = []string{strconv.FormatInt(total, 10)}
	w.WriteHeader(http.StatusPartialContent)
	for i, s := range spans {
		if _, err := io.WriteString(w, heads[i]); err != nil {
			return // the client is gone
		}
		sendPart(w, a, s)
	}
	_, _ = io.WriteString(w, end)
}

// parseRanges parses a Range header for a body of a size, and appends the satisfiable ranges to
// dst in the order of the request. ok is false if the header must be ignored: with another unit,
// malformed (RFC 9110, 14.1.1), with too many ranges, or abusive.
func parseRanges(dst []span, s string, size int64) (spans []span, ok bool) {
	spans = dst
	unit, set, found := strings.Cut(s, "=")
	if !found || !strings.EqualFold(strings.Trim(unit, " \t"), "bytes") {
		return nil, false
	}
	named := 0
	for set != "" {
		var one string
		one, set, _ = strings.Cut(set, ",")
		one = strings.Trim(one, " \t")
		if one == "" {
			continue // RFC 9110, 5.6.1.2
		}
		if named++; named > maxRanges {
			return nil, false
		}
		sp, satisfiable, valid := parseRange(one, size)
		if !valid {
			return nil, false
		}
		if satisfiable {
			spans = append(spans, sp)
		}
	}
	if named == 0 || abusive(spans, size) {
		return nil, false
	}
	return spans, true
}

// parseRange parses "first-last", "first-" or "-suffix" (RFC 9110, 14.1.2).
func parseRange(s string, size int64) (sp span, satisfiable, valid bool) {
	first, last, found := strings.Cut(s, "-")
	if !found {
		return span{}, false, false
	}
	if first == "" {
		n, ok := parsePosition(last)
		switch {
		case !ok, n > 0 && size == 0: // the last bytes of an empty body: send the whole
			return span{}, false, false
		case n == 0:
			return span{}, false, true
		}
		n = min(n, size)
		return span{size - n, n}, true, true
	}
	start, ok := parsePosition(first)
	if !ok {
		return span{}, false, false
	}
	end := int64(math.MaxInt64)
	if last != "" {
		if end, ok = parsePosition(last); !ok || end < start {
			return span{}, false, false
		}
	}
	if start >= size {
		return span{}, false, true
	}
	return span{start, min(end, size-1) - start + 1}, true, true
}

// parsePosition parses digits and nothing else. A number that is too large becomes the largest
// int64, which no body has.
func parsePosition(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		d := int64(s[i]) - '0'
		switch {
		case d < 0 || d > 9:
			return 0, false
		case n > (math.MaxInt64-d)/10:
			n = math.MaxInt64
		default:
			n = n*10 + d
		}
	}
	return n, true
}

// abusive reports whether several ranges have more bytes than the body, or overlap often
// (RFC 9110, 14.2).
func abusive(spans []span, size int64) bool {
	if len(spans) < 2 {
		return false
	}
	sorted := slices.Clone(spans)
	slices.SortStableFunc(sorted, func(a, b span) int {
		switch {
		case a.start < b.start:
			return -1
		case a.start > b.start:
			return 1
		}
		return 0
	})
	var total, end int64
	overlaps := 0
	for _, s := range sorted {
		if s.length > size-total {
			return true
		}
		total += s.length
		if s.start < end {
			overlaps++
		}
		end = max(end, s.start+s.length)
	}
	return overlaps > maxOverlaps
}
