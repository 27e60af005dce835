package server

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/lane"
)

// oddHandlers write their answers in every way that net/http knows, and in ways
// that it forgives: the through road must write the same bytes.
func oddHandlers(tb testing.TB) map[string]http.HandlerFunc {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "file")
	if err := os.WriteFile(file, []byte(bigBody), 0o600); err != nil {
		tb.Fatal(err)
	}
	all := map[string]http.HandlerFunc{}
	oddLengths(all)
	oddHeaders(all)
	oddEnds(all)
	oddBodies(all, file)
	return all
}

func put(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// oddLengths are the ways to say, or not to say, how long an answer is.
func oddLengths(all map[string]http.HandlerFunc) {
	with := func(header, value string, status int, parts ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			if status != 0 {
				w.WriteHeader(status)
			}
			for _, p := range parts {
				_, _ = w.Write([]byte(p))
			}
		}
	}
	medium := strings.Repeat("m", 1500)
	maps.Copy(all, map[string]http.HandlerFunc{
		"nothing":        with("", "", 0),
		"status":         with("", "", 201),
		"empty":          with("", "", 200, ""),
		"small":          with("", "", 0, "<html>"),
		"parts":          with("", "", 0, "a", "b", "", "c"),
		"medium":         with("", "", 0, medium, medium, medium),
		"kept":           with("", "", 0, strings.Repeat("k", 2048)),
		"kept and one":   with("", "", 0, strings.Repeat("k", 2048), "1"),
		"large":          with("", "", 0, bigBody),
		"large and more": with("", "", 0, "first", bigBody, "last"),
		"exact":          with("Content-Length", "5", 200, "exact"),
		"exact large":    with("Content-Length", fmt.Sprint(len(bigBody)), 200, bigBody),
		"too few":        with("Content-Length", "50", 200, "few"),
		"too many":       with("Content-Length", "2", 200, "many"),
		"some too many":  with("Content-Length", "6", 200, "many", "more"),
		"no number":      with("Content-Length", "abc", 200, "body"),
		"negative":       with("Content-Length", "-1", 200, "body"),
		"zero":           with("Content-Length", "0", 200),
		"204":            with("Content-Length", "3", 204, "abc"),
		"304":            with("Content-Type", "text/x", 304, "abc"),
		"205":            with("", "", 205),
		"404":            with("X", "y", 404, "not here"),
		"600":            with("", "", 600, "six"),
		"999":            with("", "", 999, "nine"),
		"42":             with("", "", 42),
		"identity":       with("Transfer-Encoding", "identity", 200, "until the end"),
		"chunked":        with("Transfer-Encoding", "chunked", 200, "in chunks"),
		"another coding": with("Transfer-Encoding", "gzip", 200, "in what"),
		"101":            with("Upgrade", "x", 101),
		"coded":          with("Content-Encoding", "gzip", 200, "<html>"),
		"coded as none":  with("Content-Encoding", "", 200, "<html>"),
		"closing":        with("Connection", "close", 200, "last"),
		"closing, too":   with("Connection", "keep-alive, Close", 200, "last"),
		"keeping":        with("Connection", "keep-alive", 200, "next"),
		"both": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			w.Header().Set("Transfer-Encoding", "chunked")
			put(w, "both")
		},
		"strings": func(w http.ResponseWriter, _ *http.Request) { put(w, bigBody); put(w, "more") },
	})
}

// oddHeaders are the ways to set fields.
func oddHeaders(all map[string]http.HandlerFunc) {
	all["late header"] = func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Before", "1")
		w.WriteHeader(200)
		h.Set("After", "1")
		w.Header().Set("Before", "2")
		put(w, "x")
	}
	all["many"] = func(w http.ResponseWriter, _ *http.Request) {
		for i := range 40 {
			w.Header().Add(fmt.Sprint("X-", i%30), strings.Repeat("v", 200))
		}
		put(w, "many")
	}
	all["strange"] = func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["lower"] = []string{"a"}
		h["no name"] = []string{"b"}
		h["Lines"] = []string{"c\r\nX: d", "  e ", ""}
		h["Nothing"] = nil
		h["Content-Type"] = nil
		h["Date"] = []string{"never"}
		h.Set("Server", "me")
		put(w, "<html>")
	}
	all["superfluous"] = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(202)
		w.WriteHeader(203)
		put(w, "x")
		w.WriteHeader(204)
	}
	all["hints"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>; rel=preload")
		w.Header().Set("Content-Length", "2")
		w.Header().Set("Transfer-Encoding", "identity")
		w.WriteHeader(103)
		w.WriteHeader(199)
		w.Header().Del("Link")
		w.Header().Del("Transfer-Encoding")
		put(w, "ok")
	}
	all["trailers"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Trailer", "B, Content-Length, a")
		w.Header().Add("Trailer", "C")
		put(w, "body")
		w.Header().Set("A", "1")
		w.Header().Set("B", "2")
		w.Header().Set(http.TrailerPrefix+"D", "4")
	}
	all["trailers alone"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(http.TrailerPrefix+"D", "4")
	}
	all["trailers, sized"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "B")
		w.Header().Set("Content-Length", "4")
		put(w, "body")
		w.Header().Set("B", "2")
	}
}

// oddEnds are the ways to send in parts, and to end early.
func oddEnds(all map[string]http.HandlerFunc) {
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	all["flush"] = func(w http.ResponseWriter, _ *http.Request) { flush(w) }
	all["flushes"] = func(w http.ResponseWriter, _ *http.Request) {
		put(w, "a")
		flush(w)
		flush(w)
		put(w, "b")
		put(w, "c")
		flush(w)
	}
	all["flush, sized"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		put(w, "a")
		flush(w)
		put(w, "b")
	}
	all["panic"] = func(http.ResponseWriter, *http.Request) { panic("x") }
	all["panic after fields"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", "y")
		panic("x")
	}
	all["panic late"] = func(w http.ResponseWriter, _ *http.Request) { put(w, "a"); panic("x") }
	all["panic after a flush"] = func(w http.ResponseWriter, _ *http.Request) {
		put(w, "a")
		flush(w)
		put(w, "b")
		panic("x")
	}
	all["abort"] = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	all["abort late"] = func(w http.ResponseWriter, _ *http.Request) { put(w, bigBody); panic(http.ErrAbortHandler) }
	all["hijack"] = func(w http.ResponseWriter, _ *http.Request) {
		nc, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = w.Write([]byte("not this"))
		w.WriteHeader(500)
		_, _ = rw.WriteString("raw")
		_ = rw.Flush()
		_ = nc.Close()
	}
	all["hijack late"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		put(w, "gone")
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		put(nc, "raw")
		_ = nc.Close()
	}
	all["deadlines"] = func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		fmt.Fprint(w, rc.SetReadDeadline(time.Now().Add(time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)))
	}
}

// oddBodies are the ways to treat a request's body and to copy an answer's.
func oddBodies(all map[string]http.HandlerFunc, file string) {
	all["part"] = func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 3)
		n, err := io.ReadFull(r.Body, b)
		fmt.Fprintf(w, "%q %v", b[:n], err)
	}
	all["closed"] = func(w http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(make([]byte, 1))
		fmt.Fprint(w, r.Body.Close())
		_, err := r.Body.Read(make([]byte, 1))
		fmt.Fprint(w, err)
	}
	all["all"] = func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err, r.ContentLength, r.Header, r.TransferEncoding, r.Close, r.Proto, r.TLS == nil, r.Trailer)
		n, err = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}
	all["limited"] = func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 2))
		fmt.Fprint(w, err)
	}
	all["answer first"] = func(w http.ResponseWriter, r *http.Request) {
		put(w, strings.Repeat("a", 3000))
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}
	all["both at once"] = func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		put(w, strings.Repeat("a", 3000))
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}
	all["form"] = func(w http.ResponseWriter, r *http.Request) {
		err := r.ParseMultipartForm(1)
		fmt.Fprint(w, err, r.Form)
	}
	all["request"] = func(w http.ResponseWriter, r *http.Request) {
		_, served := r.Context().Value(http.ServerContextKey).(*http.Server)
		fmt.Fprintf(w, "%s %q %#v %s %t %v", r.Method, r.RequestURI, *r.URL, r.Host, served, r.Context().Value(http.LocalAddrContextKey) != nil)
	}
	all["file"] = func(w http.ResponseWriter, _ *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		_, _ = io.Copy(w, f)
	}
	all["file, sized"] = func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }
	all["reader"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("<html> from a reader"))
		_, _ = w.(io.ReaderFrom).ReadFrom(struct{ io.Reader }{strings.NewReader(bigBody)})
	}
}

// TestOddAnswers: whatever a handler does, the through road sends the bytes that
// net/http sends.
func TestOddAnswers(t *testing.T) {
	odd := oddHandlers(t)
	mux := http.NewServeMux()
	for name, h := range odd {
		mux.HandleFunc("/"+strings.NewReplacer(" ", "-", ",", "").Replace(name), h)
	}
	p := pair{start(t, plan{handler: mux}), start(t, plan{handler: mux, lane: lane.Options{Off: true}})}
	for name := range odd {
		path := "/" + strings.NewReplacer(" ", "-", ",", "").Replace(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, first := range []string{
				request("GET", path),
				request("HEAD", path),
				request("GET", path+"?a=%zz&b", "User-Agent: x", "cookie: a=b", "X-Long: "+strings.Repeat("y", 1000)),
				request("DELETE", path+"/../"+path[1:]),
				post(path, "hello"),
				post(path, strings.Repeat("b", 3000), "Content-Type: application/x-www-form-urlencoded"),
				post(path, strings.Repeat("b", 40_000)),
				post(path, strings.Repeat("b", 300_000)),
				request("PUT", path, "Content-Length: 20") + "not all",
			} {
				for _, transport := range []string{"unix", "tcp"} {
					p.compare(t, transport, first, []byte{100, 60})
					if len(first) < 100_000 { // more is refused, with the connection
						p.compare(t, transport, first+request("GET", "/small")+first, nil)
					}
				}
			}
		})
	}
	t.Cleanup(func() { // after the parallel parts
		if n := p.with.job.Through.Requests(); n < uint64(len(odd)) {
			t.Errorf("%d requests took the through road", n)
		}
	})
}
