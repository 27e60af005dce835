package upstream

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
)

// FuzzDemand: what a request demands of its server is what net/http finds in it.
func FuzzDemand(f *testing.F) {
	token := tokenOf("http://b")
	for _, cookie := range []string{"", "a=b", "route=" + token, "a=b; route=\"" + token + "\"; route=x", "route=\"", "route=a\\b; route=" + token, " route = " + token, "route= " + token, "route;route==" + token, ";;\troute=" + token + "\t;", "route=\x7f; route=\xff"} {
		f.Add("/a", "b", true, "192.0.2.1:80", "ann", cookie)
	}
	f.Add("/", "", false, "[2001:db8::1]:1", "", "route=x")
	f.Add("/a/b", "", true, "[::ffff:192.0.2.1]:1", " ", "")
	f.Add("/a/b", "x=y", true, "@", "", "")
	pools := make([]*Pool, 0, 8)
	for _, by := range []string{"", "path", "client", "header:x-user", "cookie:route", "cookie:a"} {
		pools = append(pools, newPool(f, Options{To: hosts(3), Balance: "hash", HashBy: by, Sticky: Sticky{Cookie: "route"}}, nil))
	}
	f.Fuzz(func(t *testing.T, path, query string, asks bool, remote, user, cookie string) {
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Trim(path, "/abcdefgh0123456789-._") != "" || !field.Value(query) || strings.ContainsAny(query, " #\t") {
			t.Skip() // no request for a loop
		}
		r := newRequest(t, "GET", "/", nil)
		r.URL.Path, r.URL.RawQuery, r.URL.ForceQuery, r.RemoteAddr = path, query, asks && query == "", remote
		lines := field.Lines{{Name: "Accept", Value: "*/*"}}
		for _, l := range []field.Line{{Name: "Cookie", Value: cookie}, {Name: "X-User", Value: user}} {
			if !field.Value(l.Value) || strings.Trim(l.Value, " \t") != l.Value {
				t.Skip()
			}
			if l.Value != "" {
				r.Header[l.Name] = []string{l.Value}
				lines = append(lines, l)
			}
		}
		client := netset.Peer(remote)
		q := Request{Client: netip.AddrPortFrom(client, 1), Path: path, Query: query, Asks: asks || query != "", Fields: lines}
		for _, p := range pools {
			want := demand{client: client, key: fnv1a(hashedBy(r, p.options.HashBy))}
			for _, c := range r.CookiesNamed("route") {
				if s := p.named(c.Value); s != nil {
					want.stuck = want.stuck.with(s)
					break
				}
			}
			if got := p.demandOf(&q, false); got != want {
				t.Errorf("hash_by %q: %+v, want %+v", p.options.HashBy, got, want)
			}
		}
	})
}

// hashedBy is the text by whose hash "balance: hash" chooses a server for a request.
func hashedBy(r *http.Request, by string) string {
	key := ""
	switch kind, name, _ := strings.Cut(by, ":"); kind {
	case "path":
		key = r.URL.Path
	case "client":
		if client := netset.Peer(r.RemoteAddr); client.IsValid() {
			key = client.String()
		}
	case "header":
		key = r.Header.Get(name)
	case "cookie":
		if c, err := r.Cookie(name); err == nil {
			key = c.Value
		}
	}
	if key == "" {
		return r.URL.RequestURI()
	}
	return key
}

// TestHashPath: however a path is spelled, "hash_by: path" sends it to the same server.
func TestHashPath(t *testing.T) {
	p := newPool(t, Options{To: hosts(2), Balance: "hash", HashBy: "path"}, nil)
	if a, b := p.hashOf(&Request{Path: "/a%62%20c"}), p.hashOf(&Request{Path: "/ab%20%63"}); a != b || a != fnv1a("/ab c") {
		t.Errorf("%x and %x", a, b)
	}
}

// bell is rung when a request of a loop need not wait any more.
type bell chan struct{}

func (b bell) Ready() { close(b) }

// TestNotForLoops: where a server is told which address a client has connected to, loops do
// nothing.
func TestNotForLoops(t *testing.T) {
	p := newPool(t, Options{To: hosts(2), ProxyProtocol: "v1"}, nil)
	if x := new(Exchange); p.Begin(x, 0, &Request{Path: "/"}, make(bell)) {
		t.Error("begun")
	}
	if s := p.Servers(); s[0].Requests+s[1].Requests > 0 {
		t.Error("chosen in vain")
	}
}

// TestKey: a key may stand for the URL.
func TestKey(t *testing.T) {
	p := newPool(t, Options{To: hosts(2), Balance: "hash"}, nil)
	if what := p.demandOf(&Request{Path: "/", Key: "the key"}, false); what.key != fnv1a("the key") {
		t.Error("not by its key")
	}
}

// TestExchangeLost: a server that refuses a loop's connection is not asked for another
// one at once. It has failed once, and another server answers.
func TestExchangeLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.counting("b:80")
		p := newPool(t, Options{To: hosts(2), Balance: "round_robin"}, w)
		var x Exchange
		told := make(bell)
		if !p.Begin(&x, 0, &Request{Client: netip.MustParseAddrPort("192.0.2.1:1"), Path: "/"}, told) || !x.Waits() {
			t.Fatal("it does not wait for a connection")
		}
		<-told
		if x.Enter() {
			t.Fatal("there is a connection to nobody")
		}
		a, err := p.Continue(t.Context(), &Request{Path: "/"}, &x, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if s := p.Servers(); w.dials("a:80") != 1 || s[0].Fails != 1 || s[0].Requests != 1 || s[1].Requests != 1 || s[0].Running+s[1].Running > 0 {
			t.Errorf("%d tries at the server that refuses; %+v", w.dials("a:80"), s)
		}
	})
}

// TestExchangeClosed: a connection that ends since the pool is closed is nobody's fault.
func TestExchangeClosed(t *testing.T) {
	waits := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p, err := start(Options{To: hosts(1)}, slog.New(slog.DiscardHandler), waits)
	if err != nil {
		t.Fatal(err)
	}
	var x Exchange
	told := make(bell)
	if !p.Begin(&x, 0, &Request{Path: "/"}, told) {
		t.Fatal("it does not wait")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	<-told
	if x.waiter.lost != nil || x.waiter.err != nil || x.Enter() {
		t.Errorf("%v, %v", x.waiter.lost, x.waiter.err)
	}
	x.Discard()
	if s := p.Servers()[0]; s.Fails > 0 || s.Running > 0 {
		t.Errorf("%+v", s)
	}
}

// TestExchangeGoes: a place that a request has taken and not used comes back.
func TestExchangeGoes(t *testing.T) {
	p := newPool(t, Options{To: hosts(1)}, nil)
	x := Exchange{pool: p, waited: true, step: placed}
	p.mu.Lock()
	x.place = p.enter(p.servers[0], 0)
	p.mu.Unlock()
	x.Discard()
	if s := p.Servers()[0]; s.Running > 0 || s.Requests > 0 {
		t.Errorf("%+v", s)
	}
}
