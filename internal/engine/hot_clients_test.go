package engine_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/internal/observe/accesslog"
	"millrace/internal/process/servertest"
)

// twins are two servers of the same sites, one with the fast lane and one without.
type twins struct {
	*testing.T
	protocol string
	ways     [2]*way
	log      string         // of the first
	asked    int            // requests so far, which have their number in Referer
	hot      map[int]string // those that the lane must answer
}

// eachTwins calls test for each protocol, with servers of its own. {own} is a folder of one
// server.
func eachTwins(t *testing.T, sites string, test func(w *twins)) {
	t.Helper()
	cert, key, pool := certificate(t)
	conf := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := &twins{T: t, protocol: protocol, log: filepath.Join(t.TempDir(), "log"), hot: map[int]string{}}
			for i := range w.ways {
				cfg := parse(t, fmt.Sprintf("listen: 127.0.0.1:0\ntls: {listen: [\"127.0.0.1:0\"], cert: %q, key: %q, redirect: false, http3: true}\nlane: {off: %v}\n%s", cert, key, i == 1, strings.ReplaceAll(sites, "{own}", t.TempDir())))
				if i == 0 {
					cfg.Log = accesslog.Options{File: w.log, Format: "json"}
				}
				w.ways[i] = wayTo(t, protocol, start(t, cfg), conf)
			}
			test(w)
			w.checkHot()
		})
	}
}

// ask asks both servers, and compares their answers. With hot the lane must answer.
func (w *twins) ask(hot bool, path string, head ...string) {
	w.Helper()
	w.asked++
	if hot {
		w.hot[w.asked] = fmt.Sprintf("%s %q", path, head)
	}
	var got [2]string
	for i, to := range w.ways {
		res, body := to.ask("GET", path, "", append([]string{"Referer", strconv.Itoa(w.asked)}, head...)...)
		for _, name := range []string{"Date", "Age", "Cache-Status", "Alt-Svc"} {
			delete(res.Header, name)
		}
		got[i] = fmt.Sprintf("%d %q %x", res.StatusCode, res.Header, sha256.Sum256([]byte(body)))
	}
	if got[0] != got[1] {
		w.Errorf("%s %q:\nwith the lane    %s\nwithout the lane %s", path, head, got[0], got[1])
	}
}

// encoded waits until both servers have an encoded answer.
func (w *twins) encoded(path string) {
	w.Helper()
	for _, to := range w.ways {
		servertest.Eventually(w.T, "the encoded answer", func() bool {
			res, _ := to.ask("GET", path, "", "Accept-Encoding", "br")
			return res.Header.Get("Content-Encoding") != ""
		})
	}
}

// checkHot reads in the log who has answered.
func (w *twins) checkHot() {
	w.Helper()
	by := map[string]string{}
	servertest.Eventually(w.T, "all lines of the log", func() bool {
		text, err := os.ReadFile(w.log)
		if err != nil {
			return false
		}
		for line := range bytes.Lines(text) {
			var one struct{ Referer, Lane string }
			if json.Unmarshal(line, &one) != nil {
				return false // half a line
			}
			by[one.Referer] = one.Lane
		}
		return by[strconv.Itoa(w.asked)] != ""
	})
	for n, what := range w.hot {
		if lane := by[strconv.Itoa(n)]; lane != "fast" {
			w.Errorf("%s is cold: %q has answered", what, lane)
		}
	}
}

// encodings are values of Accept-Encoding: what browsers, crawlers and programs send, and what
// nobody does.
func encodings(r *rand.Rand, n int) []string {
	list := []string{
		"", "gzip, deflate, br, zstd", "gzip, deflate, br", "gzip", "gzip;q=0.5", "identity;q=1, *;q=0", "br;q=1.0, gzip;q=0.8, *;q=0.1",
		"identity", "deflate", "*", "*;q=0", "identity;q=0", "gzip, deflate, compress;q=0.2", "GZIP,,x", "br;q=2, gzip", "x-gzip", "gzip;q=0, br;q=0.001",
		"gzip;level=1", ";q=1", "gzip, dcb, dcz", "deflate, gzip;q=1.0, *;q=0.5", "gzip\t;\tq=0.5",
	}
	names := []string{"gzip", "br", "zstd", "deflate", "identity", "*", "x-gzip", "Br", "dcb", "dcz", "new", ""}
	weights := []string{"", "", "", ";q=0", ";q=0.1", ";q=0.9", ";q=1.0", "; q=0.5", ";Q=0.25", ";q=2", ";q", ";x=1"}
	for range n {
		var members []string
		for range 1 + r.IntN(5) {
			members = append(members, names[r.IntN(len(names))]+weights[r.IntN(len(weights))])
		}
		list = append(list, strings.Trim(strings.Join(members, []string{",", ", ", " , "}[r.IntN(3)]), " "))
	}
	return list
}

// TestEveryEncodingIsHot: whatever Accept-Encoding says, the third time the lane answers, with
// what a server without it sends.
func TestEveryEncodingIsHot(t *testing.T) {
	text := strings.Repeat("a text that can be compressed well\n", 100)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Content-Type", "text/plain")
		if strings.HasPrefix(r.URL.Path, "/vary") {
			w.Header().Set("Vary", "Accept-Encoding")
			_, _ = fmt.Fprintf(w, "%q", r.Header["Accept-Encoding"])
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(up.Close)
	seed := rand.Uint64()
	eachTwins(t, fmt.Sprintf(`
sites:
- routes:
    /: {static: {root: %q}}
    /api: {cache: %s}
    /vary: {cache: %s}
`, folder(t, map[string]string{"a.txt": text, "b.bin": "any"}), up.URL, up.URL), func(w *twins) {
		w.encoded("/a.txt")
		w.encoded("/api")
		for _, value := range encodings(rand.New(rand.NewPCG(seed, 1)), 40) {
			var head []string
			if value != "" {
				head = []string{"Accept-Encoding", value}
			}
			for _, path := range []string{"/a.txt", "/b.bin", "/api", "/vary"} {
				for n := range 3 {
					w.ask(n == 2, path, head...)
				}
			}
		}
		if w.Failed() {
			w.Logf("the seed was %d", seed)
		}
	})
}

// client is what a program sends with each of its requests, and with those for some kinds of
// content. A field of a kind replaces that of all.
type client struct {
	name  string
	all   []string
	kinds map[string][]string
}

// The clients of TestClientsAreHot, as they are in 2026. The fields of the connection are those
// of HTTP/1.1; over HTTP/2 and HTTP/3 they are left out.
var clients = []client{
	{"Chromium", []string{
		"Connection", "keep-alive", "sec-ch-ua-platform", `"Linux"`,
		"User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Safari/537.36",
		"sec-ch-ua", `"Chromium";v="148", "Google Chrome";v="148", "Not/A)Brand";v="99"`, "sec-ch-ua-mobile", "?0", "Accept", "*/*",
		"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors", "Accept-Encoding", "gzip, deflate, br, zstd", "Accept-Language", "en-GB,en;q=0.9,de;q=0.8",
		"Cookie", "session=0123456789abcdef; theme=dark", "Priority", "u=1, i",
	}, map[string][]string{
		"document": {
			"Cache-Control", "max-age=0", "Upgrade-Insecure-Requests", "1", "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-User", "?1", "Sec-Fetch-Dest", "document",
			"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
			"Device-Memory", "8", "DPR", "2", "Viewport-Width", "1280", "Downlink", "10", "RTT", "50", "ECT", "4g", "Save-Data", "on",
		},
		"prerender": {
			"Sec-Purpose", "prefetch;prerender", "Purpose", "prefetch", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Service-Worker-Navigation-Preload", "true",
			"Sec-Fetch-Storage-Access", "active", "Sec-Speculation-Tags", "null",
		},
		"css":     {"Accept", "text/css,*/*;q=0.1", "Sec-Fetch-Dest", "style"},
		"spelled": {"Accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8", "Sec-Fetch-Dest", "image"},
		"js":      {"Sec-Fetch-Dest", "script", "Origin", "https://localhost", "Sec-Fetch-Mode", "cors"},
		"image":   {"Accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8", "Sec-Fetch-Dest", "image"},
		"picture": {"Accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8", "Sec-Fetch-Dest", "image"},
		"font":    {"Origin", "https://localhost", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "font"},
		"video":   {"Accept-Encoding", "identity;q=1, *;q=0", "Range", "bytes=0-", "Sec-Fetch-Dest", "video"},
		"seek":    {"Accept-Encoding", "identity;q=1, *;q=0", "Range", "bytes=32768-", "If-Range", "@", "Sec-Fetch-Dest", "video"},
		"fetch":   {"Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty", "X-Requested-With", "XMLHttpRequest", "X-App-Version", "7.1", "Content-Type", "application/json"},
		"again":   {"If-None-Match", "@", "If-Modified-Since", "$", "Cache-Control", "max-age=0"},
		"reload":  {"Cache-Control", "no-cache", "Pragma", "no-cache"},
		"film":    {"Accept-Encoding", "identity;q=1, *;q=0", "Range", "bytes=0-", "Sec-Fetch-Dest", "video"},
		"sw":      {"Cache-Control", "max-age=0", "Service-Worker", "script", "Sec-Fetch-Mode", "same-origin", "Sec-Fetch-Dest", "serviceworker"},
	}},
	{"Firefox", []string{
		"User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:149.0) Gecko/20100101 Firefox/149.0", "Accept", "*/*", "Accept-Language", "en-GB,en;q=0.7,de;q=0.3",
		"Accept-Encoding", "gzip, deflate, br, zstd", "Sec-GPC", "1", "DNT", "1", "Connection", "keep-alive", "Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "cors",
		"Sec-Fetch-Site", "same-origin", "Priority", "u=4", "TE", "trailers",
	}, map[string][]string{
		"document": {"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Upgrade-Insecure-Requests", "1", "Sec-Fetch-Dest", "document", "Sec-Fetch-User", "?1"},
		"css":      {"Accept", "text/css,*/*;q=0.1"},
		"js":       nil,
		"image":    {"Accept", "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"},
		"picture":  {"Accept", "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"},
		"font":     {"Accept", "application/font-woff2;q=1.0,application/font-woff;q=0.9,*/*;q=0.8", "Accept-Encoding", "identity", "Origin", "null"},
		"video":    {"Accept", "video/webm,video/ogg,video/*;q=0.9,application/ogg;q=0.7,audio/*;q=0.6,*/*;q=0.5", "Range", "bytes=0-", "Accept-Encoding", "identity"},
		"seek":     {"Range", "bytes=32768-", "Accept-Encoding", "identity", "If-Range", "@"},
		"fetch":    {"Alt-Used", "localhost", "X-Moz", "prefetch"},
		"again":    {"If-None-Match", "@", "If-Modified-Since", "$"},
	}},
	{"Safari", []string{
		"Accept", "*/*", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors", "Connection", "keep-alive", "Accept-Language", "en-GB,en;q=0.9", "Priority", "u=3, i",
		"User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 26_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 Mobile/15E148 Safari/604.1",
		"Accept-Encoding", "gzip, deflate, br",
	}, map[string][]string{
		"document": {"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		"css":      {"Accept", "text/css,*/*;q=0.1"},
		"js":       nil,
		"image":    {"Accept", "image/webp,image/avif,image/jxl,image/heic,image/heic-sequence,video/*;q=0.8,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"},
		"picture":  {"Accept", "image/webp,image/avif,image/jxl,image/heic,image/heic-sequence,video/*;q=0.8,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"},
		"font":     {"Origin", "https://localhost"},
		"video":    {"Range", "bytes=0-1", "Accept-Encoding", "identity", "X-Playback-Session-Id", "5A1B4E2C-0001"},
		"seek":     {"Range", "bytes=32768-40959", "Accept-Encoding", "identity", "X-Playback-Session-Id", "5A1B4E2C-0001"},
		"again":    {"If-None-Match", "@", "If-Modified-Since", "$", "Cache-Control", "max-age=0"},
	}},
	{"curl", []string{"User-Agent", "curl/8.14.1", "Accept", "*/*"}, map[string][]string{
		"document": nil, "image": nil, "picture": nil, "video": {"Range", "bytes=0-99"}, "again": {"If-None-Match", "@"}, "fetch": {"Accept-Encoding", "deflate, gzip, br, zstd"},
	}},
	{"Go", []string{"User-Agent", "Go-http-client/1.1", "Accept-Encoding", "gzip"}, map[string][]string{"document": nil, "image": nil, "fetch": nil, "video": nil}},
	{"python-requests", []string{"User-Agent", "python-requests/2.32.5", "Accept-Encoding", "gzip, deflate, br, zstd", "Accept", "*/*", "Connection", "keep-alive"}, map[string][]string{
		"document": nil, "picture": nil, "again": {"If-Modified-Since", "$"},
	}},
	{"undici", []string{"Connection", "keep-alive", "Accept", "*/*", "Accept-Language", "*", "Sec-Fetch-Mode", "cors", "User-Agent", "node", "Accept-Encoding", "br, gzip, deflate"}, map[string][]string{
		"document": nil, "fetch": {"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "a=b", "Baggage", "c=d"},
	}},
	{"Wget", []string{"User-Agent", "Wget/1.25.0", "Accept", "*/*", "Accept-Encoding", "identity", "Connection", "Keep-Alive"}, map[string][]string{
		"document": nil, "image": nil, "video": {"Range", "bytes=500-"}, "again": {"If-Modified-Since", "$"},
	}},
	{"Googlebot", []string{
		"Connection", "keep-alive", "Accept", "text/html,application/xhtml+xml,application/signed-exchange;v=b3,application/xml;q=0.9,*/*;q=0.8", "From", "googlebot(at)googlebot.com",
		"User-Agent", "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/148.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
		"Accept-Encoding", "gzip, deflate, br", "Amp-Cache-Transform", `google;v="1..8"`,
	}, map[string][]string{"document": nil, "css": nil, "js": nil, "image": nil, "picture": nil, "again": {"If-Modified-Since", "$", "If-None-Match", "@"}}},
	{"bingbot", []string{
		"Cache-Control", "no-cache", "Pragma", "no-cache", "Connection", "Keep-Alive", "Accept", "*/*", "From", "bingbot(at)microsoft.com", "Accept-Encoding", "gzip, deflate, br",
		"User-Agent", "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm) Chrome/148.0.0.0 Safari/537.36",
	}, map[string][]string{"document": nil, "picture": nil}},
	{"Cloudflare", []string{
		"Connection", "Keep-Alive", "Accept-Encoding", "gzip, br", "X-Forwarded-For", "203.0.113.7", "CF-RAY", "9a1b2c3d4e5f6789-FRA", "X-Forwarded-Proto", "https", "CF-Visitor", `{"scheme":"https"}`,
		"CF-Connecting-IP", "203.0.113.7", "CF-IPCountry", "DE", "CDN-Loop", "cloudflare; loops=1", "CF-EW-Via", "15", "User-Agent", "Mozilla/5.0", "Accept", "*/*", "Cookie", "a=b; c=d", "Priority", "u=0, i",
	}, map[string][]string{"document": nil, "css": nil, "image": nil, "picture": {"Accept", "image/avif,image/webp,*/*"}, "video": {"Range", "bytes=0-"}, "again": {"If-None-Match", "@", "If-Modified-Since", "$"}}},
	{"Fastly", []string{
		"User-Agent", "Mozilla/5.0", "Accept", "*/*", "Accept-Encoding", "gzip", "X-Forwarded-For", "203.0.113.7, 157.52.64.10", "X-Forwarded-Server", "cache-fra-1", "X-Forwarded-Host", "localhost",
		"Fastly-Client-IP", "203.0.113.7", "Fastly-FF", "Ab1=!FRA!cache-fra-1", "Fastly-SSL", "1", "Fastly-Orig-Accept-Encoding", "gzip, deflate, br", "X-Varnish", "12 34", "X-Timer", "S1.2,VS0",
		"Surrogate-Capability", `fastly="Surrogate/1.0"`, "CDN-Loop", "Fastly", "Via", "1.1 varnish",
	}, map[string][]string{"document": nil, "css": nil, "image": nil, "again": {"If-None-Match", "@"}}},
	{"CloudFront", []string{
		"User-Agent", "Amazon CloudFront", "X-Amz-Cf-Id", "abc==", "Via", "2.0 0123.cloudfront.net (CloudFront)", "X-Forwarded-For", "203.0.113.7", "Accept-Encoding", "br,gzip", "Connection", "Keep-Alive",
		"CloudFront-Viewer-Country", "DE", "CloudFront-Is-Mobile-Viewer", "false", "CloudFront-Forwarded-Proto", "https",
	}, map[string][]string{"document": nil, "image": nil, "video": {"Range", "bytes=0-1048575"}}},
	{"Envoy", []string{
		"User-Agent", "Mozilla/5.0", "Accept", "*/*", "X-Forwarded-For", "203.0.113.7", "X-Forwarded-Proto", "https", "X-Envoy-External-Address", "203.0.113.7", "X-Request-Id", "0f9e-1",
		"X-Envoy-Attempt-Count", "1", "X-Amzn-Trace-Id", "Root=1-67891233-abcdef012345678912345678", "X-Forwarded-Port", "443", "X-Real-IP", "203.0.113.7", "Forwarded", "for=203.0.113.7",
	}, map[string][]string{"document": nil, "fetch": {"Accept-Encoding", "gzip;q=1.0,deflate;q=0.6,identity;q=0.3"}}},
}

// kindPaths are what the kinds ask for.
var kindPaths = map[string]string{
	"document": "/index.html", "spelled": "/gr%C3%BC%C3%9Fe/a%20b%20(1)%25.svg", "prerender": "/index.html", "again": "/index.html", "reload": "/index.html", "css": "/a.css", "js": "/a.js", "sw": "/a.js", "image": "/a.svg", "picture": "/photos/a.jpg",
	"font": "/a.woff2", "video": "/a.mp4", "seek": "/a.mp4", "fetch": "/a.json", "film": "/large.mp4",
}

// TestClientsAreHot: whatever a usual client sends, the lane answers when the same is asked for
// again.
func TestClientsAreHot(t *testing.T) {
	text := strings.Repeat("a text that can be compressed well\n", 100)
	files := folder(t, map[string]string{
		"index.html": text, "a.css": text, "a.js": text, "a.json": text, "a.svg": "<svg>" + text, "photos/x": "", "grüße/a b (1)%.svg": "<svg>" + text, "a.woff2": text, "a.mp4": strings.Repeat("0123456789abcdef", 3_000), "large.mp4": strings.Repeat("0123456789abcdef", 12_000),
	})
	place(t, filepath.Join(files, "photos", "a.jpg"), photo(t, 1), time.Hour)
	eachTwins(t, fmt.Sprintf(`
sites:
- routes:
    /: {static: {root: %q}}
    /photos/: {static: {root: %q}, images: {formats: [webp], store: "{own}", wait: 20s, no_best: true}}
`, files, filepath.Join(files, "photos")), func(w *twins) {
		for _, to := range w.ways {
			servertest.Eventually(t, "a variant", func() bool {
				res, _ := to.ask("GET", "/photos/a.jpg", "", "Accept", "image/webp")
				return res.Header.Get("Content-Type") == "image/webp"
			})
		}
		for _, path := range []string{"/index.html", "/a.css", "/a.js", "/a.json", "/a.svg", kindPaths["spelled"]} {
			w.encoded(path)
		}
		for _, c := range clients {
			for kind, own := range c.kinds {
				head, path := map[string]string{}, kindPaths[kind]
				for _, fields := range [][]string{c.all, own} {
					for i := 0; i < len(fields); i += 2 {
						head[fields[i]] = fields[i+1]
					}
				}
				if w.protocol != "h1" && w.protocol != "tls" {
					delete(head, "Connection")
				}
				var list []string
				for _, name := range slices.Sorted(maps.Keys(head)) {
					value := head[name]
					if value == "@" || value == "$" {
						res, _ := w.ways[0].ask("GET", path, "", "Accept-Encoding", head["Accept-Encoding"])
						value = map[string]string{"@": res.Header.Get("Etag"), "$": res.Header.Get("Last-Modified")}[value]
					}
					list = append(list, name, value)
				}
				w.ask(false, path, list...)
				// Over HTTP/2 and HTTP/3 the lane copies, so large files are for a worker.
				w.ask(kind != "film" || w.protocol == "h1" || w.protocol == "tls", path, list...)
			}
		}
	})
}
