package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
	"millrace/static/original"
	"millrace/store"
)

// mostInMemory is the largest file that is read into memory to be sent: with its header
// it is one write.
const mostInMemory = 16 << 10

// Original fetches the file if it has to, or asks whether it is still the same.
func (s *Source) Original(r *http.Request) (original.File, error) {
	name, ok := nameOf(r.URL)
	if !ok {
		return original.File{}, original.ErrNone
	}
	f, err := s.find(r, name)
	if err != nil {
		return original.File{}, fmt.Errorf("finding %s: %w", name, err)
	}
	return s.original(name, f), nil
}

// Memory is nil: files are read from the store for each request.
func (s *Source) Memory() *original.Memory { return nil }

// Lookup is what is known of a file without asking its host. A file that is not
// kept is an error that is not original.ErrNone: nobody can tell.
func (s *Source) Lookup(name string) (original.File, error) {
	if !validName(name) {
		return original.File{}, original.ErrNone
	}
	s.mu.Lock()
	e, known := s.files.get(name)
	var f found
	if known {
		f = found{file: e.file, fresh: e.fresh}
	}
	failed, none := s.failures.get(name)
	s.mu.Unlock()
	if known {
		return s.original(name, f), nil
	}
	if none && errors.Is(failed.err, original.ErrNone) {
		return original.File{}, failed.err
	}
	ctx, cancel := context.WithTimeout(s.closing, s.o.Timeout)
	defer cancel()
	kept, err := s.load(ctx, name)
	if err != nil {
		return original.File{}, fmt.Errorf("looking up %s: %w: %w", name, errKept, err)
	}
	return s.original(name, found{file: kept, fresh: kept.Fresh}), nil
}

// ServeHTTP serves the original.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.ServeOriginal(w, r, original.Terms{})
}

// ServeOriginal serves the original with other cache headers and rules for the lane,
// for package images.
func (s *Source) ServeOriginal(w http.ResponseWriter, r *http.Request, t original.Terms) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header()["Allow"] = []string{"GET, HEAD"}
		respond(w, r, http.StatusMethodNotAllowed, "only GET and HEAD")
		return
	}
	name, ok := nameOf(r.URL)
	if !ok {
		respond(w, r, http.StatusNotFound, "no such file")
		return
	}
	f, o, err := s.get(r, name)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	a, err := f.answer(o)
	if err != nil {
		s.complain(name, err)
		s.refuse(w, r, err)
		return
	}
	if a.File != nil {
		defer a.File.Release()
	}
	for field, values := range t.Header {
		if field == "Vary" {
			values = slices.Concat(a.Header["Vary"], values)
		}
		a.Header[field] = values
	}
	if !t.Interim {
		lane.Offer(r, a, lane.Rule{VaryOn: t.VaryOn, WithQuery: t.WithQuery, Version: f.version, Also: t.Also})
	}
	send.Serve(w, r, a)
}

// get finds a file and opens it. A file that the store has dropped is fetched
// anew.
func (s *Source) get(r *http.Request, name string) (f found, o *store.Object, err error) {
	for range 2 {
		if f, err = s.find(r, name); err != nil {
			return f, nil, err
		}
		if o, err = s.openThis(r.Context(), name, f.file); !errors.Is(err, store.ErrNotFound) {
			return f, o, err
		}
	}
	return f, nil, err
}

// Header values that are the same for all.
var (
	nosniff     = []string{"nosniff"}
	bytesRanges = []string{"bytes"}
	// sandbox keeps an image that can hold scripts from running them on this
	// site when somebody opens it as a page.
	sandbox = []string{"sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"}
)

// answer takes over o.
func (f *found) answer(o *store.Object) (*send.Answer, error) {
	a := &send.Answer{Size: f.Size, ETag: `"` + f.Hash + `"`, LastModified: f.Modified, Header: http.Header{
		"Content-Type":           {f.Type},
		"Content-Length":         {strconv.FormatInt(f.Size, 10)},
		"Cache-Control":          {cacheControl(f.fresh)},
		"Accept-Ranges":          bytesRanges,
		"X-Content-Type-Options": nosniff,
	}}
	if f.Type == "image/svg+xml" {
		a.Header["Content-Security-Policy"] = sandbox
	}
	a.Header["Etag"] = []string{a.ETag}
	if !f.Modified.IsZero() {
		a.Header["Last-Modified"] = []string{f.Modified.UTC().Format(http.TimeFormat)}
	}
	switch {
	case f.Size <= mostInMemory:
		a.Body = make([]byte, f.Size)
		n, err := o.Body.ReadAt(a.Body, 0)
		_ = o.Close() // only read
		if int64(n) != f.Size {
			return nil, fmt.Errorf("reading what was kept: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
	case o.File != nil:
		a.File, a.Base = send.NewShared(o.File, o), o.Offset
	default:
		a.File = send.NewReaderAt(o.Body, o)
	}
	return a, nil
}

// cacheControl lets browsers use a file for as long as we do.
func cacheControl(fresh time.Duration) string {
	return "max-age=" + strconv.FormatInt(int64(fresh/time.Second), 10)
}

// refuse answers when there is no file to answer with.
func (s *Source) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var timeout net.Error
	switch {
	case errors.Is(err, original.ErrNone):
		respond(w, r, http.StatusNotFound, "no such file")
	case errors.Is(err, errLoop):
		respond(w, r, http.StatusLoopDetected, "the host of this file asks us for it")
	case errors.Is(err, errBusy), errors.Is(err, errClosed), errors.Is(err, store.ErrDown), errors.Is(err, store.ErrFull):
		w.Header()["Retry-After"] = []string{"1"}
		respond(w, r, http.StatusServiceUnavailable, "the file cannot be fetched now")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		respond(w, r, http.StatusGatewayTimeout, "the host of this file does not answer")
	default:
		respond(w, r, http.StatusBadGateway, "the host of this file does not give it")
	}
}

// respond answers with an error.
func respond(w http.ResponseWriter, r *http.Request, status int, text string) {
	w.Header()["Cache-Control"] = []string{"no-cache"} // 404 may be cached without it (RFC 9110, 15.1)
	pages.Error(w, r, status, text)
}
