package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
	"millrace/internal/wire/send"
)

func TestPipelinedHot(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		r.teach(t, transport, "/hot", pathBig)
		before := r.fast()
		c := r.dial(t, transport)
		const n = 100
		go func() {
			_, _ = io.WriteString(c, strings.Repeat(request("GET", "/hot")+request("HEAD", "/hot")+request("GET", pathBig), n))
		}()
		for i := range n {
			for _, want := range []struct{ method, body string }{{"GET", smallBody}, {"HEAD", ""}, {"GET", bigBody}} {
				if _, body := c.answer(want.method); body != want.body {
					t.Fatalf("answer %d to %s has %d bytes, want %d", i, want.method, len(body), len(want.body))
				}
			}
		}
		servertest.Eventually(t, "the lane has given all answers", func() bool { return r.fast()-before == 3*n })
	})
}

func TestPipelinedMixed(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		r.teach(t, transport, "/hot")
		before := r.fast()
		c := r.dial(t, transport)
		const n = 50
		var all strings.Builder
		for i := range n {
			all.WriteString(request("GET", "/hot") + request("GET", fmt.Sprint("/slow?", i)) + post("/echo", fmt.Sprint(i)))
		}
		go func() { _, _ = io.WriteString(c, all.String()) }()
		for i := range n {
			for _, want := range []string{smallBody, fmt.Sprintf("GET /slow?%d a.example \n", i), fmt.Sprintf("POST %d \"%d\" true\n", len(fmt.Sprint(i)), i)} {
				if _, body := c.answer("GET"); body != want {
					t.Fatalf("in round %d came %q, want %q", i, body, want)
				}
			}
		}
		servertest.Eventually(t, "the lane has given all hot answers", func() bool { return r.fast()-before == n })
	})
}

// net/http's background read must not take the next request's first byte.
func TestAlternation(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		r.teach(t, transport, "/hot")
		before := r.fast()
		c := r.dial(t, transport)
		const n = 500
		for i := range n {
			if got := c.get("/hot"); got != smallBody {
				t.Fatalf("hot: %q", got)
			}
			if i%2 == 0 {
				c.get("/slow")
				continue
			}
			c.write(post("/echo", "body"))
			if _, body := c.answer("POST"); body != "POST 4 \"body\" true\n" {
				t.Fatalf("echo: %q", body)
			}
		}
		if got := r.fast() - before; got < n*95/100 {
			t.Errorf("the lane gave %d of %d answers", got, n)
		}
	})
}

func TestHeadAndConditions(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		r.teach(t, transport, "/hot")
		c := r.dial(t, transport)
		for _, q := range []struct {
			method, header string
			status         int
			fast           bool
		}{
			{"GET", "DNT: 1", 200, true},
			{"HEAD", "DNT: 1", 200, true},
			{"GET", `If-None-Match: "13"`, 304, true},
			{"HEAD", `If-None-Match: "13"`, 304, true},
			{"GET", `If-None-Match: W/"13"`, 304, true},
			{"GET", `If-None-Match: *`, 304, true},
			{"GET", `If-None-Match: "1"`, 200, true},
			{"GET", "If-Modified-Since: Mon, 06 May 2024 07:08:09 GMT", 304, true},
			{"GET", "If-Modified-Since: Mon, 06 May 2024 07:08:10 GMT", 304, true},
			{"GET", "If-Modified-Since: Mon, 06 May 2024 07:08:08 GMT", 200, true},
			{"GET", "If-None-Match: \"1\"\r\nIf-Modified-Since: Mon, 06 May 2024 07:08:09 GMT", 200, true},
			{"GET", "If-Match: \"1\"", 412, false},
			{"GET", "Range: bytes=0-0", 206, true},
			{"GET", "Range: bytes=0-0,2-2", 206, false},
			{"GET", "Range: bytes=99-", 416, false},
			{"HEAD", "Range: bytes=0-0", 200, true},
			{"GET", "X-Unknown: 1", 200, true},
			{"GET", "X-Unknown:\t1 \r\nX-Unknown: 2\r\nAccept: a\r\nAccept: b\r\nTE: trailers", 200, true},
			{"GET", "X_Unknown: 1", 200, false},
			{"GET", "Connection: keep-alive", 200, true},
			{"POST", "Content-Length: 0", 200, false},
		} {
			fast, all := r.fast(), r.fast()+r.slow()
			c.write(request(q.method, "/hot", q.header))
			resp, body := c.answer(q.method)
			servertest.Eventually(t, "the answer is counted", func() bool { return r.fast()+r.slow() == all+1 })
			if resp.StatusCode != q.status || (r.fast() > fast) != q.fast {
				t.Errorf("%s with %s: %s, by the lane %t; want %d, %t", q.method, q.header, resp.Status, r.fast() > fast, q.status, q.fast)
			}
			if (len(body) > 0) != (q.method != "HEAD" && q.status < 300) {
				t.Errorf("%s with %s: %d bytes of body", q.method, q.header, len(body))
			}
			if resp.Header.Get("Server") != lane.ServerName || resp.Header.Get("Date") == "" || resp.Close {
				t.Errorf("%s with %s: Server %q, Date %q, close %t", q.method, q.header, resp.Header.Get("Server"), resp.Header.Get("Date"), resp.Close)
			}
		}
	})
}

func TestHTTP10IsNeverHot(t *testing.T) {
	r := start(t, plan{})
	r.teach(t, "tcp", "/hot")
	before := r.fast()
	for _, connection := range []string{"", "Connection: keep-alive\r\n"} {
		c := r.dial(t, "tcp")
		c.write("GET /hot HTTP/1.0\r\nHost: a.example\r\n" + connection + "\r\n")
		if resp, body := c.answer("GET"); resp.StatusCode != 200 || body != smallBody || resp.Close == (connection != "") {
			t.Errorf("%q: %s, close %t, %q", connection, resp.Status, resp.Close, body)
		}
	}
	if got := r.fast() - before; got != 0 {
		t.Errorf("the lane gave %d answers", got)
	}
}

// What a client sent together with the request must reach who hijacks.
func TestHijackGetsAllBytes(t *testing.T) {
	const word = "twelve bytes"
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d := r.Header.Get("X-Deadline"); d != "" {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Hour))
		}
		nc, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		got := make([]byte, 2*len(word))
		if _, err := io.ReadFull(brw, got); err != nil {
			t.Errorf("read after the hijack: %v, %q", err, got)
		}
		fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\n\r\n%s", got)
	})
	r := start(t, plan{handler: h})
	overAll(t, func(t *testing.T, transport string) {
		for name, headers := range map[string][]string{
			"upgrade":  {"Upgrade: x", "Connection: Upgrade"},
			"plain":    {"DNT: 1"},
			"deadline": {"X-Deadline: 1"},
			"body":     {"Content-Length: 3"},
		} {
			for _, together := range []int{0, 1, len(word), 2 * len(word)} {
				c := r.dial(t, transport)
				text := word + word
				if name == "body" {
					c.write(request("GET", "/", headers...) + "xyz" + text[:together])
					text, together = ("xyz" + text)[:2*len(word)], together+3 // the body was not read: it comes first
				} else {
					c.write(request("GET", "/", headers...) + text[:together])
				}
				if len(text) > together {
					c.write(text[together:])
				}
				if _, err := c.br.ReadString('\n'); err != nil {
					t.Fatalf("%s, %d bytes together: %v", name, together, err)
				}
				got, _ := io.ReadAll(c.br)
				if !strings.HasSuffix(string(got), text) {
					t.Errorf("%s, %d bytes together: %q, want %q", name, together, got, text)
				}
			}
		}
	})
}

// Files reach sendfile over TCP and UNIX sockets, through every usual way to
// write one, and are counted; over TLS they are copied.
func TestSendfile(t *testing.T) {
	const size, start0 = 1 << 20, 1000
	body := strings.Repeat("0123456789abcdef", size/16)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	hot := filePage(t, body)
	with := func(f func(w http.ResponseWriter, r *http.Request, file *os.File)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			file, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			f(w, r, file)
		}
	}
	position := func(file *os.File, want int64) {
		if at, err := file.Seek(0, io.SeekCurrent); at != want || err != nil {
			t.Errorf("afterwards the file stands at %d, want %d, %v", at, want, err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/content", with(func(w http.ResponseWriter, r *http.Request, file *os.File) {
		http.ServeContent(w, r, "x.bin", lastChange, file)
	}))
	mux.HandleFunc("/copy", with(func(w http.ResponseWriter, _ *http.Request, file *os.File) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if n, err := io.Copy(w, file); n != size || err != nil {
			t.Errorf("io.Copy: %d, %v", n, err)
		}
		position(file, size)
	}))
	mux.HandleFunc("/copyn", with(func(w http.ResponseWriter, _ *http.Request, file *os.File) {
		w.Header().Set("Content-Length", fmt.Sprint(size-2*start0))
		_, _ = file.Seek(start0, io.SeekStart)
		if n, err := io.CopyN(w, file, size-2*start0); n != size-2*start0 || err != nil {
			t.Errorf("io.CopyN: %d, %v", n, err)
		}
		position(file, size-start0)
	}))
	mux.HandleFunc("/section", func(w http.ResponseWriter, r *http.Request) { send.Serve(w, r, hot) })
	mux.HandleFunc("/hot", offering(hot, lane.Rule{}))
	overAll(t, func(t *testing.T, transport string) {
		r := start(t, plan{handler: mux}) // the counters of an earlier transport may still move
		r.teach(t, transport, "/hot")
		servertest.Eventually(t, "the first answer is counted", func() bool { return r.slow() == 1 })
		c := r.dial(t, transport)
		for path, want := range map[string]string{
			"/content": body, "/copy": body, "/copyn": body[start0 : size-start0], "/section": body, "/hot": body,
		} {
			kernel, copied := r.meters.Sent.Sendfile.Load(), r.meters.Sent.Copied.Load()
			if got := c.get(path); got != want {
				t.Errorf("%s: %d bytes, want %d, or others", path, len(got), len(want))
			}
			// The counters follow the last byte.
			const first = 1024 // net/http looks at the first bytes of some
			sent := func(now, before uint64) int { return int(now - before) }
			servertest.Eventually(t, path+" is counted as it should be", func() bool {
				byKernel, byCopy := sent(r.meters.Sent.Sendfile.Load(), kernel), sent(r.meters.Sent.Copied.Load(), copied)
				if transport == "tls" {
					return byKernel == 0 && byCopy >= len(want)
				}
				// More is what an earlier answer is counted late.
				return byKernel >= len(want)-first && byCopy <= 2*first
			})
		}
		c.write(request("GET", "/content", "Range: bytes=100000-299999"))
		if resp, got := c.answer("GET"); resp.StatusCode != 206 || got != body[100000:300000] {
			t.Errorf("range: %s, %d bytes", resp.Status, len(got))
		}
	})
}

// A file that shrinks while it is sent ends the connection: nobody must take
// the rest of the stream for its content, or the part for the whole.
func TestShrinkingFile(t *testing.T) {
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "file")
	full := bytes.Repeat([]byte("x"), size)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		shared := send.NewFile(file)
		defer shared.Release()
		a := page(string(full))
		a.Body, a.File = nil, shared
		if r.URL.Path == "/hot" {
			lane.Offer(r, a, lane.Rule{})
			send.Serve(w, r, a)
			return
		}
		_ = os.Truncate(path, size/2)
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if r.URL.Path == "/copy" {
			_, _ = io.CopyN(w, file, size)
			return
		}
		send.Serve(w, r, a)
	})
	r := start(t, plan{handler: h})
	overAll(t, func(t *testing.T, transport string) {
		for _, page := range []string{"/hot", "/copy", "/serve"} {
			if err := os.WriteFile(path, full, 0o600); err != nil {
				t.Fatal(err)
			}
			c := r.dial(t, transport)
			if page == "/hot" && len(c.get(page)) != size {
				t.Fatal("the whole file is not there")
			}
			_ = os.Truncate(path, size/2)
			c.write(request("GET", page) + request("GET", page))
			_, body, err := c.tryAnswer("GET")
			if err == nil || len(body) > size/2 {
				t.Errorf("%s: %d bytes, error %v; want at most %d and an error", page, len(body), err, size/2)
			}
		}
	})
}
