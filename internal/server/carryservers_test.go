package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
)

// member is one of several servers. Its answers say which one it is.
type member struct {
	*httptest.Server
	mu      sync.Mutex
	status  int  // of its answers; 0: 200
	dies    bool // it ends the connection instead of answering
	tired   bool // it ends the connection behind each answer, without a word
	answers atomic.Int64
}

func (m *member) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *member) answer(w http.ResponseWriter, r *http.Request, name int) {
	m.mu.Lock()
	status, dies, tired := m.status, m.dies, m.tired
	m.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	text := fmt.Sprintf("%d has %s %s %s for %s", name, r.Method, r.RequestURI, body, r.Header.Get("Cookie"))
	switch {
	case dies:
		panic(http.ErrAbortHandler)
	case tired:
		m.answers.Add(1)
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		_ = nc.Close()
		return
	}
	m.answers.Add(1)
	w.Header().Set("Content-Type", "text/plain")
	w.Header()["Set-Cookie"] = []string{"z=" + fmt.Sprint(name)}
	if status != 0 {
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, text)
}

// newMembers starts so many servers; the last is one over TLS if secure says so.
func newMembers(tb testing.TB, n int, secure bool) (all []*member, to []string) {
	tb.Helper()
	for i := range n {
		m := new(member)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.answer(w, r, i) })
		if m.Server = httptest.NewUnstartedServer(h); secure && i == n-1 {
			m.StartTLS()
		} else {
			m.Start()
		}
		tb.Cleanup(m.Close)
		all, to = append(all, m), append(to, m.URL)
	}
	return all, to
}

// visitors ask one after the other, each on a connection of its own, and keep their
// cookies.
type visitors struct {
	clients []*client
	cookies []string // of sticky
	said    []string // each answer, without its date
}

// ask asks for the i-th time.
func (v *visitors) ask(tb testing.TB, r *rig, transport string, i int) {
	tb.Helper()
	method, path, body := http.MethodGet, fmt.Sprintf("/p%d?q%d", i%7, i%2), ""
	if i%4 == 3 {
		method, body = http.MethodPost, strings.Repeat("x", i)
	}
	n := i % len(v.clients)
	if v.clients[n] == nil {
		v.clients[n] = r.dial(tb, transport)
	}
	c := v.clients[n]
	text := request(method, path, fmt.Sprintf("Content-Length: %d", len(body)), fmt.Sprintf("X-User: u%d", i%3), strings.TrimSuffix(fmt.Sprintf("Cookie: a=b; sid=\"s%d\"; %s", i%4, v.cookies[n]), "; ")) + body
	if method == http.MethodGet {
		text = strings.Replace(text, "Content-Length: 0\r\n", "", 1)
	}
	c.write(text)
	res, got := c.answer(method)
	res.Header.Del("Date")
	for _, cookie := range res.Header["Set-Cookie"] {
		if value, ok := strings.CutPrefix(cookie, "route="); ok {
			v.cookies[n], _, _ = strings.Cut("route="+value, ";")
		}
	}
	if res.Close {
		_ = c.Close()
		v.clients[n] = nil
	}
	if res.StatusCode >= 500 { // an id is in it
		got = ""
	}
	v.said = append(v.said, fmt.Sprintf("%s %s: %s %v %s", method, path, res.Status, res.Header, got))
}

// alike has the same visitors ask the same on the loops and by net/http: who is
// chosen, what each server and client gets, and what the books say is the same. It
// returns how many requests the loops passed on.
func alike(t *testing.T, o upstream.Options, transport string, between func(i int)) (carried uint64, said []string, books []upstream.Server) {
	t.Helper()
	o.Health.Eject, o.HeaderTimeout = time.Hour, 5*time.Second
	var all [2]visitors
	var rigs [2]*rig
	for road := range all {
		r := relayTo(t, o, road == 1)
		rigs[road] = r
		v := &all[road]
		v.clients, v.cookies = make([]*client, 5), make([]string, 5)
		for i := range 40 {
			if between != nil {
				between(i)
			}
			v.ask(t, r, transport, i)
		}
	}
	for i := range all[0].said {
		if got, want := all[0].said[i], all[1].said[i]; got != want {
			t.Errorf("request %d\n   on the loops: %s\nby net/http: %s", i, got, want)
		}
	}
	// the latency is a matter of the machine
	var both [2][]upstream.Server
	for road, r := range rigs {
		servertest.Eventually(t, "all places are free", func() bool {
			return !slices.ContainsFunc(r.pool.Servers(), func(s upstream.Server) bool { return s.Running > 0 })
		})
		for _, s := range r.pool.Servers() {
			s.Latency = 0
			both[road] = append(both[road], s)
		}
	}
	if !slices.Equal(both[0], both[1]) {
		t.Errorf("the books say\n   on the loops: %+v\nby net/http: %+v", both[0], both[1])
	}
	return rigs[0].srv.lane.Forwarded(), all[0].said, both[0]
}

// TestCarriedServers: one of several servers is chosen on the loops as it is by a
// goroutine.
func TestCarriedServers(t *testing.T) {
	for name, o := range map[string]upstream.Options{
		"by turns":                      {Balance: "round_robin"},
		"by weights":                    {Balance: "round_robin", Weights: []int{3, 1, 2}},
		"by the URL's hash":             {Balance: "hash"},
		"by the path's hash":            {Balance: "hash", HashBy: "path"},
		"by the client's hash":          {Balance: "hash", HashBy: "client"},
		"by a field's hash":             {Balance: "hash", HashBy: "header:x-user"},
		"by a field that is not there":  {Balance: "hash", HashBy: "header:X-None"},
		"by a cookie's hash":            {Balance: "hash", HashBy: "cookie:sid"},
		"by a cookie that is not there": {Balance: "hash", HashBy: "cookie:none"},
		"by hash and weights":           {Balance: "hash", Weights: []int{1, 5, 1}},
		"by turns, then by cookie":      {Balance: "round_robin", Sticky: upstream.Sticky{Cookie: "route"}},
		"by hash, then by cookie":       {Balance: "hash", Sticky: upstream.Sticky{Cookie: "route", MaxAge: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, o.To = newMembers(t, 3, false)
			for _, transport := range []string{"tcp", "tls"} {
				carried := uint64(0)
				for range 5 { // on a busy machine answers may be late for a loop
					if carried, _, _ = alike(t, o, transport, nil); carried >= 38 {
						break
					}
				}
				if carried == 0 {
					t.Errorf("%s: the loops passed nothing on", transport)
				}
			}
		})
	}
}

// TestCarriedServersHTTP2: so it is for clients of HTTP/2.
func TestCarriedServersHTTP2(t *testing.T) {
	for _, o := range []upstream.Options{
		{Balance: "round_robin", Weights: []int{2, 1, 1}},
		{Balance: "hash", HashBy: "cookie:sid"},
		{Balance: "round_robin", Sticky: upstream.Sticky{Cookie: "route"}},
	} {
		_, o.To = newMembers(t, 3, false)
		var said [2][]string
		for road := range said {
			r := relayTo(t, o, road == 1)
			conf := r.clientTLS.Clone()
			conf.NextProtos = []string{"h2"}
			tr := &http.Transport{TLSClientConfig: conf, DisableCompression: true, ForceAttemptHTTP2: true}
			defer tr.CloseIdleConnections()
			var cookies [3]string
			for i := range 30 {
				req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s/p%d", r.secure, i%7), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = "a.example"
				req.Header.Set("Cookie", fmt.Sprintf("sid=s%d%s", i%4, cookies[i%3]))
				res, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				res.Header.Del("Date")
				for _, cookie := range res.Header["Set-Cookie"] {
					if value, ok := strings.CutPrefix(cookie, "route="); ok {
						value, _, _ = strings.Cut(value, ";")
						cookies[i%3] = "; route=" + value
					}
				}
				said[road] = append(said[road], fmt.Sprint(res.Status, res.Header, string(body), err))
			}
			if n := r.srv.lane.Forwarded(); road == 0 && n == 0 {
				t.Errorf("the loops passed %d of 30 on", n)
			}
		}
		if !slices.Equal(said[0], said[1]) {
			t.Errorf("%+v\n   on the loops: %s\nby net/http: %s", o, strings.Join(said[0], "\n"), strings.Join(said[1], "\n"))
		}
	}
}

// TestCarriedServersOneDead: a server to which nobody can connect costs its turns
// three times, on both roads.
func TestCarriedServersOneDead(t *testing.T) {
	_, to := newMembers(t, 3, false)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String()
	_ = l.Close()
	for _, o := range []upstream.Options{
		{Balance: "round_robin"},
		{Balance: "round_robin", Weights: []int{1, 2, 1}},
		{Balance: "round_robin", Sticky: upstream.Sticky{Cookie: "route"}},
	} {
		o.To = []string{to[0], dead, to[2]}
		carried, said, books := alike(t, o, "tcp", nil)
		if ejected := books[1].Requests == 3 && books[1].Fails == 3 && !books[1].Healthy; carried == 0 || !ejected && o.Sticky.Cookie == "" {
			t.Errorf("%+v: the loops passed %d on, and the books say %+v", o, carried, books)
		}
		for _, s := range said {
			if !strings.Contains(s, ": 200 OK ") {
				t.Error(s)
			}
		}
	}
}

// TestCarriedServersOneDies: a server that takes requests and ends their connections
// fails in the same way on both roads. So does one whose answers are asked for again.
func TestCarriedServersOneDies(t *testing.T) {
	members, to := newMembers(t, 3, false)
	both := func(o upstream.Options, well, ill func()) {
		o.To = to
		alike(t, o, "tcp", func(i int) {
			switch i {
			case 0:
				members[1].set(well)
			case 12:
				members[1].set(ill)
			}
		})
	}
	well, dies := func() { members[1].dies, members[1].status = false, 0 }, func() { members[1].dies = true }
	both(upstream.Options{Balance: "round_robin"}, well, dies)
	both(upstream.Options{Balance: "hash", HashBy: "header:X-User"}, well, dies)
	both(upstream.Options{Balance: "round_robin", Sticky: upstream.Sticky{Cookie: "route"}}, well, dies)
	o := upstream.Options{Balance: "round_robin", Retries: upstream.Retries{Status: []string{"5xx"}}}
	both(o, well, func() { members[1].status = http.StatusServiceUnavailable })
}

// TestCarriedServersOneIsTired: a server that keeps no connection loses no turn by
// that.
func TestCarriedServersOneIsTired(t *testing.T) {
	members, to := newMembers(t, 2, false)
	members[0].set(func() { members[0].tired = true })
	_, said, _ := alike(t, upstream.Options{To: to, Balance: "round_robin"}, "tcp", nil)
	for i, s := range said {
		if !strings.Contains(s, fmt.Sprintf("%d has ", i%2)) {
			t.Errorf("request %d: %s", i, s)
		}
	}
}

// TestCarriedServersOneOverTLS: a server that the loops cannot ask keeps its turns.
func TestCarriedServersOneOverTLS(t *testing.T) {
	_, to := newMembers(t, 2, true)
	carried, said, _ := alike(t, upstream.Options{To: to, Balance: "round_robin", TLS: upstream.TLS{Insecure: true}}, "tcp", nil)
	if carried == 0 || carried > 20 { // every other, but what is late on a busy machine
		t.Errorf("the loops passed %d of 40 on", carried)
	}
	for i, s := range said {
		if !strings.Contains(s, fmt.Sprintf("%d has ", i%2)) {
			t.Errorf("request %d: %s", i, s)
		}
	}
}

// crowd has clients ask until stop is closed. All of them get good answers.
func crowd(t *testing.T, r *rig, stop chan struct{}) (asked *atomic.Int64, wait func()) {
	t.Helper()
	asked = new(atomic.Int64)
	var all sync.WaitGroup
	for i := range 12 {
		c := r.dial(t, []string{"tcp", "tls"}[i%2])
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				method, body, text := http.MethodGet, "", request("GET", fmt.Sprintf("/%d/%d", i, n))
				if n%3 == 1 {
					method, body = http.MethodPost, "body"
					text = post(fmt.Sprintf("/%d/%d", i, n), body)
				}
				_, _ = io.WriteString(c, text)
				_, got, err := c.tryAnswer(method)
				if want := fmt.Sprintf(" has %s /%d/%d %s for ", method, i, n, body); err != nil || !strings.HasSuffix(got, want) {
					t.Errorf("%.80q, %v, want %q", got, err, want)
					return
				}
				asked.Add(1)
			}
		})
	}
	return asked, all.Wait
}

// TestCarriedServersShares: weights hold while many ask at once.
func TestCarriedServersShares(t *testing.T) {
	_, to := newMembers(t, 2, false)
	r := relayTo(t, upstream.Options{To: to, Balance: "round_robin", Weights: []int{3, 1}}, false)
	stop := make(chan struct{})
	asked, wait := crowd(t, r, stop)
	servertest.Eventually(t, "2000 requests", func() bool { return asked.Load() >= 2000 })
	close(stop)
	wait()
	s := r.pool.Servers()
	if share := float64(s[0].Requests) / float64(s[0].Requests+s[1].Requests); share < 0.74 || share > 0.76 {
		t.Errorf("the first of [3, 1] got %.1f %% of %d requests", 100*share, s[0].Requests+s[1].Requests)
	}
	if n, all := r.srv.lane.Forwarded(), s[0].Requests+s[1].Requests; n < all/10 { // most of them, but on a busy machine
		t.Errorf("the loops passed %d of %d on", n, all)
	}
}

// TestCarriedServersDrained: a server that is drained while many ask gets nothing
// more, and nobody notices.
func TestCarriedServersDrained(t *testing.T) {
	members, to := newMembers(t, 3, false)
	r := relayTo(t, upstream.Options{To: to, Balance: "round_robin", Sticky: upstream.Sticky{Cookie: "route"}}, false)
	stop := make(chan struct{})
	asked, wait := crowd(t, r, stop)
	for round := range 6 {
		n := round % 3
		if err := r.pool.Drain(to[n], true); err != nil {
			t.Fatal(err)
		}
		servertest.Eventually(t, "its requests are answered", func() bool { return r.pool.Servers()[n].Running == 0 })
		before, then := members[n].answers.Load(), asked.Load()
		servertest.Eventually(t, "100 more requests", func() bool { return asked.Load() > then+100 })
		if more := members[n].answers.Load() - before; more > 0 {
			t.Errorf("it got %d more requests", more)
		}
		if err := r.pool.Drain(to[n], false); err != nil {
			t.Fatal(err)
		}
		then = members[n].answers.Load()
		servertest.Eventually(t, "it gets requests again", func() bool { return members[n].answers.Load() > then })
	}
	if err := errors.Join(r.pool.Drain(to[0], true), r.pool.Drain(to[1], true)); err != nil {
		t.Error(err)
	}
	close(stop)
	wait()
}
