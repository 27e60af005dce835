package cache

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/cache/rules"

	"github.com/dunglas/httpsfv"
)

// fuzzOrigin answers with what it was asked for, in a way that the path says.
func fuzzOrigin(_ int, r *http.Request) *http.Response {
	control, status := "max-age=60", 200
	for part := range strings.SplitSeq(r.URL.Path, "/") {
		switch part {
		case "private", "no-store", "no-cache", "max-age=0":
			control = part
		case "304":
			status = 304
		case "404":
			status = 404
		case "down":
			return nil
		}
	}
	// Host and target as they came, and what may be one user's.
	said := strings.Join([]string{r.Header.Get("X-Forwarded-Host"), r.URL.RequestURI(), strings.Join(r.Header["Cookie"], "|"), strings.Join(r.Header["Authorization"], "|")}, "\n")
	if status == 304 && r.Header.Get("If-None-Match") == "" {
		status = 200
	}
	return say(status, said, "Cache-Control", control, "Etag", `"1"`, "Vary", "X-Kind", "X-Said-Kind", r.Header.Get("X-Kind"))
}

// Whatever a client sends, it gets an answer that was made for its URL and its
// credentials, and Cache-Status can be read.
func FuzzRequest(f *testing.F) {
	f.Add("GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n")
	f.Add("GET /x?q=1 HTTP/1.1\r\nHost: b.example\r\nCookie: sid=alice\r\nX-Kind: 1\r\n\r\n")
	f.Add("GET http://c.example/x HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer a\r\nX-Forwarded-Host: evil\r\n\r\n")
	f.Add("HEAD /404 HTTP/1.1\r\nHost: a.example\r\nIf-None-Match: \"1\"\r\nRange: bytes=0-1\r\n\r\n")
	f.Add("POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n")
	f.Add("GET /max-age=0/304 HTTP/1.1\r\nHost: a.example\r\nCache-Control: only-if-cached, max-stale, no-cache, x=\"\r\n\r\n")
	f.Add("GET /private HTTP/1.0\r\nHost: a.example\r\nConnection: Cookie, X-Kind, close\r\nCookie: b\r\nX-Kind: \r\n\r\n")
	f.Add("OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n")
	f.Add("GET /down HTTP/1.1\r\nHost: [::1]:80\r\nAccept-Language: de;q=0.5, *\r\nAccept: application/json\r\n\r\n")
	var caches []*Handler
	for _, preset := range []string{rules.PresetAPI, rules.PresetRFC} {
		o := Options{Preset: preset, Memory: 4 << 20, Languages: []string{"de", "en"}}
		o.To, o.Host = []string{"http://127.0.0.1:1"}, "client"
		h, err := New(o, Deps{Transport: &origin{answer: fuzzOrigin}, ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { h.Close() })
		caches = append(caches, h)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i, h := range caches {
			for range 2 {
				r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
				if err != nil {
					return
				}
				fuzzOne(t, h, i == 0, r)
			}
		}
	})
}

// fuzzOne sends one request. Where credentials bypass the cache, the answer must
// be for those that the request has.
func fuzzOne(t *testing.T, h *Handler, bypassed bool, r *http.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r = r.WithContext(ctx)
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	switch {
	case r.Method == http.MethodTrace, w.Code == http.StatusLoopDetected, r.Method == http.MethodOptions:
		return // none of the cache's business, or of the upstream's
	}
	list, err := httpsfv.UnmarshalList(w.Header()["Cache-Status"])
	if err != nil || len(list) == 0 {
		t.Fatalf("Cache-Status %q: %v", w.Header()["Cache-Status"], err)
	}
	lines := strings.Split(w.Body.String(), "\n")
	if w.Code != 200 && w.Code != 404 || len(lines) != 4 {
		return
	}
	target := r.URL.RequestURI()
	if r.URL.Opaque != "" || !strings.HasPrefix(target, "/") {
		return // the upstream gets the root for it
	}
	if lines[0] != "" && plainHost(lines[0]) != plainHost(r.Host) || lines[1] != target {
		t.Fatalf("%q at %q got the answer for %q at %q", target, r.Host, lines[1], lines[0])
	}
	if kinds := w.Header().Get("X-Said-Kind"); kinds != r.Header.Get("X-Kind") && len(r.Header["X-Kind"]) < 2 && !strings.ContainsAny(kinds, ", \t") {
		t.Fatalf("X-Kind %q got the answer for %q", r.Header["X-Kind"], kinds)
	}
	cookies, credentials := strings.Join(r.Header["Cookie"], "|"), strings.Join(r.Header["Authorization"], "|")
	if bypassed && (lines[2] != cookies || lines[3] != credentials) {
		t.Fatalf("%q %q got the answer for %q %q", cookies, credentials, lines[2], lines[3])
	}
	if lines[3] != "" && lines[3] != credentials {
		t.Fatalf("the answer for %q went to %q", lines[3], credentials)
	}
}

// plainHost is a host without what makes no difference (RFC 9110, 4.2.3).
func plainHost(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(host), ":80"), ":")
}
