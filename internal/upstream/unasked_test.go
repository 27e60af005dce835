package upstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
)

// sockets are the kinds of connections of the kernel's, near end and far end.
func sockets(t *testing.T) map[string][2]net.Conn {
	all := map[string][2]net.Conn{}
	dir, err := os.MkdirTemp("", "up") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(dir, "s")} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		near, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		t.Cleanup(func() { near.Close(); far.Close() })
		all[network] = [2]net.Conn{near, far}
	}
	return all
}

// TestUnreadBytes: what the kernel holds when a request is about to be written
// keeps it from being written.
func TestUnreadBytes(t *testing.T) {
	for network, ends := range sockets(t) {
		t.Run(network, func(t *testing.T) {
			c := newConn(ends[0], speaksHTTP1, func() {})
			c.begin(nil)
			if _, err := io.WriteString(c, "GET 1"); err != nil {
				t.Fatal(err)
			}
			answer(t, ends[1], "GET 1", "answer")
			b := make([]byte, 6)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "answer" {
				t.Fatalf("%q, %v", b, err)
			}
			c.back()
			c.uses++ // begin, without its wait for the reader
			c.phase.Store(given)
			answer(t, ends[1], "", "more")
			if n, err := io.WriteString(c, "GET 2"); n != 0 || !errors.Is(err, errEarly) || !c.spoke.Load() {
				t.Errorf("%d bytes written, %v", n, err)
			}
		})
	}
}

// answer reads what was asked and writes text; the kernel has it then.
func answer(t *testing.T, far net.Conn, ask, text string) {
	t.Helper()
	b := make([]byte, len(ask))
	if _, err := io.ReadFull(far, b); err != nil || string(b) != ask {
		t.Fatalf("%q came, %v", b, err)
	}
	if _, err := io.WriteString(far, text); err != nil {
		t.Fatal(err)
	}
}

// TestSettle: a connection is given away only when its reader waits for more.
func TestSettle(t *testing.T) {
	for network, ends := range sockets(t) {
		t.Run(network, func(t *testing.T) {
			var unasked, doubted atomic.Int32
			c := newConn(ends[0], speaksHTTP1, func() { unasked.Add(1) })
			c.begin(nil)
			doubt := func() { doubted.Add(1) }
			for range 3 {
				if _, err := io.WriteString(c, "GET"); err != nil {
					t.Fatal(err)
				}
				answer(t, ends[1], "GET", "answer")
				if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
					t.Fatal(err)
				}
				c.back()
				var reader sync.WaitGroup
				reader.Go(func() { c.Read(make([]byte, 6)) }) // ends with the deadline
				c.begin(doubt)
				if c.spoke.Load() || !c.parked {
					t.Error("it is given away although nothing is known of it")
				}
				ends[0].SetReadDeadline(time.Unix(1, 0))
				reader.Wait()
				ends[0].SetReadDeadline(time.Time{})
			}
			if unasked.Load() != 0 {
				t.Error("a connection in good order was accused")
			}
			c.phase.Store(returned)
			answer(t, ends[1], "", "more")
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			c.Close()
			if unasked.Load() != 1 || doubted.Load() != 3 {
				t.Errorf("accused %d times, %d answers put in doubt; want 1 and 3", unasked.Load(), doubted.Load())
			}
		})
	}
}

// TestRecords: the walk along records of TLS knows where one ends, whatever the
// pieces.
func TestRecords(t *testing.T) {
	data := append([]byte{23, 3, 3, 1, 4}, make([]byte, 260)...)
	alert := append([]byte{23, 3, 3, 0, sealedAlert}, make([]byte, sealedAlert)...)
	old := []byte{typeAlert, 3, 3, 0, 2, 1, 0}
	all := append(append(append([]byte{}, data...), alert...), data...)
	for step := range len(all) {
		var r records
		for at := 0; at < len(all); at += step + 1 {
			end := min(at+step+1, len(all))
			r.walk(all[at:end])
			whole := end == len(data) || end == len(data)+len(alert) || end == len(all)
			if r.between() != whole {
				t.Fatalf("in steps of %d, after %d bytes: between records %v", step+1, end, !whole)
			}
		}
		if r.goodbye() {
			t.Error("data is taken for an alert")
		}
		for _, end := range [][]byte{alert, old} {
			if r.walk(end); !r.goodbye() || !r.between() {
				t.Error("an alert is taken for data")
			}
		}
	}
}

// TestDistrust: after bytes that nobody asked for every request gets a connection
// of its own, for a time; a server's note that it waits no longer does no harm.
func TestDistrust(t *testing.T) {
	for name, c := range map[string]struct {
		talk     string
		distrust bool
	}{
		"a second answer": {okAnswer, true},
		"408":             {"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				honest := faulty.Loop(faulty.Request(), faulty.OK("hello"))
				w.set("a:80", faulty.Script{faulty.Request(), faulty.OK("hello"), faulty.Pause(time.Second), faulty.Send(c.talk)})
				p := newPool(t, Options{To: []string{"http://a"}}, w)
				told := 0
				p.OnUnsolicited(func() { told++ })
				get(t, p)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				w.set("a:80", faulty.Script{honest})
				for _, after := range []time.Duration{0, distrustFor} {
					time.Sleep(after)
					before := w.dials("a:80")
					for range 5 {
						if _, text, err := get(t, p); text != "hello" || err != nil {
							t.Errorf("%q, %v", text, err)
						}
					}
					want := 1
					if c.distrust && after == 0 {
						want = 5
					}
					if n := w.dials("a:80") - before; n != want {
						t.Errorf("after %v: %d connections for 5 requests, want %d", after, n, want)
					}
				}
				if want := map[bool]int{true: 1}[c.distrust]; told != want || p.Servers()[0].Unasked != uint64(want) {
					t.Errorf("told %d times, counted %d, want %d", told, p.Servers()[0].Unasked, want)
				}
			})
		})
	}
}

// TestReuse: a well-behaved server keeps its connections, over every way that
// HTTP/1.1 comes, and whatever ends an answer.
func TestReuse(t *testing.T) {
	for _, way := range ways() {
		if way.proto != "HTTP/1.1" {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			var mu sync.Mutex
			connections := map[string]bool{}
			o := way.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				connections[r.RemoteAddr] = true
				mu.Unlock()
				switch r.URL.Path {
				case "/204":
					w.WriteHeader(http.StatusNoContent)
				case "/304":
					w.WriteHeader(http.StatusNotModified)
				case "/chunked":
					io.WriteString(w, strings.Repeat("x", 100_000))
				default:
					io.WriteString(w, "ok")
				}
			}))
			var log strings.Builder
			p, err := start(o, slog.New(slog.NewTextHandler(&log, nil)), nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				for _, path := range []string{"/", "/204", "/304", "/chunked"} {
					for _, method := range []string{"GET", "HEAD"} {
						if _, _, err := do(p, newRequest(t, method, path, nil)); err != nil {
							t.Errorf("%s %s: %v", method, path, err)
						}
					}
				}
			}
			p.Close()
			if len(connections) != 1 || p.Servers()[0].Unasked != 0 || log.Len() > 0 {
				t.Errorf("%d connections for requests one after the other, %d accused; the log says %q", len(connections), p.Servers()[0].Unasked, log.String())
			}
		})
	}
}

// TestGoodbye: a server that closes its connections over TLS without a word in
// HTTP is not accused.
func TestGoodbye(t *testing.T) {
	ts := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: ts.TLS.Certificates}
	ts.Close()
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			config := config.Clone()
			config.MaxVersion = version
			l, err := tls.Listen("tcp", "127.0.0.1:0", config)
			if err != nil {
				t.Fatal(err)
			}
			var running sync.WaitGroup
			running.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, okAnswer)
					}
					c.Close()
				}
			})
			t.Cleanup(func() { l.Close(); running.Wait() })
			p := newPool(t, Options{To: []string{"https://" + l.Addr().String()}, TLS: TLS{Insecure: true}}, nil)
			for range 10 {
				if _, text, err := get(t, p); err != nil || text != "ok" {
					t.Errorf("%q, %v", text, err)
				}
			}
			if n := p.Servers()[0].Unasked; n != 0 {
				t.Errorf("accused %d times", n)
			}
		})
	}
}
