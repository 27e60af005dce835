package server

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/process/servertest"
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
	p := newConnSlots()
	trusted := func(a netip.Addr) bool { return a == netip.MustParseAddr("2001:db8::7") }
	p.set(bounds{all: 4, each: 2, descriptors: 5, sockets: func() int { return sockets }, trusted: trusted})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	proxy := p.client(&net.TCPAddr{IP: net.ParseIP("2001:db8::7")})
	for i, step := range []struct {
		client netip.Addr
		force  bool
		want   slotResult
	}{
		{a, false, acquired},
		{a, false, acquired},
		{a, false, clientFull},
		{proxy, false, acquired},
		{proxy, false, acquired},
		{proxy, false, allFull},
		{b, false, allFull},
		{a, true, allFull},
	} {
		if got := p.acquire(step.client, step.force); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	p.release(proxy)
	if got := p.acquire(a, true); got != acquired {
		t.Errorf("with force: %v", got)
	}
	for range 3 {
		p.release(a)
	}
	p.release(proxy)
	if len(p.peers) != 0 || p.used() != 0 {
		t.Errorf("left over: %v, %d", p.peers, p.used())
	}
	// What is kept back is nobody's.
	sockets = 4
	if got := p.acquire(b, false); got != acquired {
		t.Errorf("the last descriptor: %v", got)
	}
	if got := p.acquire(b, false); got != allFull {
		t.Errorf("a descriptor too many: %v", got)
	}
}

// Attempts that come faster than shedEvery do not put off the next look.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newConnSlots()
		p.set(bounds{all: 4, each: 1})
		client := netip.MustParseAddr("192.0.2.1")
		p.acquire(client, false)
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
	if n := s.Share().WebSockets; n <= 0 || n >= all {
		t.Errorf("of %d descriptors %d are for WebSockets", all, n)
	}
}

// Where only WebSockets are served they have nearly all descriptors, and as many
// where an operator asks for that. Other connections always have some.
func TestShare(t *testing.T) {
	cores := coreReserved * runtime.GOMAXPROCS(0)
	for name, c := range map[string]struct {
		all, each int
		only      bool
		limits    Options
		least     int // WebSockets
		most      int
		spare     int // descriptors for other connections, at least
		kept      int // for all else, at least
	}{
		"only WebSockets":                 {20000, 1, true, Options{}, 19000, 19500, 250, 250},
		"only WebSockets, few":            {1024, 1, true, Options{}, 900, 990, 14, 32 + cores},
		"only WebSockets, very few":       {64, 1, true, Options{}, 20, 32, 8, 32},
		"only WebSockets, very many":      {1 << 20, 1, true, Options{}, 1 << 20 * 96 / 100, 1 << 20, 8192, 8192},
		"only WebSockets, proxied":        {20000, 2, true, Options{}, 9600, 9750, 250, 250},
		"files, too":                      {20000, 1, false, Options{}, 7500, 7500, 7500, 5000},
		"files, too, few connections":     {20000, 1, false, Options{Connections: 100}, 14700, 14900, 100, 5000},
		"files, too, asked":               {20000, 1, false, Options{WebSockets: 19000}, 19000, 19000, 250, 250},
		"files, too, asked for less":      {20000, 1, false, Options{WebSockets: 10}, 10, 10, 14990, 5000},
		"asked for more than there is":    {20000, 1, false, Options{WebSockets: 50000}, 19000, 19500, 250, 250},
		"asked, proxied":                  {20000, 2, false, Options{WebSockets: 19000}, 9600, 9750, 250, 250},
		"one connection and files":        {64, 1, false, Options{Connections: 1}, 20, 32, 1, 32},
		"a share of one":                  {4, 2, true, Options{}, 1, 1, 0, 1},
		"descriptors without a limit":     {0, 1, true, Options{}, unknownSockets, unknownSockets, 0, 0},
		"as many as asked, without limit": {0, 1, true, Options{WebSockets: 1e6}, 1e6, 1e6, 0, 0},
	} {
		d := c.limits.share(c.all, c.each, c.only)
		if d.WebSockets < c.least || d.WebSockets > c.most {
			t.Errorf("%s: %d WebSockets, want %d to %d", name, d.WebSockets, c.least, c.most)
		}
		if spare, kept := d.Usable-d.WebSockets*c.each, c.all-d.Usable; c.all > 0 && (spare < c.spare || kept < c.kept) {
			t.Errorf("%s: %d descriptors are left for connections, want %d; and %d for all else, want %d", name, spare, c.spare, kept, c.kept)
		}
		if d.PerAddress != max(1, d.WebSockets/2) {
			t.Errorf("%s: %d of one address", name, d.PerAddress)
		}
	}
	for _, c := range []struct {
		all         int
		limits      Options
		limit, hint string
	}{
		{20000, Options{}, "of 20000 file descriptors, ulimit -n", "limits.websockets (up to 19381; for more raise the limit of open files: ulimit -n, or LimitNOFILE of systemd)"},
		{20000, Options{WebSockets: 10}, "limits.websockets", "limits.websockets (up to 19381; for more raise the limit of open files: ulimit -n, or LimitNOFILE of systemd)"},
		{20000, Options{WebSockets: 50000}, "of 20000 file descriptors, ulimit -n", "raise the limit of open files: ulimit -n, or LimitNOFILE of systemd"},
		{0, Options{}, "the default of limits.websockets", "limits.websockets"},
	} {
		d := c.limits.share(c.all, 1, false)
		if d.Limit() != c.limit || d.Hint() != c.hint {
			t.Errorf("%+v: %q, %q", c, d.Limit(), d.Hint())
		}
	}
}

// Clients that wait because nobody can be sent away for them are told of, with
// what bounds them.
func TestFullIsTold(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-release
	})
	r := start(t, plan{limits: Options{Connections: 1, ConnectionsPerAddress: 9}, handler: h})
	busy := r.dial(t, "tcp")
	busy.write(request("GET", "/"))
	<-running
	r.dial(t, "tcp").write(request("GET", "/"))
	servertest.Eventually(t, "it is logged", func() bool { return strings.Contains(r.log.String(), "clients wait to be accepted") })
	if log := r.log.String(); !strings.Contains(log, "limit=limits.connections") {
		t.Error(log)
	}
	close(release)
	go func() { <-running }()
	p := newConnSlots()
	p.set(bounds{all: 10, each: 5, descriptors: 4, sockets: func() int { return 4 }})
	if _, sockets, hint := p.fullness(); sockets != 4 || !strings.Contains(hint, "ulimit -n") {
		t.Errorf("%d, %q", sockets, hint)
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
func (p *connSlots) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}
