package proxy

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/wire/message"
	"millrace/internal/wire/netset"
)

// splitRig is a proxy with a canary: the upstreams say who they are.
func splitRig(t *testing.T, protocol string, c Canary) *rig {
	t.Helper()
	server := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	c.To = []string{server("canary")}
	o := to(server("usual"))
	o.Canary = c
	made := func(o Options) *Handler {
		pool, err := upstream.New(o.Options, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.Close() })
		h, err := New(o, pool, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	r := &rig{t: t}
	r.start(protocol, NewSplit(o, made(o), made(o.OfCanary())))
	return r
}

func TestCanaryByCookie(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		r := splitRig(t, protocol, Canary{Share: 30, Cookie: "version", Header: "x-canary"})
		seen := map[string]int{}
		for range 300 {
			res, body := r.get("/")
			seen[body]++
			c := res.Cookies()
			if len(c) != 1 || c[0].Name != "version" || !c[0].HttpOnly || c[0].Secure != (protocol != "h1") {
				t.Fatalf("cookies %v", c)
			}
			again, other := r.get("/", "Cookie", "a=b; version="+c[0].Value)
			if other != body || len(again.Cookies()) != 0 {
				t.Fatalf("a visitor of %s came to %s with cookies %v", body, other, again.Cookies())
			}
		}
		if n := seen["canary"]; n < 45 || n > 140 || n+seen["usual"] != 300 { // 30 % of 300, and six times its deviation
			t.Errorf("%v", seen)
		}
		for head, want := range map[string]string{
			"X-Canary: always": "canary", "X-Canary: never": "usual",
			"Cookie: version=0": "canary", "Cookie: version=2999": "canary", "Cookie: version=3000": "usual", "Cookie: version=9999": "usual",
			"Cookie: theirs={\"a\": 1}; version=0; more=\"": "canary",
		} {
			name, value, _ := strings.Cut(head, ": ")
			if res, body := r.get("/", name, value); body != want || len(res.Cookies()) != 0 {
				t.Errorf("%s: %s with cookies %v, want %s", head, body, res.Cookies(), want)
			}
		}
		for _, bad := range []string{"-1", "10000", "x", ""} {
			if res, _ := r.get("/", "Cookie", "version="+bad); len(res.Cookies()) != 1 {
				t.Errorf("version=%s is taken for a bucket", bad)
			}
		}
	})
}

// TestCanaryByAddress: about the share of the addresses, and each of them always
// the same; of IPv6, a network of 64 bits.
func TestCanaryByAddress(t *testing.T) {
	usual, canary := new(Handler), new(Handler)
	o := Options{Canary: Canary{Share: 12.5}}
	s := NewSplit(o, usual, canary)
	n := 0
	for i := range 10000 {
		to, e := s.choose(&message.Request{Peer: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})})
		if e != nil {
			t.Fatal("an address is not enough")
		}
		if to == canary {
			n++
		}
	}
	if n < 1000 || n > 1500 {
		t.Errorf("%d of 10000 addresses, want about 1250", n)
	}
	for _, pair := range [][2]string{{"10.0.0.1:1", "10.0.0.1:2"}, {"[2001:db8::1]:1", "[2001:db8::ffff]:1"}, {"10.0.0.1:1", "[::ffff:10.0.0.1]:1"}} {
		if bucketOf(netset.Peer(pair[0])) != bucketOf(netset.Peer(pair[1])) {
			t.Errorf("%s and %s are different visitors", pair[0], pair[1])
		}
	}
}

func TestCanaryOptions(t *testing.T) {
	good := Canary{To: []string{"http://b"}, Share: 5}
	for key, change := range map[string]func(*Canary){
		"":              func(*Canary) {},
		"canary.to":     func(c *Canary) { c.To = nil },
		"canary.to[0]":  func(c *Canary) { c.To = []string{"gopher://b"} },
		"canary.share":  func(c *Canary) { c.Share = 101 },
		"canary.header": func(c *Canary) { c.Header = "X Y" },
		"canary.cookie": func(c *Canary) { c.Cookie = "__Host-a" },
	} {
		c := good
		change(&c)
		o := to("http://a")
		o.Canary = c
		faults := o.Check()
		if key == "" && len(faults) > 0 || key != "" && faults[key] == nil {
			t.Errorf("%+v: %v, want a fault of %q", c, faults, key)
		}
	}
}
