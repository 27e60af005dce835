package send

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"millrace/internal/wire/condition"
)

const (
	// copySize is the size of the buffers for copying, where sendfile(2) cannot be used:
	// TLS, HTTP/2, pipes. Larger ones take memory and are not faster.
	copySize = 64 << 10
	// together is the largest part of a file that is copied, to be written together with
	// the header. A larger one is cheaper in a second packet without a copy.
	together = 16 << 10
)

// buffers are shared by all requests: a buffer for each would be most of what a download
// allocates.
var buffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// Serve answers a GET or HEAD request from a. If its status is 200, it decides
// conditions (RFC 9110, 13) and, if a.Header says "Accept-Ranges: bytes",
// ranges (RFC 9110, 14). The fields of a.Header are added to w.Header() without a copy, so
// they must not be changed afterwards. An answer without a Content-Type gets none.
//
// The caller must keep a reference to a.File until Serve returns. If the file is shorter than
// a.Size, Serve panics with [http.ErrAbortHandler]: the connection (HTTP/1) or stream
// (HTTP/2) is cut, which tells the client that the answer is not complete.
func Serve(w http.ResponseWriter, r *http.Request, a *Answer) {
	if a.Code() != http.StatusOK {
		setHeader(w, a, countedByServer(r, a))
		sendWhole(w, r, a.Code(), a)
		return
	}
	switch condition.Check(r.Method, r.Header, a.ETag, a.LastModified) {
	case condition.NotModified:
		StandsFor(w, a.Header["Content-Type"])
		h := w.Header()
		for name, values := range a.Header {
			if KeptIn304(name) {
				h[name] = slices.Clip(values)
			}
		}
		w.WriteHeader(http.StatusNotModified)
		return
	case condition.PreconditionFailed:
		refuse(w, a, http.StatusPreconditionFailed)
		return
	}
	if r.Method == http.MethodGet { // RFC 9110, 14.2: Range is for GET alone
		if serveRanges(w, r, a) {
			return
		}
	}
	setHeader(w, a, countedByServer(r, a))
	sendWhole(w, r, http.StatusOK, a)
}

// PassOn tells the server's ResponseWriter that the answer which begins is another program's:
// the site's error pages do not replace it, unless the config says so.
func PassOn(w http.ResponseWriter) {
	if s, ok := w.(interface{ PassOn() }); ok {
		s.PassOn()
	}
}

// StandsFor tells a ResponseWriter that wants to know of which type the content
// is that a 304 stands for.
func StandsFor(w http.ResponseWriter, contentType []string) {
	if s, ok := w.(interface{ StandsFor(contentType []string) }); ok {
		s.StandsFor(contentType)
	}
}

// ServeStatus sends a page with another status than its own, such as a 404 page:
// without conditions and ranges, and without the validators they would need.
func ServeStatus(w http.ResponseWriter, r *http.Request, status int, a *Answer) {
	setHeader(w, a, countedByServer(r, a))
	h := w.Header()
	for _, name := range [...]string{"Etag", "Last-Modified", "Accept-Ranges"} {
		delete(h, name)
	}
	sendWhole(w, r, status, a)
}

// Flush sends what was written so far, and be it the header alone, if w can.
func Flush(w http.ResponseWriter) error {
	if err := http.NewResponseController(w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// sendWhole sends the status and the body, after the headers were set.
func sendWhole(w http.ResponseWriter, r *http.Request, status int, a *Answer) {
	if status == http.StatusNoContent { // RFC 9110, 8.6
		delete(w.Header(), contentLength)
		w.WriteHeader(status)
		return
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		sendPart(w, a, span{0, a.Size})
	}
}

// KeptIn304 reports whether a header, named canonically, belongs into the 304
// for an answer. Fields that describe the content do not: the client has
// them already (RFC 9110, 15.4.5). Both lanes use it.
func KeptIn304(name string) bool {
	switch name {
	case "Content-Type", "Content-Length", "Content-Encoding", "Content-Language", "Content-Range",
		"Content-Disposition", "Content-Digest", "Repr-Digest", "Digest", "Accept-Ranges":
		return false
	}
	return true
}

// setHeader shares a's header slices with w. Nobody may write into them; an
// Add by someone else reallocates only if they have no spare capacity, so they
// are clipped.
//
// counted says that net/http finds the Content-Length by itself.
func setHeader(w http.ResponseWriter, a *Answer, counted bool) {
	h := w.Header()
	for name, values := range a.Header {
		if !counted || name != contentLength {
			h[name] = slices.Clip(values)
		}
	}
	if _, ok := a.Header[contentLength]; !ok && !counted { // or HTTP/1.1 would be chunked
		h[contentLength] = []string{strconv.FormatInt(a.Size, 10)}
	}
	NoGuess(h)
}

// NoGuess has an answer without a Content-Type go out without one. net/http and quic-go
// would guess it, against the word of whoever made the answer (nosniff), and the fast
// lane does not.
func NoGuess(h http.Header) {
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil
	}
}

const (
	contentLength = "Content-Length"
	// heldByHTTP2 is the body that net/http holds back over HTTP/2 until the
	// handler ends, in bytes.
	heldByHTTP2 = 4 << 10
)

// countedByServer reports whether net/http finds and sends the Content-Length by
// itself. Left out, a file's fields with Server are eight, which is what a map
// holds without a table: 5 % of what a small answer costs.
func countedByServer(r *http.Request, a *Answer) bool {
	return r.ProtoMajor == 2 && r.Method == http.MethodGet && a.File == nil && len(a.Body) > 0 && len(a.Body) <= heldByHTTP2
}

// refuse answers with a status and no content. Of the answer's headers it
// keeps those that hold for the resource rather than for its content.
func refuse(w http.ResponseWriter, a *Answer, status int) {
	h := w.Header()
	for _, name := range [...]string{"Vary", "X-Content-Type-Options", "Accept-Ranges"} {
		if values, ok := a.Header[name]; ok {
			h[name] = slices.Clip(values)
		}
	}
	h[contentLength] = []string{"0"}
	w.WriteHeader(status)
}

// sendPart writes a part of the body.
func sendPart(w http.ResponseWriter, a *Answer, s span) {
	switch {
	case s.length == 0:
	case a.File != nil:
		sendSection(w, a.File.Section(a.Base+s.start, s.length))
	default:
		// An error means that the client is gone, which net/http notices too.
		_, _ = w.Write(a.Body[s.start : s.start+s.length])
	}
}

// sendSection writes a part of a file, by the kernel if the writer can.
func sendSection(w http.ResponseWriter, s *Section) {
	want := s.Remaining()
	n, err := copySection(w, s)
	if err != nil || n != want {
		// Too little was sent under a Content-Length that promised more. Never
		// pad, and let nobody take it for the whole.
		panic(http.ErrAbortHandler)
	}
}

func copySection(w http.ResponseWriter, s *Section) (int64, error) {
	if rf, ok := w.(io.ReaderFrom); ok && s.desc != nil && s.n > together {
		// With the header on its way, net/http's ReadFrom does not copy the
		// first 512 bytes for a look at them, but hands the section as it is
		// to the connection's ReadFrom.
		if err := Flush(w); err != nil {
			return 0, err
		}
		return rf.ReadFrom(s)
	}
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(onlyWriter{w}, s, buf[:])
}

// onlyWriter hides ReadFrom, which io.CopyBuffer would prefer to the buffer.
type onlyWriter struct{ io.Writer }
