package engine_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// timeout is how long a test waits for what should be there at once.
const timeout = 2 * time.Second

// dripper is an application that sends the next piece of an answer only when its
// client has the one before.
type dripper struct{ next chan struct{} }

func newDripper() *dripper { return &dripper{make(chan struct{})} }

// wait waits until the client has what was sent.
func (d *dripper) wait() bool {
	select {
	case <-d.next:
		return true
	case <-time.After(2 * timeout):
		return false
	}
}

// go on tells the application that its client has what was sent.
func (d *dripper) goOn(w *way) {
	w.Helper()
	select {
	case d.next <- struct{}{}:
	case <-time.After(timeout):
		w.Fatal("the application does not wait")
	}
}

const drops = "abc"

// ServeHTTP answers a GET of a path that ends in what its answer is like.
func (d *dripper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain")
	h.Set("Cache-Control", "max-age=60")
	if strings.Contains(r.URL.Path, "/pass/") {
		h.Set("Cache-Control", "private")
	}
	flush := w.(http.Flusher).Flush
	var to io.Writer = w
	switch strings.TrimSuffix(filepath.Base(r.URL.Path), ".php") {
	case "length":
		h.Set("Content-Length", fmt.Sprint(len(drops)))
	case "gzip":
		h.Set("Content-Encoding", "gzip")
	case "events":
		h.Set("Content-Type", "text/event-stream")
	case "close":
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		fmt.Fprint(nc, "HTTP/1.0 200 OK\r\n")
		_ = h.Write(nc)
		fmt.Fprint(nc, "\r\n")
		to, flush = nc, func() {}
	}
	_, _ = io.WriteString(to, "") // or FastCGI's would wait for more
	flush()
	for i := range drops {
		if !d.wait() {
			return
		}
		_, _ = io.WriteString(to, drops[i:i+1])
		flush()
	}
	d.wait()
}

// drip asks for an answer by so many clients, and reads it piece by piece.
func (d *dripper) drip(w *way, method, target string, clients int, head ...string) {
	w.Helper()
	answers := make(chan *http.Response, clients)
	ask := func() {
		r, err := http.NewRequestWithContext(w.Context(), method, w.base+target, http.NoBody)
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(head); i += 2 {
			r.Header.Add(head[i], head[i+1])
		}
		if res, err := w.client.Do(r); err == nil { // or nobody waits any more
			answers <- res
		}
	}
	var all []*http.Response
	for range clients {
		go ask() // ends with its answer
		select {
		case res := <-answers:
			all = append(all, res)
			defer res.Body.Close()
		case <-time.After(timeout):
			w.Errorf("%s %s: the header is held back", method, target)
			for range len(drops) + 1 { // the application ends its answer
				d.goOn(w)
			}
			(<-answers).Body.Close()
			return
		}
	}
	for i := range drops {
		d.goOn(w)
		for _, res := range all {
			got := make(chan string, 1)
			go func() {
				var one [1]byte
				n, err := res.Body.Read(one[:])
				if n == 0 {
					got <- fmt.Sprint(err)
				}
				got <- string(one[:n])
			}()
			select {
			case piece := <-got:
				if piece != drops[i:i+1] {
					w.Fatalf("%s %s: %q, want %q", method, target, piece, drops[i:i+1])
				}
			case <-time.After(timeout):
				w.Fatalf("%s %s: byte %d is held back", method, target, i)
			}
		}
	}
	d.goOn(w)
	for _, res := range all {
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			w.Errorf("%s %s: %q, %v at the end", method, target, rest, err)
		}
	}
}

// overFastCGI has an application answer for the scripts of a folder, and returns that
// and its socket.
func overFastCGI(t *testing.T, serve func(net.Listener), scripts ...string) (dir, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fcgi") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	socket = filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); serve(ln) }() // the cleanup waits for it
	t.Cleanup(func() {
		_ = ln.Close()
		<-served
		_ = os.RemoveAll(dir)
	})
	return dir, socket
}

// TestNothingIsHeldBack: whatever an application has sent its client gets, however
// long the application takes for the rest.
func TestNothingIsHeldBack(t *testing.T) {
	d := newDripper()
	up := application(t, d.ServeHTTP)
	dir, socket := overFastCGI(t, func(ln net.Listener) { _ = fcgi.Serve(ln, d) }, "length.php", "chunks.php", "events.php", "gzip.php")
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /proxy/: {proxy: %[1]s}
    /stream/: {proxy: {to: %[1]s, stream: true}}
    /cache/: {cache: %[1]s}
    /php/: {static: {root: %[2]q}, php: %[3]q}
`, up, dir, socket), func(w *way) {
		for _, kind := range []string{"length", "chunks", "close", "events", "gzip"} {
			for _, job := range []string{"proxy", "stream"} {
				d.drip(w, "GET", "/"+job+"/"+kind, 1)
				d.drip(w, "POST", "/"+job+"/"+kind, 1)
			}
			unique := strings.ReplaceAll(w.Name(), "/", "-") // nothing of it is stored
			d.drip(w, "GET", "/cache/"+unique+"/"+kind, 1)
			if kind != "events" { // of which each client has its own
				d.drip(w, "GET", "/cache/"+unique+"-many/"+kind, 3)
			}
			for range 2 { // the second is known to be for one alone
				d.drip(w, "GET", "/cache/"+unique+"/pass/"+kind, 1)
			}
			d.drip(w, "GET", "/cache/"+kind, 1, "Cookie", "a=b", "Authorization", "x")
			d.drip(w, "POST", "/cache/"+kind, 1)
			if kind != "close" { // which FastCGI does not know
				for range 2 { // the event loop passes on the second
					d.drip(w, "GET", "/php/"+kind+".php", 1)
					d.drip(w, "POST", "/php/"+kind+".php", 1)
				}
			}
		}
	})
}
