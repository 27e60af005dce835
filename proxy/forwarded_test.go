package proxy

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// sent is what becomes of the forwarding fields of a request.
func sent(t *testing.T, trust []string, remote string, head http.Header) http.Header {
	t.Helper()
	o := to("http://a.example")
	o.TrustForwarded = trust
	h, err := New(o, failing(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "http://blog.example/", nil)
	r.RemoteAddr, r.Header = remote, head
	if head.Get("X-Test-Tls") != "" {
		r.TLS = new(tls.ConnectionState)
	}
	var q message.Request
	Head(&q, r)
	var out http.Header = h.Outgoing(&q).Fields.Header()
	for _, name := range []string{"Via", "User-Agent", "X-Test-Tls"} {
		delete(out, name)
	}
	return out
}

func TestForwarded(t *testing.T) {
	trust := []string{"10.0.0.0/8", "2001:db8::/32"}
	for name, tt := range map[string]struct {
		remote     string
		head, want http.Header
	}{
		"nothing before": {
			"192.0.2.1:5",
			http.Header{},
			http.Header{"Forwarded": {"for=192.0.2.1;host=blog.example;proto=http"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Host": {"blog.example"}, "X-Forwarded-Proto": {"http"}},
		},
		"IPv6 over TLS": {
			"[2001:db9::1%eth0]:5",
			http.Header{"X-Test-Tls": {"1"}},
			http.Header{"Forwarded": {`for="[2001:db9::1]";host=blog.example;proto=https`}, "X-Forwarded-For": {"2001:db9::1"}, "X-Forwarded-Host": {"blog.example"}, "X-Forwarded-Proto": {"https"}},
		},
		"a UNIX socket": {
			"@",
			http.Header{},
			http.Header{"Forwarded": {"for=unknown;host=blog.example;proto=http"}, "X-Forwarded-For": {"unknown"}, "X-Forwarded-Host": {"blog.example"}, "X-Forwarded-Proto": {"http"}},
		},
		"forged": {
			"192.0.2.1:5",
			http.Header{
				"Forwarded": {"for=1.2.3.4"}, "X-Forwarded-For": {"1.2.3.4", "5.6.7.8"}, "X-Forwarded-Host": {"evil.test"}, "X-Forwarded-Proto": {"https"},
				"X-Forwarded-Port": {"1"}, "X-Forwarded-Prefix": {"/x"}, "X-Real-Ip": {"1.2.3.4"}, "X-Original-Url": {"/admin"}, "True-Client-Ip": {"1.2.3.4"},
				"X_forwarded_for": {"1.2.3.4"}, "X-Forwarded_host": {"evil.test"}, "X-Forwarded": {"for=1.2.3.4"}, "X-Other": {"stays"},
			},
			http.Header{"Forwarded": {"for=192.0.2.1;host=blog.example;proto=http"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Host": {"blog.example"}, "X-Forwarded-Proto": {"http"}, "X-Other": {"stays"}},
		},
		"trusted": {
			"[::ffff:10.1.2.3]:5",
			http.Header{
				"Forwarded": {`for=1.2.3.4;proto=https;host="a.example:1"`, "for=10.9.9.9"}, "X-Forwarded-For": {"1.2.3.4, 10.9.9.9"},
				"X-Forwarded-Host": {"a.example:1"}, "X-Forwarded-Proto": {"https"}, "X-Real-Ip": {"1.2.3.4"},
			},
			http.Header{
				"Forwarded":       {`for=1.2.3.4;proto=https;host="a.example:1", for=10.9.9.9, for=10.1.2.3;host=blog.example;proto=http`},
				"X-Forwarded-For": {"1.2.3.4, 10.9.9.9, 10.1.2.3"}, "X-Forwarded-Host": {"a.example:1"}, "X-Forwarded-Proto": {"https"}, "X-Real-Ip": {"1.2.3.4"},
			},
		},
		"trusted, only the old fields": {
			"10.1.2.3:5",
			http.Header{"X-Forwarded-For": {"1.2.3.4:80, 2001:db9::2", "[2001:db9::3]:1, junk"}, "X-Forwarded-Proto": {"HTTPS"}},
			http.Header{
				"Forwarded":       {`for=1.2.3.4;host=blog.example;proto=https, for="[2001:db9::2]", for="[2001:db9::3]", for=unknown, for=10.1.2.3;host=blog.example;proto=http`},
				"X-Forwarded-For": {"1.2.3.4:80, 2001:db9::2, [2001:db9::3]:1, junk, 10.1.2.3"}, "X-Forwarded-Host": {"blog.example"}, "X-Forwarded-Proto": {"https"},
			},
		},
		"trusted, only the new field": {
			"10.1.2.3:5",
			http.Header{"Forwarded": {`For="[2001:db9::1]:99" ; Proto=https;Host="a.example";by=_x`, "for=_hidden"}},
			http.Header{
				"Forwarded":       {`For="[2001:db9::1]:99" ; Proto=https;Host="a.example";by=_x, for=_hidden, for=10.1.2.3;host=blog.example;proto=http`},
				"X-Forwarded-For": {"2001:db9::1, unknown, 10.1.2.3"}, "X-Forwarded-Host": {"a.example"}, "X-Forwarded-Proto": {"https"},
			},
		},
		"trusted, malformed": {
			"[2001:db8::1]:5",
			http.Header{"Forwarded": {`for="1.2.3.4`}, "X-Forwarded-Host": {`a"b`}, "X-Forwarded-Proto": {"gopher"}},
			http.Header{"Forwarded": {`for="[2001:db8::1]";host=blog.example;proto=http`}, "X-Forwarded-For": {"2001:db8::1"}, "X-Forwarded-Host": {"blog.example"}, "X-Forwarded-Proto": {"http"}},
		},
	} {
		if diff := cmp.Diff(tt.want, sent(t, trust, tt.remote, tt.head)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got := sent(t, []string{"unix"}, "", http.Header{"X-Forwarded-For": {"1.2.3.4"}})
	if v := got.Get("X-Forwarded-For"); v != "1.2.3.4, unknown" {
		t.Errorf("a trusted UNIX socket: %q", v)
	}
}

// However long a chain is, what goes out is not, and the nearest stay.
func TestForwardedIsBounded(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat("192.0.2.77, ", 10000), ", ") + ", 192.0.2.99"
	got := sent(t, []string{"10.0.0.1"}, "10.0.0.1:5", http.Header{"X-Forwarded-For": {long}})
	for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
		v := got.Get(name)
		if len(v) > maxChain || !strings.Contains(v, "192.0.2.99, ") && !strings.Contains(v, "for=192.0.2.99, ") {
			t.Errorf("%s has %d bytes: …%s", name, len(v), v[max(0, len(v)-60):])
		}
		if first, _, _ := strings.Cut(v, ","); first != "192.0.2.77" && first != "for=192.0.2.77" {
			t.Errorf("%s begins with half an entry: %q", name, first)
		}
	}
	one := sent(t, []string{"10.0.0.1"}, "10.0.0.1:5", http.Header{"X-Forwarded-For": {strings.Repeat("x", 9000)}})
	if v := one.Get("X-Forwarded-For"); v != "10.0.0.1" {
		t.Errorf("one endless entry: %d bytes", len(v))
	}
}

func FuzzForwarded(f *testing.F) {
	f.Add(`for=1.2.3.4;host="a\"b";proto=https, for="[::1]:5"`, "1.2.3.4, ::1", "a.example", "https", true)
	f.Add(`for="`, `"`, "a,b", "http,https", true)
	f.Add(",;=,", ", ,", "", "", false)
	f.Fuzz(func(t *testing.T, forwarded, xff, host, proto string, trusted bool) {
		if !field.Value(forwarded + xff + host + proto) {
			t.Skip("net/http lets none in")
		}
		trust := []string{"10.0.0.0/8"}
		remote := "192.0.2.1"
		if trusted {
			remote = "10.0.0.1"
		}
		got := sent(t, trust, remote+":1", http.Header{"Forwarded": {forwarded}, "X-Forwarded-For": {xff}, "X-Forwarded-Host": {host}, "X-Forwarded-Proto": {proto}})
		for name, values := range got {
			if len(values) != 1 || len(values[0]) > maxChain || !field.Value(values[0]) {
				t.Fatalf("%s: %q", name, values)
			}
		}
		hops, ok := parseForwarded(got.Get("Forwarded"))
		if !ok || len(hops) == 0 || hops[len(hops)-1] != (hop{remote, "blog.example", "http"}) {
			t.Fatalf("Forwarded: %q is read as %v", got.Get("Forwarded"), hops)
		}
		list := strings.Split(got.Get("X-Forwarded-For"), ", ")
		if list[len(list)-1] != remote || !trusted && len(list) > 1 {
			t.Fatalf("X-Forwarded-For: %q", list)
		}
		if p := got.Get("X-Forwarded-Proto"); p != "http" && (p != "https" || !trusted) {
			t.Fatalf("X-Forwarded-Proto: %q", p)
		}
		if h := got.Get("X-Forwarded-Host"); !validHost(h) || h != "blog.example" && !trusted {
			t.Fatalf("X-Forwarded-Host: %q", h)
		}
	})
}

// Whatever Connection says, what is ours and what is for the upstream stays.
func FuzzConnection(f *testing.F) {
	f.Add("close, X-Hop", "authorization,,cookie")
	f.Add("x_forwarded_for, \xff", "upgrade")
	f.Fuzz(func(t *testing.T, a, b string) {
		kept := http.Header{}
		for _, name := range slices.Concat(endToEnd, []string{"Accept", "Content-Type", "Sec-Websocket-Key", "X-Forwarded-For", "Forwarded"}) {
			kept.Set(name, "1")
		}
		kept.Del("Server")
		h := kept.Clone()
		h["Connection"] = []string{a, b}
		l := field.Of(h)
		if n := len(named(l)); n > maxNamed {
			t.Fatalf("%d fields named", n)
		}
		Strip(&l)
		if diff := cmp.Diff(kept, http.Header(l.Header())); diff != "" {
			t.Fatal(diff)
		}
	})
}
