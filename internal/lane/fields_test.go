package lane

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
)

// TestMatchFields is TestMatchAccepts and TestMatchRefuses for fields of HTTP/2.
func TestMatchFields(t *testing.T) {
	for line, want := range map[string]bool{
		"x-unknown: 1":                     true,
		"x-unknown: ":                      true,
		"x-unknown: a\tb\xff":              true,
		"x-unknown: 1\nx-unknown: 2":       true,
		"te: trailers":                     true,
		"content-type: text/plain":         true,
		"accept: a\naccept: b":             true,
		"cookie: a\ncookie: b":             true,
		"user-agent: \xc3\xa9":             true,
		strings.Repeat("x", 100) + ": 1":   true,
		"X-Unknown: 1":                     false,
		strings.Repeat("X", 100) + ": 1":   false,
		"x_unknown: 1":                     false,
		"x unknown: 1":                     false,
		"x-unknown : 1":                    false,
		":late: 1":                         false,
		":path: /other":                    false,
		"x:y: 1":                           false,
		"x-\x00: 1":                        false,
		"x-\xff: 1":                        false,
		"x-unknown:  1":                    false,
		"x-unknown: 1 ":                    false,
		"x-unknown: 1\t":                   false,
		"x-unknown: a\rb":                  false,
		"x-unknown: \x00":                  false,
		"connection: keep-alive":           false,
		"keep-alive: 1":                    false,
		"proxy-connection: keep-alive":     false,
		"transfer-encoding: chunked":       false,
		"upgrade: websocket":               false,
		"http2-settings: AAA":              false,
		"host: b.example":                  false,
		"content-length: 0":                false,
		"content-encoding: br":             false,
		"trailer: x":                       false,
		"te: gzip":                         false,
		"te: trailers\nte: trailers":       false,
		"expect: 100-continue":             false,
		"range: bytes=0-1":                 true,
		"range: bytes=0-1\nrange: bytes=2": false,
		"if-range: \"t\"":                  true,
		"if-match: \"t\"":                  false,
		"if-unmodified-since: x":           false,
		"accept: ":                         false,
		"if-none-match: a\nif-none-match:": false,
	} {
		fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/"}}
		for one := range strings.SplitSeq(line, "\n") {
			i := strings.LastIndex(one, ":")
			fields = append(fields, hpack.HeaderField{Name: one[:i], Value: strings.TrimPrefix(one[i+1:], " ")})
		}
		var q request
		if _, ok := matchFields(nil, fields, &q); ok != want {
			t.Errorf("%q: %t", line, ok)
		}
	}
}

// TestDemands: of the fields whose values the lane does not keep, those count that an answer
// varies on; handlers of other programs may look at any.
func TestDemands(t *testing.T) {
	o := newOfferer(t)
	s := &shelf{o.lane.table, t}
	for target, rule := range map[string]Rule{
		"/any":    {},
		"/one":    {VaryOn: []string{"x-one", "DNT"}},
		"/kept":   {VaryOn: []string{"Accept-Language"}},
		"/strict": {strict: true},
	} {
		if !o.offer(1, asked("GET", target, http.Header{"Accept-Language": {"de"}}), answerOf(target), rule) {
			t.Fatalf("%s is not taken", target)
		}
	}
	const german = "Accept-Language: de"
	for lines, want := range map[string]string{
		german:                                  "/any /one /kept /strict",
		german + "\r\nX-Two: 1":                 "/any /one /kept",
		german + "\r\nX-Two: 1\r\nX-Two: 2":     "/any /one /kept",
		german + "\r\nSec-Fetch-Mode: cors":     "/any /one /kept /strict",
		german + "\r\nX-One: 1":                 "/any /kept",
		german + "\r\nX-One:":                   "/any /kept",
		german + "\r\nx-oNE:1\r\nX-Two: 1":      "/any /kept",
		german + "\r\nX-One-Two: 1":             "/any /one /kept",
		german + "\r\nDnt: 1":                   "/any /kept /strict",
		german + "\r\nReferer: a\r\nReferer: b": "/any /one /kept",
		german + "\r\n" + german:                "/any /one",
		"Accept-Language:de\t":                  "/any /one /kept /strict",
	} {
		var got []string
		for _, target := range []string{"/any", "/one", "/kept", "/strict"} {
			if s.ask(1, target, lines) == target {
				got = append(got, target)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %s, want %s", lines, got, want)
		}
	}
	// Whoever looks at another field has another entry.
	if !o.offer(1, asked("GET", "/any", nil), answerOf("other"), Rule{VaryOn: []string{"X-Two"}}) || s.ask(1, "/any", "X-Two: 1") != "" {
		t.Error("an answer that does not vary on a field is beside one that does")
	}
}

// TestSettingsWatch: a field that names the client or the request makes a request cold if the
// lane does not keep its value.
func TestSettingsWatch(t *testing.T) {
	l := New(Options{}, Settings{Tracer: trace.New(nil, &trace.IDOptions{Header: "X-Trace"}, false)}, nil, meter.New())
	defer l.Close()
	s := l.settings.Load()
	for lines, want := range map[string]bool{"X-Other: 1": true, "X-Trace: 1": false, "x-trace:": false, "Referer: 1\r\nReferer: 2": true} {
		b := []byte("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n\r\n")
		var q request
		if _, v := match(b, &q); v != matched || s.allow(b, &q) != want {
			t.Errorf("%q: verdict %d, want %t", lines, v, want)
		}
	}
}
