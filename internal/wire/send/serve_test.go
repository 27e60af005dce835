package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

var modified = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// content is long enough that files of it are not just copied into the header's packet.
var content = bytes.Repeat([]byte("0123456789abcdef"), together/8)

func answerHeader(size int) http.Header {
	return http.Header{
		"Content-Type":           {"text/plain; charset=utf-8"},
		"Content-Length":         {fmt.Sprint(size)},
		"Accept-Ranges":          {"bytes"},
		"Etag":                   {`"tag"`},
		"Last-Modified":          {modified.Format(http.TimeFormat)},
		"Vary":                   {"Accept-Encoding"},
		"Cache-Control":          {"no-cache"},
		"Content-Location":       {"/here"},
		"Expires":                {"0"},
		"X-Content-Type-Options": {"nosniff"},
	}
}

func bodyAnswer(body []byte) *Answer {
	return &Answer{Header: answerHeader(len(body)), Body: body, Size: int64(len(body)), ETag: `"tag"`, LastModified: modified}
}

func fileAnswer(t *testing.T, body []byte) *Answer {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, body, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	a := bodyAnswer(body)
	a.Body, a.File = nil, NewFile(f)
	t.Cleanup(a.File.Release)
	return a
}

// basedAnswer is a file in which the body stands behind something else, and
// something else behind the body.
func basedAnswer(t *testing.T, body []byte) *Answer {
	t.Helper()
	const before = 4096
	a := fileAnswer(t, slices.Concat(bytes.Repeat([]byte("#"), before), body, []byte("# more")))
	a.Header, a.Base, a.Size = answerHeader(len(body)), before, int64(len(body))
	return a
}

// answersOf are one body in every form.
func answersOf(t *testing.T, body []byte) map[string]*Answer {
	return map[string]*Answer{"body": bodyAnswer(body), "file": fileAnswer(t, body), "based file": basedAnswer(t, body)}
}

// get asks for an answer, which has a length.
func get(t *testing.T, f *servertest.Front, method string, kv ...string) (*http.Response, string) {
	t.Helper()
	res, body := f.Ask(t, method, "", kv...)
	if len(res.TransferEncoding) > 0 {
		t.Errorf("%s with %v: sent with Transfer-Encoding %v", method, kv, res.TransferEncoding)
	}
	return res, body
}

func TestServe(t *testing.T) {
	size := len(content)
	date := modified.Format(http.TimeFormat)
	for kind, a := range answersOf(t, content) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
		servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
			for _, q := range []struct {
				method string
				header []string
				status int
				length int64 // of Content-Length, -1 for none
				body   string
				rng    string // Content-Range
			}{
				{"GET", nil, 200, int64(size), string(content), ""},
				{"HEAD", nil, 200, int64(size), "", ""},
				{"HEAD", []string{"Range", "bytes=0-1"}, 200, int64(size), "", ""},
				{"GET", []string{"If-None-Match", `W/"tag"`}, 304, -1, "", ""},
				{"GET", []string{"If-Modified-Since", date}, 304, -1, "", ""},
				{"GET", []string{"If-None-Match", `"tag"`, "Range", "bytes=0-1"}, 304, -1, "", ""},
				{"GET", []string{"If-Match", `"other"`}, 412, 0, "", ""},
				{"GET", []string{"Range", "bytes=0-9"}, 206, 10, string(content[:10]), fmt.Sprintf("bytes 0-9/%d", size)},
				{"GET", []string{"Range", "bytes=1-"}, 206, int64(size - 1), string(content[1:]), fmt.Sprintf("bytes 1-%d/%d", size-1, size)},
				{"GET", []string{"Range", "bytes=-3"}, 206, 3, "def", fmt.Sprintf("bytes %d-%d/%d", size-3, size-1, size)},
				{"GET", []string{"Range", "bytes=5-5,999999999-"}, 206, 1, "5", fmt.Sprintf("bytes 5-5/%d", size)},
				{"GET", []string{"Range", "bytes=999999999-"}, 416, 0, "", fmt.Sprintf("bytes */%d", size)},
				{"GET", []string{"Range", "bytes=0-1", "If-Range", `"tag"`}, 206, 2, "01", fmt.Sprintf("bytes 0-1/%d", size)},
				{"GET", []string{"Range", "bytes=0-1", "If-Range", date}, 206, 2, "01", fmt.Sprintf("bytes 0-1/%d", size)},
				{"GET", []string{"Range", "bytes=0-1", "If-Range", `"old"`}, 200, int64(size), string(content), ""},
				{"GET", []string{"Range", "bytes=9-1"}, 200, int64(size), string(content), ""},
				{"GET", []string{"Range", "lines=1-2"}, 200, int64(size), string(content), ""},
				{"GET", []string{"Range", "bytes=0-,0-"}, 200, int64(size), string(content), ""},
				{"GET", []string{"Range", "bytes=0-1", "Range", "bytes=2-3"}, 200, int64(size), string(content), ""},
			} {
				res, body := get(t, f, q.method, q.header...)
				if res.StatusCode != q.status || body != q.body || res.Header.Get("Content-Range") != q.rng {
					t.Errorf("%s: %s %v: %d, %d bytes, range %q; want %d, %d bytes, range %q", kind, q.method, q.header,
						res.StatusCode, len(body), res.Header.Get("Content-Range"), q.status, len(q.body), q.rng)
				}
				if got := res.Header.Get("Content-Length"); q.length >= 0 && got != fmt.Sprint(q.length) || q.length < 0 && got != "" {
					t.Errorf("%s: %s %v: Content-Length %q, want %d", kind, q.method, q.header, got, q.length)
				}
				if res.Header.Get("Vary") != "Accept-Encoding" || res.Header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s: %s %v: headers %v", kind, q.method, q.header, res.Header)
				}
			}
		})
	}
}

func TestNotModifiedKeepsWhatRevalidates(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("If-None-Match", `"tag"`)
	Serve(w, r, bodyAnswer(content))
	for _, name := range []string{"Etag", "Last-Modified", "Cache-Control", "Vary", "Expires", "Content-Location"} {
		if w.Header().Get(name) == "" {
			t.Errorf("304 has no %s", name)
		}
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Accept-Ranges"} {
		if _, ok := w.Header()[name]; ok {
			t.Errorf("304 has a %s", name)
		}
	}
}

func TestMultipart(t *testing.T) {
	for kind, a := range answersOf(t, content) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
		servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
			// The second part is large enough for the section to be passed on.
			last := 20 + together + 10
			res, body := get(t, f, "GET", "Range", fmt.Sprintf("bytes=4-7, 20-%d, -2", last))
			if res.StatusCode != 206 || res.Header.Get("Content-Range") != "" {
				t.Fatalf("%s: %d, Content-Range %q", kind, res.StatusCode, res.Header.Get("Content-Range"))
			}
			media, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
			if err != nil || media != "multipart/byteranges" {
				t.Fatalf("%s: Content-Type %q", kind, res.Header.Get("Content-Type"))
			}
			mr := multipart.NewReader(strings.NewReader(body), params["boundary"])
			for _, want := range []struct{ first, end int }{{4, 8}, {20, last + 1}, {len(content) - 2, len(content)}} {
				p, err := mr.NextPart()
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(p)
				if err != nil || !bytes.Equal(got, content[want.first:want.end]) {
					t.Errorf("%s: part from %d: %d bytes, %v", kind, want.first, len(got), err)
				}
				if cr := p.Header.Get("Content-Range"); cr != fmt.Sprintf("bytes %d-%d/%d", want.first, want.end-1, len(content)) {
					t.Errorf("%s: part has Content-Range %q", kind, cr)
				}
				if p.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
					t.Errorf("%s: part has Content-Type %q", kind, p.Header.Get("Content-Type"))
				}
			}
			if _, err := mr.NextPart(); err != io.EOF {
				t.Errorf("%s: after the last part: %v", kind, err)
			}
		})
	}
}

func TestMultipartOfAnEncodedAnswerIsSentWhole(t *testing.T) {
	a := bodyAnswer(content)
	a.Header.Set("Content-Encoding", "br")
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Range", "bytes=0-1,4-5")
	Serve(w, r, a)
	if w.Code != 200 || w.Body.Len() != len(content) {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
}

func TestRangesOnlyWhereOffered(t *testing.T) {
	a := bodyAnswer(content)
	a.Header.Del("Accept-Ranges")
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Range", "bytes=0-1")
	Serve(w, r, a)
	if w.Code != 200 {
		t.Errorf("got %d for a range of what has none", w.Code)
	}
}

func TestServeStatus(t *testing.T) {
	a := bodyAnswer([]byte("gone"))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ServeStatus(w, r, 404, a) })
	servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
		for _, method := range []string{"GET", "HEAD"} {
			res, body := get(t, f, method, "If-None-Match", `"tag"`, "Range", "bytes=0-1")
			if res.StatusCode != 404 || method == "GET" && body != "gone" || res.ContentLength != 4 {
				t.Errorf("%s: %d %q", method, res.StatusCode, body)
			}
			for _, name := range []string{"ETag", "Last-Modified", "Accept-Ranges"} {
				if v := res.Header.Get(name); v != "" {
					t.Errorf("404 has %s: %s", name, v)
				}
			}
		}
	})
}

// Another status than 200 is sent as it is, whatever is asked of it.
func TestOtherStatuses(t *testing.T) {
	for kind, a := range answersOf(t, content) {
		for _, status := range []int{203, 301, 404, 410, 503, 599} {
			a.Status = status
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
			servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
				for _, header := range [][]string{
					nil,
					{"If-None-Match", `"tag"`},
					{"If-Match", `"other"`},
					{"Range", "bytes=0-1"},
					{"If-Modified-Since", modified.Format(http.TimeFormat)},
				} {
					for _, method := range []string{"GET", "HEAD"} {
						res, body := get(t, f, method, header...)
						want := string(content)
						if method == "HEAD" {
							want = ""
						}
						if res.StatusCode != status || body != want || res.ContentLength != int64(len(content)) || res.Header.Get("Etag") != `"tag"` {
							t.Errorf("%s: %s of %d with %v: %d, %d bytes, length %d, %v", kind, method, status, header,
								res.StatusCode, len(body), res.ContentLength, res.Header)
						}
					}
				}
			})
		}
	}
}

func TestNoContent(t *testing.T) {
	a := &Answer{Status: 204, Header: http.Header{"X-A": {"b"}, "Content-Length": {"0"}}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
	servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
		res, _ := get(t, f, "GET")
		if _, length := res.Header["Content-Length"]; res.StatusCode != 204 || length || res.Header.Get("X-A") != "b" {
			t.Errorf("%d, %v", res.StatusCode, res.Header)
		}
	})
	if a.Header.Get("Content-Length") != "0" {
		t.Error("the answer itself was changed")
	}
}

func TestNoContentTypeIsMadeUp(t *testing.T) {
	a := bodyAnswer([]byte("<html>"))
	a.Header.Del("Content-Type")
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
	servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
		for _, a.Status = range []int{0, 404} {
			if res, _ := get(t, f, "GET"); len(res.Header["Content-Type"]) != 0 {
				t.Errorf("%d has Content-Type %q", res.StatusCode, res.Header["Content-Type"])
			}
		}
	})
}

func TestHeadersOfTheAnswerAreNeverWrittenInto(t *testing.T) {
	a := bodyAnswer([]byte("x"))
	vary := make([]string, 1, 8) // with room, as an append would like it
	vary[0] = "Accept-Encoding"
	a.Header["Vary"] = vary
	for range 2 {
		w := httptest.NewRecorder()
		Serve(w, httptest.NewRequest("GET", "/", nil), a)
		w.Header().Add("Vary", "Origin")
	}
	if vary[:2][1] != "" {
		t.Error("an Add after Serve wrote into the shared answer")
	}
}

func TestMissingContentLengthIsAdded(t *testing.T) {
	a := bodyAnswer(content)
	a.Header.Del("Content-Length")
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
	servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
		if res, _ := get(t, f, "GET"); res.ContentLength != int64(len(content)) {
			t.Errorf("Content-Length %d", res.ContentLength)
		}
	})
}

func TestShrunkFileAborts(t *testing.T) {
	for _, size := range []int64{int64(len(content)) * 2, together / 2} {
		a := fileAnswer(t, content[:together/4])
		a.Size = size
		a.Header.Set("Content-Length", fmt.Sprint(size))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
		servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
			req, err := http.NewRequestWithContext(t.Context(), "GET", f.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := f.Client().Do(req)
			if err != nil {
				return // cut before the header was out
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err == nil {
				t.Errorf("%d of %d bytes came without an error", len(body), size)
			}
		})
	}
}

// sectionConn notes what net/http hands to the connection's ReadFrom.
type sectionConn struct {
	net.Conn
	got *sync.Map
}

func (c sectionConn) ReadFrom(r io.Reader) (int64, error) {
	if s, ok := r.(*Section); ok {
		c.got.Store(s.Remaining(), true)
	}
	return io.Copy(onlyWriter{c.Conn}, r)
}

type sectionListener struct {
	net.Listener
	got *sync.Map
}

func (l sectionListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return sectionConn{c, l.got}, nil
}

func TestConnectionGetsTheSectionItself(t *testing.T) {
	a := fileAnswer(t, content)
	var got sync.Map
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
	f := servertest.Serve(t, "h1", h, func(s *httptest.Server) { s.Listener = sectionListener{s.Listener, &got} })
	last := len(content) - 1
	get(t, f, "GET")
	get(t, f, "GET", "Range", fmt.Sprintf("bytes=10-%d", last))
	get(t, f, "GET", "Range", fmt.Sprintf("bytes=0-1,20-%d", last))
	for _, n := range []int{len(content), len(content) - 10, len(content) - 20} {
		if _, ok := got.Load(int64(n)); !ok {
			t.Errorf("a section of all %d bytes never reached the connection", n)
		}
	}
}

func TestReaderAtFile(t *testing.T) {
	closed := false
	a := bodyAnswer(content)
	a.Body = nil
	a.File = NewReaderAt(bytes.NewReader(content), closerFunc(func() error { closed = true; return nil }))
	if a.File.HasDescriptor() {
		t.Error("a bytes.Reader has no descriptor")
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) })
	servertest.EachProtocol(t, h, func(t *testing.T, f *servertest.Front) {
		if _, body := get(t, f, "GET"); body != string(content) {
			t.Errorf("%d bytes", len(body))
		}
	})
	a.File.Release()
	if !closed || a.File.Retain() {
		t.Error("the last Release did not close it")
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

func TestFileIsClosedByItsLastUser(t *testing.T) {
	a := fileAnswer(t, content)
	if !a.File.Retain() {
		t.Fatal("an open file cannot be retained")
	}
	a.File.Release()
	if _, err := a.File.ReadAt(make([]byte, 1), 0); err != nil {
		t.Errorf("closed while somebody held it: %v", err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	sf := NewFile(f)
	sf.Release()
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after the last release: %v", err)
	}
}

func TestClientThatLeavesEndsTheHandler(t *testing.T) {
	big := make([]byte, 8<<20)
	a := fileAnswer(t, big)
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		Serve(w, r, a)
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	<-done
}

// TestLengthOverHTTP2: every answer has a Content-Length, also those whose length
// is left to net/http.
func TestLengthOverHTTP2(t *testing.T) {
	for _, size := range []int{0, 1, 501, 4095, 4096, 4097, 70_000} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			a := &Answer{Header: http.Header{"Content-Type": {"text/plain"}}, Body: make([]byte, size), Size: int64(size)}
			f := servertest.Serve(t, "h2", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r, a) }))
			resp, _ := f.Ask(t, method, "")
			if got := resp.Header.Values("Content-Length"); resp.ProtoMajor != 2 || len(got) != 1 || got[0] != strconv.Itoa(size) {
				t.Errorf("%s of %d bytes over %s: Content-Length %q", method, size, resp.Proto, got)
			}
		}
	}
}
