package server

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClientOf(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		a := netip.MustParseAddr(in)
		if got := clientOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 1))); got.String() != want {
			t.Errorf("%s counts as %s, want %s", in, got, want)
		}
	}
	if clientOf(&net.UnixAddr{}).IsValid() {
		t.Error("a UNIX socket has an address")
	}
}

func TestPlaces(t *testing.T) {
	sockets := 0
	p := newPlaces()
	trusted := func(a netip.Addr) bool { return a == netip.MustParseAddr("2001:db8::7") }
	p.set(bounds{all: 4, each: 2, descriptors: 5, sockets: func() int { return sockets }, trusted: trusted})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	proxy := p.client(&net.TCPAddr{IP: net.ParseIP("2001:db8::7")})
	for i, step := range []struct {
		client netip.Addr
		force  bool
		want   verdict
	}{
		{a, false, taken},
		{a, false, taken},
		{a, false, crowded},
		{proxy, false, taken},
		{proxy, false, taken},
		{proxy, false, full},
		{b, false, full},
		{a, true, full},
	} {
		if got := p.take(step.client, step.force); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	p.give(proxy)
	if got := p.take(a, true); got != taken {
		t.Errorf("with force: %v", got)
	}
	for range 3 {
		p.give(a)
	}
	p.give(proxy)
	if len(p.peers) != 0 || p.used() != 0 {
		t.Errorf("left over: %v, %d", p.peers, p.used())
	}
	// What is kept back is nobody's.
	sockets = 4
	if got := p.take(b, false); got != taken {
		t.Errorf("the last descriptor: %v", got)
	}
	if got := p.take(b, false); got != full {
		t.Errorf("a descriptor too many: %v", got)
	}
}

// Attempts that come faster than shedEvery do not put off the next look.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces()
		p.set(bounds{all: 4, each: 1})
		client := netip.MustParseAddr("192.0.2.1")
		p.take(client, false)
		looks := 0
		for range 20 {
			p.makeRoom(client, func() bool { looks++; return false })
			time.Sleep(shedEvery / 2)
		}
		if looks != 10 {
			t.Errorf("looked %d times for a connection to close, want 10", looks)
		}
		if !p.makeRoom(client, func() bool { return true }) {
			t.Error("no room was made")
		}
	})
}

func TestBounds(t *testing.T) {
	s := Setup{Limits: Options{Connections: 30}}
	if b := s.bounds(); b.all != 30 || b.each != 15 {
		t.Errorf("%d places, %d for each", b.all, b.each)
	}
	all := Descriptors()
	if all == 0 {
		t.Skip("descriptors have no limit here")
	}
	s.Limits.Connections = 2 * all
	if b := s.bounds(); b.all >= all || b.all < all/2 || b.each != b.all/2 {
		t.Errorf("of %d descriptors %d are for connections, %d for each", all, b.all, b.each)
	}
	if n := s.Limits.SocketLimit(1); n <= 0 || n >= all {
		t.Errorf("of %d descriptors %d are for WebSockets", all, n)
	}
}

// A connection without a request gives way, whatever it speaks; half a request
// does not as long as it may still be on its way.
func TestIdleGivesWay(t *testing.T) {
	r := start(t, plan{limits: Options{Connections: 2, ConnectionsPerAddress: 9}})
	half := r.dial(t, "tcp")
	half.write("GET /slow HTTP/1.1\r\nHost: a.exa")
	conf := r.clientTLS.Clone()
	conf.NextProtos = []string{"h2"}
	idle := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	defer idle.CloseIdleConnections()
	resp, err := (&http.Client{Transport: idle}).Get("https://" + r.secure + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	r.dial(t, "tcp").get("/slow") // in the place of the HTTP/2 connection
	half.write("mple\r\n\r\n")
	if resp, _ := half.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("half a request ends with %s", resp.Status)
	}
}

// An upload over HTTP/2 that drips is ended as one over HTTP/1.1 is.
func TestSlowStream(t *testing.T) {
	failed := make(chan error, 1)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		failed <- err
	})
	r := start(t, plan{handler: h, limits: Options{BodyTimeout: 300 * time.Millisecond}})
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() { // ends with the pipe
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for range every.C {
			if _, err := pw.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	tr := &http.Transport{TLSClientConfig: r.clientTLS.Clone(), ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequest("POST", "https://"+r.secure+"/", pr)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr, Timeout: patience}).Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("the upload ended with %v", err)
	}
}

// used is the number of places in use.
func (p *places) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}
