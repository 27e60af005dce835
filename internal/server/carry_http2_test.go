package server

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/upstream/faulty"
)

// askHTTP2 sends a GET or a HEAD on a new connection of HTTP/2, and a second request
// behind the answer. It returns both answers without dates, and whether a loop
// passed the first one on.
func (r *rig) askHTTP2(tb testing.TB, method, path string) (got string, carried bool) {
	tb.Helper()
	conf := r.clientTLS.Clone()
	conf.NextProtos = []string{"h2"}
	tr := &http.Transport{TLSClientConfig: conf, DisableCompression: true, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	var all strings.Builder
	for i, ask := range [][2]string{{method, path}, {"GET", "/ok"}} {
		req, err := http.NewRequest(ask[0], "https://"+r.secure+ask[1], nil)
		if err != nil {
			tb.Fatal(err)
		}
		req.Host = "a.example"
		before := r.srv.lane.Forwarded()
		resp, err := tr.RoundTrip(req)
		if err != nil {
			fmt.Fprintln(&all, "no answer")
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Header.Del("Date")
		fmt.Fprintf(&all, "%s %s %d %v %v %.100q %d\n", resp.Proto, resp.Status, resp.ContentLength, resp.Header, err != nil, body, len(body))
		if i == 0 {
			carried = r.srv.lane.Forwarded() > before
		}
	}
	return all.String(), carried
}

// TestCarriedHTTP2Answers is TestCarriedAnswers for clients of HTTP/2.
func TestCarriedHTTP2Answers(t *testing.T) {
	for _, a := range originAnswers {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"GET", "HEAD"} {
				if method == "HEAD" && (len(a.pieces) == 0 || strings.HasPrefix(a.name, "more")) {
					continue
				}
				p := newRelays(t)
				pieces := a.pieces
				if method == "HEAD" {
					head, _, _ := strings.Cut(strings.Join(a.pieces, ""), "\r\n\r\n")
					pieces = []string{head + "\r\n\r\n"}
				}
				p.set(a.closes, pieces...)
				var got [2]string
				var asked [2][]string
				for i := range got {
					carried := false
					for range 5 { // on a busy machine an answer may be late for a loop
						p.set(a.closes, pieces...)
						got[i], carried = [...]*rig{p.with, p.without}[i].askHTTP2(t, method, "/a?b=c")
						if asked[i] = p.requests(); carried || i == 1 {
							break
						}
						p = newRelays(t) // this one may have learned to distrust the origin
					}
					if carried == (i == 1) {
						t.Errorf("%s: passed on by a loop: %v", method, carried)
					}
				}
				if a.name == "304" { // which net/http gives a length over HTTP/2, as if a body came
					continue
				}
				if got[0] != got[1] {
					t.Errorf("%s: on the loops %s\nby net/http %s", method, got[0], got[1])
				}
				if !slices.Equal(asked[0], asked[1]) {
					t.Errorf("%s: the origin got\n%q\nand by net/http\n%q", method, asked[0], asked[1])
				}
			}
		})
	}
}

// TestCarriedHTTP2Requests: the origin gets the same of each request.
func TestCarriedHTTP2Requests(t *testing.T) {
	p := newRelays(t)
	for _, req := range []struct {
		path    string
		fields  []string
		carried bool
	}{
		{"/a", nil, true},
		{"/a?", []string{"user-agent", "x", "accept", "*/*", "priority", "u=1, i"}, true},
		{"/a?x=%zz&y=|", []string{"cookie", "a=b", "cookie", "c=d", "authorization", "Basic eDp5", "cookie", "e=f"}, true},
		{"/a", []string{"x-forwarded-for", "1.2.3.4", "x_forwarded_for", "1.2.3.4", "x-real-ip", "1.2.3.4", "forwarded", "for=1.2.3.4", "x-forwarded-host", "evil", "x-forwarded-proto", "http", "proxy", "x"}, true},
		{"/a", []string{"max-forwards", "0", "x-original-url", "/admin", "x-http-method-override", "DELETE", "x-ssl-client-subject", "CN=x"}, true},
		{"/a", []string{"pragma", "no-cache"}, true},
		{"/a", []string{"via", "1.1 x"}, true},
		{"/a", []string{"te", "trailers"}, true},
		{"/a", []string{"te", "trailers, gzip"}, false},
		{"/a", []string{"te", "trailers", "te", "trailers"}, false},
		{"/a", []string{"content-length", "0"}, false},
		{"/a", []string{"x", "a", "x", "b"}, false},
		{"/a", []string{"x", "ä"}, false},
		{"/a", []string{"x", ""}, false},
		{"/a", []string{"host", "a.example"}, false},
		{"/a/../b", nil, true},
		{"/a//b", nil, true},
		{"/a%2fb", nil, true},
	} {
		var got [2]string
		var asked [2][]string
		for i, r := range []*rig{p.with, p.without} {
			p.set(false, okHead+"Content-Length: 5\r\n\r\nhello")
			h := r.http2(t)
			before := r.srv.lane.Forwarded()
			if err := h.open(1, asking(req.path, req.fields...)); err != nil {
				t.Fatal(err)
			}
			status, body := h.answer(t, 1)
			got[i] = status + " " + body
			if carried := r.srv.lane.Forwarded() > before; i == 0 && carried != req.carried {
				t.Errorf("%s %q: passed on by a loop: %v", req.path, req.fields, carried)
			}
			_ = h.nc.Close()
			asked[i] = p.requests()
		}
		if got[0] != got[1] {
			t.Errorf("%s %q: %q on the loops, %q by net/http", req.path, req.fields, got[0], got[1])
		}
		if !slices.Equal(asked[0], asked[1]) {
			t.Errorf("%s %q: the origin got\n%q\nand by net/http\n%q", req.path, req.fields, asked[0], asked[1])
		}
	}
}

// TestCarriedHTTP2Oracle: the scripts of the oracle get the same from an origin,
// whoever passes them on.
func TestCarriedHTTP2Oracle(t *testing.T) {
	up := httptest.NewServer(newPages())
	defer up.Close()
	to := strings.TrimPrefix(up.URL, "http://")
	on, off := relay(t, to, upstream.Options{}, false), relay(t, to, upstream.Options{}, true)
	seed := rand.New(rand.NewPCG(16, 2026))
	for i := range 150 {
		input := make([]byte, 20+seed.IntN(600))
		for i := range input {
			input[i] = byte(seed.Uint32())
		}
		compare(t, on, off, input, uint32(i%4)*20)
	}
	if n := on.srv.lane.Forwarded(); n < 30 { // many more on a machine that is not slow
		t.Errorf("the loops passed on %d requests", n)
	}
	servertest.Eventually(t, "nothing is held", func() bool { return on.srv.lane.Unsent() == 0 })
}

// TestCarriedHTTP2Faults: each way in which an upstream may go wrong ends as it does
// without the loops.
func TestCarriedHTTP2Faults(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, s := range faulty.Scenarios() {
		if s.Method != "" && s.Method != "GET" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var got [2]string
			for i, off := range []bool{false, true} {
				up, err := faulty.Start(s.Script, s.Script, s.Script, s.Script, faulty.Good("good"))
				if err != nil {
					t.Fatal(err)
				}
				defer up.Close()
				r := relay(t, up.Addr, upstream.Options{HeaderTimeout: time.Second, BodyTimeout: time.Second, HeaderBytes: 64 << 10}, off)
				h := r.http2(t)
				status, body := h.get(t, 1, "/a")
				if got[i] = status + " " + body; status >= "500" || strings.Contains(body, "Request id: ") { // which error it is hangs on how long things take
					got[i] = "no answer"
				}
				if _, body := h.get(t, 3, "/next"); strings.Contains(body, faulty.Secret) {
					t.Errorf("the next one got %q", body)
				}
			}
			if got[0] != got[1] {
				t.Errorf("on the loops: %.200q, by net/http: %.200q", got[0], got[1])
			}
		})
	}
}

// slowly is an origin whose answers to what begins with /slow take longer than a
// loop waits, and which counts what it is asked.
func slowly(tb testing.TB) (to string, asked *sync.Map) {
	asked = new(sync.Map)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := asked.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		if strings.HasPrefix(r.URL.Path, "/slow") {
			select {
			case <-time.After(250 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	tb.Cleanup(up.Close)
	return strings.TrimPrefix(up.URL, "http://"), asked
}

// TestCarriedHTTP2Slow: what takes long goes to net/http, all streams of the
// connection at once, and the origin is asked once for each. So it is over HTTP/1.1.
func TestCarriedHTTP2Slow(t *testing.T) {
	to, asked := slowly(t)
	r := relay(t, to, upstream.Options{}, false)
	h := r.http2(t)
	const n = 8
	for i := range uint32(n) {
		_ = h.open(2*i+1, asking(fmt.Sprintf("/slow/%d", i)))
	}
	_ = h.open(2*n+1, asking("/fast"))
	if _, body := h.answer(t, 2*n+1); body != "/fast" {
		t.Error(body)
	}
	got := map[uint32]string{}
	for len(got) < n {
		f, err := h.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			got[d.StreamID] = string(d.Data())
		}
	}
	for i := range uint32(n) {
		path := fmt.Sprintf("/slow/%d", i)
		if got[2*i+1] != path {
			t.Errorf("stream %d: %q", 2*i+1, got[2*i+1])
		}
		if times, ok := asked.Load(path); !ok || times.(*atomic.Int64).Load() != 1 {
			t.Errorf("the origin was not asked once for %s", path)
		}
	}
	c := r.dial(t, "tls")
	if got := c.get("/slow/h1") + c.get("/ok"); got != "/slow/h1/ok" {
		t.Error(got)
	}
	if times, ok := asked.Load("/slow/h1"); !ok || times.(*atomic.Int64).Load() != 1 {
		t.Error("the origin was not asked once over HTTP/1.1")
	}
	if carried := r.srv.lane.Forwarded(); carried < n+1 {
		t.Errorf("the loops passed on %d requests", carried)
	}
}

// TestCarriedHTTP2ClientGoes: streams that are reset, and connections that are cut,
// free their places.
func TestCarriedHTTP2ClientGoes(t *testing.T) {
	t.Parallel() // it mostly waits
	to, _ := slowly(t)
	r := relay(t, to, upstream.Options{Concurrency: 8, QueueTimeout: patience}, false)
	for i := range 30 {
		h := r.http2(t)
		for id := uint32(1); id < 20; id += 2 {
			_ = h.open(id, asking("/slow"))
			if i%3 == 1 {
				_ = h.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}
		_ = h.out.Flush()
		if i%3 == 2 {
			time.Sleep(120 * time.Millisecond / 10)
		}
		if i%3 == 1 {
			if _, body := h.get(t, 99, "/fast"); body != "/fast" {
				t.Error(body)
			}
		}
		_ = h.nc.Close()
	}
	servertest.Eventually(t, "all connections are gone", func() bool { return r.srv.lane.Open() == 0 })
	if _, body := r.http2(t).get(t, 1, "/fast"); body != "/fast" {
		t.Error(body)
	}
}

// TestCarriedHTTP2Windows: an answer waits for its client's windows, within what is
// named, and is forgotten with its stream.
func TestCarriedHTTP2Windows(t *testing.T) {
	p := newRelays(t)
	body := strings.Repeat("x", 60000)
	p.set(false, okHead+"Content-Length: 60000\r\n\r\n"+body)
	h := p.with.http2(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	const n = 5
	for i := range uint32(n) {
		_ = h.open(2*i+1, asking("/a"))
	}
	_ = h.out.Flush()
	lane := p.with.srv.lane
	servertest.Eventually(t, "all answers wait", func() bool { return lane.Unsent() >= n*59990 })
	_ = h.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = h.out.Flush()
	servertest.Eventually(t, "one is forgotten", func() bool { return lane.Unsent() < n*59990 })
	_ = h.WriteWindowUpdate(0, 1<<20)
	_ = h.WriteWindowUpdate(3, 1000)
	_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 60000 - 1000})
	_ = h.out.Flush()
	if _, got := h.answer(t, 3); got != body {
		t.Errorf("%d bytes", len(got))
	}
	_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 60000})
	_ = h.out.Flush()
	servertest.Eventually(t, "nothing is held", func() bool { return lane.Unsent() == 0 })
	_ = h.WriteWindowUpdate(5, 0) // of a stream that has ended
	if _, got := h.get(t, 99, "/a"); got != body {
		t.Errorf("%d bytes", len(got))
	}
	_ = h.nc.Close()

	// Who closes the connection is forgotten, too.
	h = p.with.http2(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	_ = h.open(1, asking("/a"))
	_ = h.out.Flush()
	servertest.Eventually(t, "an answer waits", func() bool { return lane.Unsent() > 0 })
	_ = h.nc.Close()
	servertest.Eventually(t, "nothing is held", func() bool { return lane.Unsent() == 0 })
}

// TestCarriedHTTP2Drain: streams under way when the server drains are answered.
func TestCarriedHTTP2Drain(t *testing.T) {
	t.Parallel() // it mostly waits
	p := newRelays(t)
	p.set(false, append([]string{okHead + "Content-Length: 25\r\n\r\n"}, strings.Split(strings.Repeat("x", 25), "")...)...)
	h := p.with.http2(t)
	_ = h.open(1, asking("/ok"))
	_ = h.open(3, asking("/a"))
	_ = h.open(5, asking("/b"))
	_ = h.out.Flush()
	servertest.Eventually(t, "the origin is asked", func() bool { return len(p.requests()) == 2 })
	p.with.cancel()
	got := map[uint32]int{}
	away := 0
	for {
		f, err := h.ReadFrame()
		if err != nil {
			break
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			got[f.StreamID] += len(f.Data())
		case *http2.GoAwayFrame:
			if away++; f.ErrCode != http2.ErrCodeNo {
				t.Error(f)
			}
		}
	}
	if got[3] != 25 || got[5] != 25 || away == 0 {
		t.Errorf("%v, and %d times GOAWAY", got, away)
	}
	if err := p.with.wait(); err != nil {
		t.Error(err)
	}
}

// TestCarriedHTTP2Together: many streams of many connections get their own answers,
// some of which go to net/http on the way.
func TestCarriedHTTP2Together(t *testing.T) {
	to, _ := slowly(t)
	r := relay(t, to, upstream.Options{}, false)
	conf := r.clientTLS.Clone()
	conf.NextProtos = []string{"h2"}
	var all sync.WaitGroup
	for i := range 4 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			tr := &http.Transport{TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
			defer tr.CloseIdleConnections()
			var streams sync.WaitGroup
			for n := range 40 {
				streams.Go(func() {
					path := fmt.Sprintf("/%d/%d", i, n)
					method, body := "GET", io.Reader(nil)
					switch {
					case i%4 == 1 && n == 30:
						path = "/slow" + path
					case i%4 == 2 && n == 30:
						method, body = "POST", strings.NewReader("body")
					}
					req, err := http.NewRequest(method, "https://"+r.secure+path, body)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := tr.RoundTrip(req)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if string(got) != path || err != nil {
						t.Errorf("%q, %v, want %q", got, err, path)
					}
				})
			}
			streams.Wait()
		})
	}
	all.Wait()
	servertest.Eventually(t, "the loops pass requests on", func() bool { // on a busy machine, not all that they could
		_, _ = r.http2(t).get(t, 1, "/again")
		return r.srv.lane.Forwarded() > 0
	})
}

// TestCarriedHTTP2Priority: a frame for net/http that is no stream takes the
// connection from its loop, together with the requests that the loop has passed on.
func TestCarriedHTTP2Priority(t *testing.T) {
	t.Parallel() // it mostly waits
	to, _ := slowly(t)
	r := relay(t, to, upstream.Options{}, false)
	for range 20 {
		h := r.http2(t)
		_ = h.open(1, asking("/slow/1"))
		_ = h.open(3, asking("/3"))
		_ = h.WritePriority(5, http2.PriorityParam{StreamDep: 5}) // which it cannot
		_ = h.out.Flush()
		got := map[uint32]string{}
		for len(got) < 2 {
			f, err := h.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
				got[d.StreamID] = string(d.Data())
			}
		}
		if got[1] != "/slow/1" || got[3] != "/3" {
			t.Error(got)
		}
		_ = h.nc.Close()
	}
}
