package cache

import (
	"errors"
	"io"
	"maps"
	"net/http"

	"millrace/cache/fetch"
	"millrace/cache/fill"
	"millrace/cache/object"
	"millrace/cache/rfc9111"
	"millrace/internal/wire/condition"
	"millrace/internal/wire/field"
	"millrace/internal/wire/send"
)

// rangeAhead is how far behind the last byte that has come a range may begin to be
// sent from a body that grows. One that begins later is asked for by itself.
const rangeAhead = 8 << 20

// stream answers from a fetch's body while it grows. It reports false, having written
// nothing, if the body is stored by now, or is a window that has moved on; or, with
// x.far set, if the range is too far behind the last byte that has come.
func (x *exchange) stream(out *fetch.Outcome, why string, joined bool) bool {
	o, body := out.Object, out.Body
	lines := x.fields(make(field.Lines, 0, len(o.Fields)+len(out.Withheld)+4), out, why, joined)
	h := http.Header(lines.Header())
	a := &send.Answer{Header: h, Size: body.Expected(), ETag: object.First(h["Etag"]), LastModified: rfc9111.Modified(h, x.began)}
	var start, length int64
	part, unchanged := false, false
	if o.Status == http.StatusOK {
		unchanged = condition.Check(x.r.Method, x.r.Header, a.ETag, a.LastModified) == condition.NotModified
		if a.Size >= 0 && !unchanged {
			start, length, part = send.Part(x.r, a)
		}
	}
	if have, _ := body.Whole(); start > have+rangeAhead {
		x.far = true
		return false
	}
	reader := body.Reader(x.r.Context(), start)
	if reader == nil {
		return false
	}
	if x.taken != nil {
		x.taken()
	}
	defer func() { _ = reader.Close() }() // it cannot fail
	if part {
		for _, name := range [...]string{"Age", cacheStatus} { // a refusal has few of the answer's fields
			if values := h[name]; values != nil {
				x.w.Header()[name] = values
			}
		}
		send.BeginPart(x.w, a, start, length)
		x.status = http.StatusPartialContent
		if length == 0 {
			x.status = http.StatusRequestedRangeNotSatisfiable
		}
	} else {
		length = -1
		x.begin(o.Status, h, unchanged)
	}
	if length == 0 || unchanged || x.head.Method == http.MethodHead || bodyless(o.Status) {
		return true
	}
	x.follow(reader, length)
	return true
}

// begin sends status and header of a whole answer, or of the 304 in its place.
func (x *exchange) begin(status int, h http.Header, unchanged bool) {
	head := x.w.Header()
	maps.Copy(head, h)
	send.NoGuess(head)
	if unchanged {
		for name := range h {
			if !send.KeptIn304(name) {
				delete(head, name)
			}
		}
		x.status = http.StatusNotModified
		send.StandsFor(x.w, h["Content-Type"])
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	send.PassOn(x.w)
	x.w.WriteHeader(status)
}

// follow sends length bytes as they come; all for -1.
func (x *exchange) follow(reader *fill.Reader, length int64) {
	reader.Flush(func() { _ = send.Flush(x.w) })
	to := io.Writer(x.w)
	if length >= 0 {
		to = &upTo{x.w, length}
	}
	if _, err := reader.WriteTo(to); err != nil && !errors.Is(err, errEnough) {
		x.reason = "aborted"
		panic(http.ErrAbortHandler) // the client must see that the answer is not whole
	}
}

// errEnough ends a WriteTo.
var errEnough = errors.New("all that was asked for is written")

// upTo writes a number of bytes, and then returns errEnough.
type upTo struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (u *upTo) Write(p []byte) (int, error) {
	p = p[:min(int64(len(p)), u.left)]
	n, err := u.w.Write(p)
	if u.left -= int64(n); err == nil && u.left == 0 {
		err = errEnough
	}
	return n, err
}
