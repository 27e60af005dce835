package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
	"millrace/internal/wire/send"
)

// Every timeout in these tests. Long enough that a loaded machine does not
// reach it by accident.
const short = time.Second

var shortLimits = Options{HeaderTimeout: short, BodyTimeout: short, BodyRate: 1, WriteTimeout: short, IdleTimeout: short, HandshakeTimeout: short}

// deadlinePages are a hot and a slow page, uploads, and big answers on both lanes.
func deadlinePages(t *testing.T, size int) http.Handler {
	body := strings.Repeat("0123456789abcdef", size/16)
	inMemory, inFile := page(body), filePage(t, body)
	mux := http.NewServeMux()
	mux.Handle("/hot", offering(page(smallBody), lane.Rule{}))
	mux.Handle("/memory", offering(inMemory, lane.Rule{}))
	mux.Handle("/file", offering(inFile, lane.Rule{}))
	mux.HandleFunc("/slowmemory", func(w http.ResponseWriter, r *http.Request) { send.Serve(w, r, inMemory) })
	mux.HandleFunc("/slowfile", func(w http.ResponseWriter, r *http.Request) { send.Serve(w, r, inFile) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(3 * short):
			_, _ = io.WriteString(w, "at last\n")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintln(w, len(b))
	})
	return mux
}

func TestHotTrafficAloneIsNeverCut(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: shortLimits})
	overAll(t, func(t *testing.T, transport string) {
		t.Parallel()
		r.teach(t, transport, "/hot")
		c := r.dial(t, transport)
		for end := time.Now().Add(3*short + short/2); time.Now().Before(end); time.Sleep(short / 50) {
			c.get("/hot")
		}
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: shortLimits})
	overAll(t, func(t *testing.T, transport string) {
		r.teach(t, transport, "/hot")
		for name, before := range map[string]string{
			"new":  "",
			"hot":  request("GET", "/hot"),
			"slow": request("GET", "/slow"),
			"lost": request("POST", "/echo", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c, since := r.dial(t, transport), time.Now()
				if before != "" {
					since = time.Now()
					c.write(before)
					c.answer("GET")
				}
				if !c.ends() {
					t.Fatal("not closed")
				}
				if idle := time.Since(since); before != "" && idle < short {
					t.Errorf("closed after %v", idle)
				}
			})
		}
	})
}

// Half a head is closed after the header timeout, however steadily a byte
// comes in; meanwhile others are served.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: shortLimits})
	overAll(t, func(t *testing.T, transport string) {
		t.Parallel()
		r.teach(t, transport, "/hot")
		var wg sync.WaitGroup
		for i := range 60 {
			c := r.dial(t, transport)
			head := request("GET", "/hot", "Referer: "+strings.Repeat("x", 3000))
			switch i % 4 {
			case 1:
				c.get("/hot")
			case 2:
				c.get("/slow")
			case 3:
				c.write(request("POST", "/echo", "Transfer-Encoding: chunked") + "0\r\n\r\n")
				c.answer("POST")
			}
			began := time.Now()
			wg.Go(func() {
				for _, b := range []byte(head) {
					if _, err := c.Write([]byte{b}); err != nil {
						break
					}
					time.Sleep(short / 50)
				}
			})
			wg.Go(func() {
				if !c.ends() {
					t.Errorf("connection %d was not closed", i)
				} else if d := time.Since(began); d < short {
					t.Errorf("connection %d was closed after %v", i, d)
				}
				_ = c.Close()
			})
		}
		for range 20 {
			c := r.dial(t, transport)
			c.get("/hot")
			c.get("/slow")
			_ = c.Close()
		}
		wg.Wait()
	})
}

func TestUploads(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: shortLimits, handler: deadlinePages(t, 16)})
	overAll(t, func(t *testing.T, transport string) {
		t.Parallel()
		const n = 20
		for name, head := range map[string]string{
			"length":  request("POST", "/echo", fmt.Sprint("Content-Length: ", n)),
			"chunked": request("POST", "/echo", "Transfer-Encoding: chunked"),
		} {
			piece, end := "x", ""
			if name == "chunked" {
				piece, end = "1\r\nx\r\n", "0\r\n\r\n"
			}
			t.Run(name+" stalled", func(t *testing.T) {
				t.Parallel()
				c := r.dial(t, transport)
				began := time.Now()
				c.write(head + piece)
				if !c.ends() {
					t.Error("not closed")
				} else if d := time.Since(began); d < short {
					t.Errorf("closed after %v", d)
				}
			})
			t.Run(name+" steady", func(t *testing.T) {
				t.Parallel()
				c := r.dial(t, transport)
				c.write(head)
				for range n {
					time.Sleep(short / 5)
					c.write(piece)
				}
				c.write(end)
				if _, body := c.answer("POST"); body != fmt.Sprintln(n) {
					t.Errorf("%q arrived", body)
				}
			})
		}
	})
}

func TestLongHandlerIsNotCut(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: shortLimits, handler: deadlinePages(t, 16)})
	overAll(t, func(t *testing.T, transport string) {
		t.Parallel()
		for _, more := range []string{"", "G", request("GET", "/hot")} { // what comes meanwhile
			c := r.dial(t, transport)
			c.write(request("GET", "/long") + more)
			if _, body := c.answer("GET"); body != "at last\n" {
				t.Errorf("%q", body)
			}
		}
	})
}

// A client that never reads is closed, whoever answers, and holds no more
// than the sockets' buffers; others are served meanwhile.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	r := start(t, plan{limits: shortLimits, handler: deadlinePages(t, size)})
	overAll(t, func(t *testing.T, transport string) {
		for _, path := range []string{"/memory", "/file", "/slowmemory", "/slowfile"} {
			t.Run(path[1:], func(t *testing.T) {
				t.Parallel()
				r.teach(t, transport, path)
				c := r.dial(t, transport)
				began := time.Now()
				go func() { _, _ = io.WriteString(c, strings.Repeat(request("GET", path), 64)) }()
				other := r.dial(t, transport)
				other.get(path)
				_ = other.Close()
				if transport == "tls" {
					time.Sleep(3 * short) // reading at once would be no stall
				}
				servertest.Eventually(t, "the server has closed the connection", func() bool {
					_, err := c.Write([]byte(request("GET", path)))
					return err != nil && time.Since(began) >= short
				})
			})
		}
	})
}

// A slow but steady reader is not cut, however long it takes.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const size = 5 << 20
	limits := shortLimits
	limits.IdleTimeout, limits.HeaderTimeout = patience, patience // on a busy machine the test itself is that slow
	r := start(t, plan{limits: limits, lane: lane.Options{Memory: 64 * size}, handler: deadlinePages(t, size)})
	overAll(t, func(t *testing.T, transport string) {
		for _, path := range []string{"/memory", "/file", "/slowmemory", "/slowfile"} {
			t.Run(path[1:], func(t *testing.T) {
				t.Parallel()
				c := r.dial(t, transport)
				c.get(path) // hot from now on
				c.write(request("GET", path))
				_ = c.SetDeadline(time.Now().Add(3 * patience))
				resp, err := http.ReadResponse(c.br, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				buf := make([]byte, 32<<10)
				for total := 0; total < size; {
					if total < size*2/3 {
						time.Sleep(short / 20)
					}
					n, err := io.ReadFull(resp.Body, buf[:min(len(buf), size-total)])
					if total += n; err != nil {
						t.Fatalf("cut after %d of %d bytes: %v", total, size, err)
					}
				}
			})
		}
	})
}

func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	r := start(t, plan{limits: shortLimits})
	nc, err := net.Dial("tcp", r.secure)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := nc.Write([]byte{22, 3, 1}); err != nil {
		t.Fatal(err)
	}
	if n, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v: want the end", n, err)
	}
	if r.meters.Rejected.Load() != 1 {
		t.Errorf("%d rejected connections, want 1", r.meters.Rejected.Load())
	}
}

// A stream over HTTP/2 may be quiet for longer than the idle timeout, also after the client
// had to catch up with what was written before.
func TestQuietStreamIsNotIdle(t *testing.T) {
	t.Parallel()
	limits := shortLimits
	limits.WriteTimeout = patience
	first := strings.Repeat("x", 8<<20)
	r := start(t, plan{limits: limits, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, first)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(3 * short):
			_, _ = io.WriteString(w, "end")
		case <-r.Context().Done():
		}
	})})
	h := r.http2(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 16 << 20})
	_ = h.WriteWindowUpdate(0, 16<<20)
	_ = h.open(1, h.cold)
	_ = h.out.Flush()
	time.Sleep(short / 4) // so much waits for the client
	got := 0
	for end := false; !end; {
		f, err := h.ReadFrame()
		if err != nil {
			t.Fatalf("%v after %d bytes", err, got)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			got += len(d.Data())
			end = d.StreamEnded()
		}
	}
	if got != len(first)+len("end") {
		t.Errorf("%d bytes", got)
	}
	if !endsSoon(h) {
		t.Error("the idle connection is not closed")
	}
}

// endsSoon reads up to the end of the connection.
func endsSoon(h *hostile) bool {
	_ = h.nc.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, err := h.ReadFrame(); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}
