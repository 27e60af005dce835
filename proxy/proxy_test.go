package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/process/servertest"
	"millrace/internal/route/headers"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// told is what an upstream was asked.
type told struct {
	Method, URI, Host, Body string
	Header                  http.Header
	Length                  int64
}

// tell answers with it.
func tell(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	json.NewEncoder(w).Encode(told{r.Method, r.RequestURI, r.Host, string(b), r.Header, r.ContentLength})
}

func (r *rig) told(q *http.Request) told {
	r.t.Helper()
	res, body := r.do(q)
	var got told
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 200 {
		r.t.Fatalf("status %d, %q: %v", res.StatusCode, body, err)
	}
	return got
}

func TestPassesRequestsOn(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		r := newRig(t, protocol, Options{}, http.HandlerFunc(tell))
		proto, via, te := "http", "1.1 millrace", "deflate, trailers;q=0.5"
		if protocol != "h1" {
			proto = "https"
		}
		if protocol == "h2" {
			via, te = "2.0 millrace", "trailers" // the only one that HTTP/2 allows
		}
		for _, target := range []string{"/", "/a%2fb?x=1;y=%zz&&", "/?", "//two/../x"} {
			got := r.told(r.request("GET", target, nil))
			if got.URI != target || got.Method != "GET" || got.Length != 0 {
				t.Errorf("%s: asked %s %q with %d bytes", target, got.Method, got.URI, got.Length)
			}
		}
		q := r.request("PUT", "/x", strings.NewReader("hello"), "Cookie", "a=b", "X-List", "1", "X-List", "2", "Te", te, "User-Agent", "")
		q.Host = "blog.example:8443"
		got := r.told(q)
		if got.Body != "hello" || got.Length != 5 {
			t.Errorf("body %q of %d bytes", got.Body, got.Length)
		}
		want := http.Header{
			"Accept-Encoding": {"gzip"}, "Content-Length": {"5"}, "Cookie": {"a=b"}, "X-List": {"1", "2"}, "Te": {"trailers"},
			"Forwarded":       {`for=127.0.0.1;host="blog.example:8443";proto=` + proto},
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Proto": {proto}, "X-Forwarded-Host": {"blog.example:8443"},
			"Via": {via},
		}
		if diff := cmp.Diff(want, got.Header); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
		if want := strings.TrimPrefix(got.Host, "127.0.0.1:"); want == got.Host {
			t.Errorf("Host %q, want the upstream's own", got.Host)
		}
		q = r.request("POST", "/", io.MultiReader(strings.NewReader("of unknown "), strings.NewReader("length")))
		if got := r.told(q); got.Body != "of unknown length" || got.Length != 17 {
			t.Errorf("body %q of %d bytes", got.Body, got.Length)
		}
	})
}

func TestHost(t *testing.T) {
	for host, want := range map[string]string{"client": "blog.example", "": "127.0.0.1:", "upstream": "127.0.0.1:", "api.internal": "api.internal"} {
		r := newRig(t, "h1", Options{Options: upstream.Options{Host: host}}, http.HandlerFunc(tell))
		q := r.request("GET", "/", nil)
		q.Host = "blog.example"
		if got := r.told(q); !strings.HasPrefix(got.Host, want) || got.Header.Get("X-Forwarded-Host") != "blog.example" {
			t.Errorf("host: %q: the upstream is asked for %q, forwarded %q", host, got.Host, got.Header.Get("X-Forwarded-Host"))
		}
	}
}

// TestNamelessClients: rules for User-Agent hold where a client sends none.
func TestNamelessClients(t *testing.T) {
	for want, rules := range map[string]headers.Options{
		"nobody": {Default: map[string]string{"User-Agent": "nobody"}},
		"more":   {Add: map[string]string{"User-Agent": "more"}},
		"set":    {Set: map[string]string{"User-Agent": "set"}},
		"":       {Set: map[string]string{"X-Other": "x"}},
	} {
		servertest.OverProtocols(t, func(t *testing.T, protocol string) {
			r := newRig(t, protocol, Options{RequestHeaders: rules}, http.HandlerFunc(tell))
			if got := r.told(r.request("GET", "/", nil, "User-Agent", "")).Header.Get("User-Agent"); got != want {
				t.Errorf("%+v: the upstream is told %q", rules, got)
			}
		})
	}
}

// What a client names in Connection is removed, but nothing that is for the
// upstream, and nothing that we set.
func TestConnectionNames(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(tell))
	got := r.told(r.request(
		"GET", "/", nil,
		"Connection", "close, X-Hop, forwarded, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, Via, Host",
		"Connection", "authorization ,Cookie,,Content-Type,Cache-Control, If-None-Match, accept-language",
		"X-Hop", "1", "Authorization", "Basic x", "Cookie", "a=b", "Content-Type", "a/b", "Cache-Control", "no-cache",
		"If-None-Match", `"x"`, "Accept-Language", "de",
		"Keep-Alive", "timeout=5", "Proxy-Connection", "keep-alive", "Proxy-Authorization", "Basic y", "Proxy", "http://evil.test",
		"Http2-Settings", "AAMAAABkAAQAAP__", "Upgrade", "websocket", "Te", "gzip",
	))
	names := slices.Sorted(maps.Keys(got.Header))
	want := []string{
		"Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Content-Type", "Cookie", "Forwarded",
		"If-None-Match", "User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestFieldTables(t *testing.T) {
	if !slices.IsSorted(endToEnd) {
		t.Error("a table that is searched is not in order")
	}
	for _, name := range endToEnd {
		if http.CanonicalHeaderKey(name) != name || isConnectionLevel(name) {
			t.Errorf("%s is not canonical, or not passed on at all", name)
		}
	}
	for _, name := range []string{"connection", "http2-settings", "keep-alive", "proxy", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"} {
		if !isConnectionLevel(http.CanonicalHeaderKey(name)) {
			t.Errorf("%s is passed on", name)
		}
	}
}

func TestPassesAnswersOn(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		r := newRig(t, protocol, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h["Date"] = []string{"Tue, 01 Jan 2019 00:00:00 GMT"}
			for name, value := range map[string]string{
				"Server": "secret/1.0", "X-Powered-By": "x", "Connection": "X-Hop", "X-Hop": "1", "Keep-Alive": "timeout=9",
				"Location": "/elsewhere", "Via": "1.0 inner", "Cache-Control": "max-age=5", "Etag": `"e"`,
			} {
				h.Set(name, value)
			}
			h["Set-Cookie"] = []string{"a=b", "c=d"}
			status, _ := strconv.Atoi(r.URL.Query().Get("status"))
			w.WriteHeader(status)
			if status != 204 && status != 304 {
				io.WriteString(w, "the body")
			}
		}))
		for _, status := range []int{200, 204, 302, 304, 404, 500, 799} {
			res, body := r.get(fmt.Sprint("/?status=", status))
			if res.StatusCode != status || (body == "the body") != (status != 204 && status != 304) {
				t.Errorf("status %d with %q, want %d", res.StatusCode, body, status)
			}
			want := http.Header{
				"Date": {"Tue, 01 Jan 2019 00:00:00 GMT"}, "Location": {"/elsewhere"}, "Cache-Control": {"max-age=5"}, "Etag": {`"e"`},
				"Set-Cookie": {"a=b", "c=d"}, "X-Powered-By": {"x"}, "Via": {"1.0 inner, 1.1 millrace"},
			}
			for _, name := range []string{"Content-Type", "Content-Length"} {
				delete(res.Header, name)
			}
			if diff := cmp.Diff(want, res.Header); diff != "" {
				t.Errorf("%d: header (-want +got):\n%s", status, diff)
			}
		}
		res, body := r.do(r.request("HEAD", "/?status=200", nil))
		if res.StatusCode != 200 || body != "" || res.ContentLength != 8 {
			t.Errorf("HEAD: status %d, length %d, body %q", res.StatusCode, res.ContentLength, body)
		}
	})
}

// What an editor adds goes out, and so does what was in the header already.
func TestEditor(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.Header().Set("X-Both", "upstream")
	}))
	r.start("h1", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Before", "kept")
		w.Header().Set("X-Both", "before")
		w.Header().Set("Vary", "Origin")
		var head message.Request
		Head(&head, q)
		r.Serve(w, q, &head, editor(func(status int, lines field.Lines) field.Lines {
			if lines.First("Via") == "" || status != 200 {
				t.Errorf("it sees %d %v", status, lines)
			}
			return append(lines, field.Line{Name: "Cache-Status", Value: "millrace; fwd=bypass"})
		}))
	}))
	res, _ := r.get("/")
	for name, want := range map[string]string{"X-Before": "kept", "X-Both": "upstream", "Vary": "Origin,Accept", "Cache-Status": "millrace; fwd=bypass"} {
		if got := strings.Join(res.Header[name], ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

type editor func(status int, lines field.Lines) field.Lines

func (f editor) Edit(status int, lines []field.Line) []field.Line { return f(status, lines) }

// Answers that would become something else further on are refused.
func TestRefusesAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"bare CR":         "HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: evil=1\r\nContent-Length: 2\r\n\r\nhi",
		"NUL":             "HTTP/1.1 200 OK\r\nX-A: b\x00c\r\nContent-Length: 2\r\n\r\nhi",
		"a low status":    "HTTP/1.1 099 What\r\nContent-Length: 2\r\n\r\nhi",
		"two lengths":     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
		"no HTTP":         "220 smtp ready\r\n\r\n",
		"nothing":         "",
		"switching":       "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"control in hint": "HTTP/1.1 103 Early Hints\r\nLink: a\x01b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			r := rigTo(t, "h1", to(rawUpstream(t, answer)))
			if res, body := r.get("/"); res.StatusCode != 502 || strings.Contains(fmt.Sprint(res.Header), "evil") {
				t.Errorf("status %d: %q %v", res.StatusCode, body, res.Header)
			}
		})
	}
}

// A body that breaks off must not look whole to the client.
func TestTruncated(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"garbage": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
	} {
		servertest.OverProtocols(t, func(t *testing.T, protocol string) {
			r := rigTo(t, protocol, to(rawUpstream(t, answer)))
			res, err := r.client.Do(r.request("GET", "/"+name, nil))
			if err == nil {
				var b []byte
				b, err = io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil {
					t.Errorf("%s: %q looks whole", name, b)
				}
			}
			if log := r.log.String(); !strings.Contains(log, "broke off") || !strings.Contains(log, "/"+name) {
				t.Errorf("%s: the log says %q", name, log)
			}
		})
	}
}

func TestFail(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
	}{
		{fmt.Errorf("%w: dialing 10.1.2.3:5000", upstream.ErrUnreachable), 502},
		{fmt.Errorf("%w: 10.1.2.3:5000", upstream.ErrProtocol), 502},
		{errors.New("10.1.2.3:5000: whatever"), 502},
		{fmt.Errorf("%w: 10.1.2.3:5000", upstream.ErrBusy), 503},
		{fmt.Errorf("%w: 10.1.2.3:5000", upstream.ErrUnhealthy), 503},
		{fmt.Errorf("%w: 10.1.2.3:5000", upstream.ErrTimeout), 504},
	} {
		servertest.OverProtocols(t, func(t *testing.T, protocol string) {
			r := rigTo(t, protocol, to("http://10.1.2.3:5000"))
			r.way = failing(tt.err)
			res, body := r.get("/secret?q=1")
			h := res.Header
			if res.StatusCode != tt.status || h.Get("Cache-Control") != "no-store" || (h.Get("Retry-After") != "") != (tt.status == 503) {
				t.Errorf("%v: status %d, header %v", tt.err, res.StatusCode, h)
			}
			if strings.Contains(body+fmt.Sprint(h), "10.1.2.3") {
				t.Errorf("the client hears of the upstream: %s %v", body, h)
			}
			fields := strings.Fields(body)
			id := strings.TrimSuffix(fields[len(fields)-1], ".")
			log := r.log.String()
			if len(id) < 8 || len(id) > 12 || !strings.Contains(log, "id="+id) || !strings.Contains(log, "10.1.2.3") || !strings.Contains(log, "/secret?q=1") {
				t.Errorf("id %q; the log says %q", id, log)
			}

			res, body = r.get("/", "Accept", "application/json, text/plain, */*")
			var told struct {
				Detail, ID string
				Status     int
			}
			if err := json.Unmarshal([]byte(body), &told); err != nil || told.Status != tt.status || told.Detail == "" ||
				!strings.Contains(r.log.String(), "id="+told.ID) || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("JSON %q: %v", body, err)
			}

			res, body = r.do(r.request("HEAD", "/", nil))
			if res.StatusCode != tt.status || body != "" || res.ContentLength <= 0 {
				t.Errorf("HEAD: status %d, length %d, body %q", res.StatusCode, res.ContentLength, body)
			}
		})
	}
}

// What a job had set for the body that it meant to send does not describe ours.
func TestFailClearsTheHeader(t *testing.T) {
	r := rigTo(t, "h1", to("http://10.1.2.3:5000"))
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "br")
	w.Header().Set("Etag", `"x"`)
	w.Header().Set("Content-Length", "5")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	r.Fail(w, httptest.NewRequest("GET", "/", nil), upstream.ErrTimeout)
	h := w.Header()
	if h.Get("Content-Encoding")+h.Get("Etag") != "" || h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
		t.Errorf("header %v", h)
	}
	if h.Get("Access-Control-Allow-Origin") != "*" {
		t.Error("a page of another origin can't read why")
	}
}

func TestLongTargetInTheLog(t *testing.T) {
	r := rigTo(t, "h1", to("http://10.1.2.3:5000"))
	r.way = failing(upstream.ErrTimeout)
	r.get("/?" + strings.Repeat("x", 5000))
	if n := len(r.log.String()); n > 1000 {
		t.Errorf("%d bytes of log for one request", n)
	}
}

// A proxy that is its own upstream ends, quickly.
func TestLoop(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.NotFoundHandler())
	loop := rigTo(t, "h1", to(r.front.URL))
	r.way = upstream.Over{RoundTripper: http.DefaultTransport, To: loop.front.URL}
	res, body := r.get("/")
	if res.StatusCode != 508 || !strings.Contains(body, "loop") || !strings.Contains(r.log.String()+loop.log.String(), "loop") {
		t.Errorf("status %d: %s", res.StatusCode, body)
	}
}

func TestVia(t *testing.T) {
	ours := strings.TrimSuffix(strings.Repeat("1.1 millrace, ", maxVia), ", ")
	for via, want := range map[string]bool{
		ours:                    false,
		ours + ", 2 millrace":   true,
		ours + ", 1.1 other":    false,
		ours + ", 1.1 Millrace": false,
	} {
		if got := looping(via); got != want {
			t.Errorf("%q: %t, want %t", via, got, want)
		}
	}
}

func TestRefusesRequests(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(tell))
	if res, body := r.do(r.request("TRACE", "/", nil, "Cookie", "a=secret")); res.StatusCode != 405 || strings.Contains(body, "secret") {
		t.Errorf("TRACE: %d %s", res.StatusCode, body)
	}
	if res, _ := r.do(r.request("OPTIONS", "/", nil, "Max-Forwards", "0")); res.StatusCode != 204 {
		t.Errorf("OPTIONS that may go no further: %d", res.StatusCode)
	}
	if got := r.told(r.request("OPTIONS", "/", nil, "Max-Forwards", "3")); got.Header.Get("Max-Forwards") != "2" {
		t.Errorf("Max-Forwards: %v", got.Header["Max-Forwards"])
	}
	if got := r.told(r.request("GET", "/", nil, "Max-Forwards", "0")); got.Header.Get("Max-Forwards") != "0" {
		t.Errorf("Max-Forwards of GET: %v", got.Header["Max-Forwards"])
	}
}

func TestOptions(t *testing.T) {
	var o Options
	if err := o.UnmarshalText([]byte("http://a:1, http://b:2")); err != nil || !slices.Equal(o.To, []string{"http://a:1", "http://b:2"}) {
		t.Errorf("to %q: %v", o.To, err)
	}
	if faults := o.Check(); len(faults) != 0 {
		t.Errorf("faults %v", faults)
	}
	for _, bad := range []string{"", ",", "http://a:1,"} {
		if err := o.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	o.TrustForwarded = []string{"10.0.0.0/8", "::1", "unix", "fd00::/8", "::ffff:10.0.0.0/104"}
	if faults := o.Check(); len(faults) != 0 {
		t.Errorf("faults %v", faults)
	}
	for _, bad := range []string{"10.0.0.0/33", "example.org", "fe80::1%eth0", "::ffff:0:0/90"} {
		o.TrustForwarded = []string{bad}
		if fault := o.Check()["trust_forwarded"]; fault == nil || !strings.Contains(fault.Error(), bad) {
			t.Errorf("%q: %v", bad, fault)
		}
		if _, err := New(o, failing(nil), nil); err == nil {
			t.Errorf("New accepts %q", bad)
		}
	}
}

// Outgoing leaves the request that it is made of as it was.
func TestOutgoingIsACopy(t *testing.T) {
	o := to("https://a.example/prefix")
	o.RequestHeaders.Set = map[string]string{"X-A": "3"}
	h, err := New(o, failing(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "http://u:p@blog.example/x", bytes.NewReader(nil))
	r.Header = http.Header{"X-A": append(make([]string, 0, 4), "1"), "Connection": {"close"}, "Via": {"1.1 a"}}
	before := r.Clone(t.Context())
	var q message.Request
	Head(&q, r)
	fields := slices.Clone(q.Fields)
	out := h.Outgoing(&q)
	out.Fields.Add("X-A", "2")
	if diff := cmp.Diff(before.Header, r.Header); diff != "" || !slices.Equal(q.Fields, fields) || len(r.Header["X-A"][:2][1]) != 0 {
		t.Errorf("the request has changed: %s%v", diff, q.Fields)
	}
	if out.Host != "" || out.Path != "/x" || out.Query != "" || out.Asks || out.Body != nil || strings.Join(out.Fields.Values("X-A"), ",") != "3,2" {
		t.Errorf("outgoing %+v", out)
	}
}
