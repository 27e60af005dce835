package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// mirror is an upstream that says all it was sent, and that everyone may keep it.
func mirror(t *testing.T) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "%s %s\nhost: %s\nbody: %q of %d\n", r.Method, r.RequestURI, r.Host, body, r.ContentLength) // what a client does not read is its own loss
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			_, _ = fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
		}
		for _, name := range slices.Sorted(maps.Keys(r.Trailer)) {
			_, _ = fmt.Fprintf(w, "trailer %s: %q\n", name, r.Trailer[name])
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// anything is a request as nobody but an attacker writes it.
type anything struct {
	method  string // GET where it is empty
	host    string // visited where it is empty
	query   string // with the question mark
	header  []string
	body    string
	trailer []string
}

// visited is the host that visitors name.
const visited = "a.test"

// visit is the answer to a request: its status, and what the mirror says.
func (w *way) visit(path string, q anything) (int, string, http.Header) {
	w.Helper()
	if q.method == "" {
		q.method = "GET"
	}
	if q.host == "" {
		q.host = visited
	}
	if w.http1() {
		return w.visitHTTP1(path, q)
	}
	var body io.Reader
	if q.body != "" {
		body = io.MultiReader(strings.NewReader(q.body)) // of unknown length
	}
	r, err := http.NewRequestWithContext(w.Context(), q.method, w.base+path+q.query, body)
	if err != nil {
		w.Fatal(err)
	}
	r.Host = q.host
	r.Header["User-Agent"] = nil
	for i := 0; i < len(q.header); i += 2 {
		r.Header[q.header[i]] = append(r.Header[q.header[i]], q.header[i+1])
	}
	for i := 0; i < len(q.trailer); i += 2 {
		if r.Trailer == nil {
			r.Trailer = http.Header{}
		}
		r.Trailer[q.trailer[i]] = []string{q.trailer[i+1]}
	}
	res, said, err := w.send(r)
	if err != nil {
		w.Fatal(err)
	}
	return res.StatusCode, said, res.Header
}

// visitHTTP1 writes its own bytes, on a connection of its own.
func (w *way) visitHTTP1(path string, q anything) (int, string, http.Header) {
	w.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", q.method, path, q.query, q.host)
	for i := 0; i < len(q.header); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", q.header[i], q.header[i+1])
	}
	if q.body != "" {
		b.WriteString("Transfer-Encoding: chunked\r\n")
		for i := 0; i < len(q.trailer); i += 2 {
			fmt.Fprintf(&b, "Trailer: %s\r\n", q.trailer[i])
		}
		fmt.Fprintf(&b, "\r\n%x\r\n%s\r\n0\r\n", len(q.body), q.body)
		for i := 0; i < len(q.trailer); i += 2 {
			fmt.Fprintf(&b, "%s: %s\r\n", q.trailer[i], q.trailer[i+1])
		}
	}
	c := w.dial()
	if _, err := io.WriteString(c, b.String()+"\r\n"); err != nil {
		w.Fatal(err)
	}
	return readAnswer(w.T, c)
}

// readAnswer reads one of HTTP/1.1.
func readAnswer(t *testing.T, c io.Reader) (int, string, http.Header) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// claims are header fields that only a trusted proxy may send, and those that
// would change how an upstream reads the request. They must never arrive as a
// client has written them: by nothing that passes requests on.
var claims = []string{
	"Forwarded", "X-Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
	"X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-Protocol", "X-Forwarded-Prefix", "X-Forwarded-By", "X-Forwarded-User", "X-Forward-For",
	"Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Visitor", "Fastly-Client-IP", "Fly-Client-IP", "X-Original-Forwarded-For", "X-Remote-Addr", "Remote-Addr", "Remote-User",
	"X-Scheme", "X-Url-Scheme", "Front-End-Https", "X-Cluster-Client-IP", "X-Client-IP", "X-Real-IP", "X-Host", "X-HTTP-Host-Override",
	"X-Original-URL", "X-Original-Host", "X-Rewrite-URL", "X-Originating-IP", "X-ProxyUser-Ip", "Client-Cert", "X-SSL-Client-Verify",
}

// spellings are what a gateway interface makes one variable of.
func spellings(name string) []string {
	return []string{name, strings.ToLower(name), strings.ReplaceAll(name, "-", "_"), strings.Replace(name, "-", "_", 1), strings.ReplaceAll(name, "-", ".")}
}

// TestNeverArrives sends every field that must not arrive, in every spelling, as
// a header and as a trailer, over what passes requests on.
func TestNeverArrives(t *testing.T) {
	t.Parallel()
	up := mirror(t)
	routes := fmt.Sprintf("    /p/: {proxy: %s}\n    /c/: {cache: %s}\n    /b/: {cache: {to: %s, rules: [{bypass: true}]}}\n    /w/: {websocket: {proxy: %s}}\n", up, up, up, strings.Replace(up, "http", "ws", 1))
	const rules = "request_headers: {set: {X-Tenant: acme}, remove: [X-Debug]}"
	routes += fmt.Sprintf("    /r/: {proxy: {to: %s, %s}}\n    /rb/: {cache: {to: %s, rules: [{bypass: true}], %s}}\n", up, rules, up, rules)
	const forged = "203.0.113.66"
	framing := []string{"Content_Length", "Transfer_Encoding", "Content.Length", "Transfer.Encoding", "Proxy_Connection", "Keep_Alive", "Proxy_Authorization"}
	everyWay(t, "sites:\n- routes:\n"+routes, func(w *way) {
		serial, cases := 0, 0
		arrives := func(kind string, q anything) {
			cases++
			for _, route := range []string{"/p/", "/c/", "/b/", "/w/"} {
				if serial++; !w.takes(cases) {
					continue
				}
				status, said, _ := w.visit(fmt.Sprintf("%s%s%d", route, w.protocol, serial), q)
				if strings.Contains(said, forged) || status != 200 {
					w.Errorf("%s on %s: %d\n%s", kind, route, status, said)
				}
			}
		}
		for _, name := range claims {
			for _, spelled := range spellings(name) {
				if !w.http1() {
					spelled = strings.ToLower(spelled)
				}
				arrives("the field "+spelled, anything{header: []string{spelled, forged}})
				arrives("the field "+spelled+", with a body", anything{method: "POST", body: "x", header: []string{spelled, forged}})
			}
		}
		for _, name := range framing {
			arrives("the field "+name, anything{header: []string{name, forged}})
		}
		trailers := []string{"X-Http-Method-Override", "X-Method-Override", "X-HTTP-Method", "Content_Length", "Transfer_Encoding", "Cookie"}
		if w.http1() { // net/http refuses these in HTTP/2
			trailers = append(trailers, "Host", "Authorization")
		}
		for _, name := range slices.Concat(trailers, claims) {
			for _, spelled := range spellings(name) {
				arrives("the trailer "+spelled, anything{method: "POST", body: "x", trailer: []string{spelled, forged}})
			}
		}
		for _, spelled := range []string{"X_Tenant", "X.Tenant", "x-Tenant", "X_Debug", "X-Debug"} {
			if !w.http1() {
				spelled = strings.ToLower(spelled)
			}
			for _, route := range []string{"/r/", "/rb/"} {
				for kind, q := range map[string]anything{
					"field": {header: []string{spelled, forged}}, "trailer": {method: "POST", body: "x", trailer: []string{spelled, forged}},
				} {
					serial++
					status, said, _ := w.visit(fmt.Sprintf("%s%s%d", route, w.protocol, serial), q)
					if strings.Contains(said, forged) || !strings.Contains(said, "acme") || status != 200 {
						w.Errorf("the %s %s on %s: %d\n%s", kind, spelled, route, status, said)
					}
				}
			}
		}
		if w.http1() { // HTTP/2 has no Connection
			arrives("a hop's own field", anything{method: "POST", body: "x", header: []string{"Connection", "X-Hop", "X_Hop", forged, "X-Hop", forged}})
			if _, said, _ := w.visit("/p/kept", anything{header: []string{"Connection", "Content_Type, X_Forwarded_For", "Content-Type", "a/b"}}); !strings.Contains(said, "a/b") || !strings.Contains(said, "X-Forwarded-For") {
				w.Errorf("what is for the upstream was removed:\n%s", said)
			}
		}
	})
}

// poisons are what no key knows, and an upstream may nevertheless answer by. The
// next visitor must get what it would have got without it. Turn 0 has the fields in all
// their spellings, each other turn in one of them; any five of these have all.
func poisons(turn int) map[string]anything {
	of := map[string]anything{
		"an empty port":                 {host: visited + ":"},
		"the scheme's port":             {host: visited + ":80"},
		"capitals":                      {host: "A.Test"},
		"an absolute name":              {host: visited + "."},
		"all of that":                   {host: "A.TEST.:"},
		"tracking":                      {query: "?utm_source=" + strings.Repeat("A", 3000)},
		"tracking, empty":               {query: "?gclid"},
		"tracking, several":             {query: "?utm_source=<script>&fbclid=x"},
		"a field of a hop":              {header: []string{"Connection", "X-Hop", "X-Hop", "1"}},
		"a body":                        {body: "a body", header: []string{"X-Http-Method-Override", "DELETE"}},
		"a trailer":                     {body: "a body", trailer: []string{"X-Http-Method-Override", "DELETE"}},
		"a range":                       {header: []string{"Range", "bytes=0-3"}},
		"a range, odd":                  {header: []string{"If_Range", "x"}},
		"a condition":                   {header: []string{"If-None-Match", `"x"`}},
		"a condition, odd":              {header: []string{"If_None_Match", `"x"`}},
		"a precondition":                {header: []string{"If-Match", `"x"`}},
		"a type without content":        {header: []string{"Content-Type", "a/b"}},
		"an encoding, odd":              {header: []string{"Accept_Encoding", "gzip"}},
		"a language, odd":               {header: []string{"Accept_Language", "de"}},
		"what others keep":              {header: []string{"Surrogate-Capability", `x="ESI/1.0"`}},
		"trailers":                      {header: []string{"Te", "trailers"}},
		"a method that is not a method": {method: "POST", header: []string{"X-Http-Method-Override", "GET"}, body: "x"},
	}
	overrides := []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-Method", "X-Request-Uri"}
	for i, name := range slices.Concat(overrides, claims) {
		all := spellings(name)
		if turn > 0 {
			all = all[(turn+i)%len(all):][:1]
		}
		for _, spelled := range all {
			of["the field "+spelled] = anything{header: []string{spelled, "DELETE"}}
		}
	}
	return of
}

// anyPath is what the path of a request is replaced by, so that answers for
// different paths can be compared.
const anyPath = "ANYPATH"

// TestPoison has an attacker ask first, and a visitor next, again and again, so
// that the fast lane answers as well: over every preset, and with the settings
// that say what counts and who is believed.
func TestPoison(t *testing.T) {
	t.Parallel()
	up := mirror(t)
	sets := map[string]string{
		"api":           "preset: api, ttl: 5m, host: client",
		"rfc9111":       "preset: rfc9111, ttl: 5m, host: client",
		"assets":        "preset: assets, ttl: 5m, host: client",
		"drop_tracking": "host: client, key: {drop_tracking: true}",
		"query":         "host: client, key: {query: [page]}",
		"without_query": "host: client, key: {without_query: [utm_*, gclid, fbclid]}",
		"no_query":      "host: client, key: {no_query: true}",
		"ignore_host":   "key: {ignore_host: true, drop_tracking: true}",
		"headers":       "host: client, key: {headers: [X-Tenant], sort_query: true}",
		"trusted":       "host: client, trust_forwarded: [192.0.2.1]",
	}
	for turn, name := range slices.Sorted(maps.Keys(sets)) {
		t.Run(name, func(t *testing.T) {
			everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /: {cache: {to: %s, %s}}\n", up, sets[name]), func(w *way) {
				serial := 0
				visit := func(path string) string {
					status, said, _ := w.visit(path, anything{})
					return fmt.Sprintf("%d %s", status, strings.ReplaceAll(said, path, anyPath))
				}
				want := visit("/nobody-was-here/" + w.protocol)
				for poison, q := range poisons(turn) {
					if !w.http1() {
						if slices.Contains(q.header, "Connection") {
							continue
						}
						q.host = strings.ReplaceAll(q.host, ":80", ":443")
					}
					if serial++; !w.takes(serial) {
						continue
					}
					path := fmt.Sprintf("/%s%d/", w.protocol, serial)
					w.visit(path, q)
					for range 3 {
						if got := visit(path); got != want {
							w.Errorf("%s: the next visitor gets\n%s\ninstead of\n%s", poison, got, want)
							break
						}
					}
				}
			})
		})
	}
}
