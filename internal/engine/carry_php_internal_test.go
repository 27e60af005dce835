package engine

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// records writes FastCGI as an application does, well or badly.
type records struct{ io.Writer }

// add writes a record with padding.
func (w records) add(kind byte, content string, padding int) {
	b := []byte{1, kind, 0, 1}
	b = binary.BigEndian.AppendUint16(b, uint16(len(content)))
	b = append(b, byte(padding), 0)
	_, _ = w.Write(append(append(b, content...), make([]byte, padding)...))
}

func (w records) end(status uint32, protocol byte) {
	w.add(3, string(append(binary.BigEndian.AppendUint32(nil, status), protocol, 0, 0, 0)), 0)
}

// scripts are what the application does, by the name of the script.
var scripts = map[string]func(w records, asked map[string]string, body string){
	"plain": func(w records, _ map[string]string, _ string) { w.add(6, page+"hello", 0); w.end(0, 0) },
	"echo":  func(w records, _ map[string]string, body string) { w.add(6, page+body, 3); w.end(0, 0) },
	"empty": func(w records, _ map[string]string, _ string) { w.add(6, page, 0); w.end(0, 0) },
	"status": func(w records, _ map[string]string, _ string) {
		w.add(6, "Status: 201 Made\r\n"+page+"x", 0)
		w.end(0, 0)
	},
	"fields": func(w records, _ map[string]string, _ string) {
		w.add(6, "Set-Cookie: a=1\r\nset-cookie: b=2\r\nX-A: b\r\nServer: me\r\nConnection: close\r\n"+page+"x", 0)
		w.end(0, 0)
	},
	"moved":   func(w records, _ map[string]string, _ string) { w.add(6, "Location: /a\r\n"+page, 0); w.end(0, 0) },
	"same":    func(w records, _ map[string]string, _ string) { w.add(6, "Status: 304\r\n"+page, 0); w.end(0, 0) },
	"none":    func(w records, _ map[string]string, _ string) { w.add(6, "Status: 204\r\n\r\n", 0); w.end(0, 0) },
	"untyped": func(w records, _ map[string]string, _ string) { w.add(6, "X: y\r\n\r\n<html>", 0); w.end(0, 0) },
	"lf": func(w records, _ map[string]string, _ string) {
		w.add(6, "Content-Type: text/x\n\nhello", 0)
		w.end(0, 0)
	},
	"lines": func(w records, _ map[string]string, _ string) { // an empty line as the client's ends in the body
		w.add(6, "Content-Type: text/x\n\none\r\n\r\ntwo", 0)
		w.end(0, 0)
	},
	"dated": func(w records, _ map[string]string, _ string) {
		w.add(6, "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"+page+"x", 0)
		w.end(0, 0)
	},
	"slow": func(w records, _ map[string]string, body string) {
		time.Sleep(250 * time.Millisecond)
		w.add(6, page+"late "+body, 0)
		w.end(0, 0)
	},
	"pieces": func(w records, _ map[string]string, _ string) {
		for _, c := range page + "hello" {
			w.add(6, string(c), int(c)%8)
		}
		w.add(6, "", 5)
		w.end(0, 0)
	},
	"pauses": func(w records, _ map[string]string, _ string) {
		for _, part := range []string{page[:9], page[9:] + "he", "llo"} {
			w.add(6, part, 1)
			time.Sleep(5 * time.Millisecond)
		}
		w.end(0, 0)
	},
	"large": func(w records, _ map[string]string, _ string) {
		w.add(6, page, 0)
		for range 10 {
			w.add(6, strings.Repeat("x", 30_000), 0)
		}
		w.end(0, 0)
	},
	"noisy": func(w records, _ map[string]string, _ string) {
		w.add(7, "a complaint", 0)
		w.add(6, page+"x", 0)
		for range 100 {
			w.add(7, strings.Repeat("flood ", 1000), 0)
		}
		w.end(0, 0)
	},
	"half":     func(w records, _ map[string]string, _ string) { w.add(6, "Content-Ty", 0) },
	"headless": func(w records, _ map[string]string, _ string) { w.add(6, "no head at all", 0); w.end(0, 0) },
	"endless": func(w records, _ map[string]string, _ string) {
		w.add(6, "A: "+strings.Repeat("a", 40_000), 0)
		w.end(0, 0)
	},
	"long": func(w records, _ map[string]string, _ string) {
		w.add(6, "Content-Length: 3\r\n"+page+"hello", 0)
		w.end(0, 0)
	},
	"short": func(w records, _ map[string]string, _ string) {
		w.add(6, "Content-Length: 30\r\n"+page+"hello", 0)
		w.end(0, 0)
	},
	"exact": func(w records, _ map[string]string, _ string) {
		w.add(6, "Content-Length: 5\r\n"+page+"hello", 0)
		w.end(0, 0)
	},
	"cut":    func(w records, _ map[string]string, _ string) { w.add(6, page+"hello", 0) },
	"silent": func(records, map[string]string, string) {},
	"fatal":  func(w records, _ map[string]string, _ string) { w.add(6, page+"x", 0); w.end(255, 0) },
	"full":   func(w records, _ map[string]string, _ string) { w.end(0, 2) },
	"alien": func(w records, _ map[string]string, _ string) {
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n\r\nhello")
	},
	"kind": func(w records, _ map[string]string, _ string) { w.add(11, "what is this", 0); w.end(0, 0) },
	"more": func(w records, _ map[string]string, _ string) { w.add(6, page+"x", 0); w.end(0, 0); w.add(6, "y", 0) },
}

const page = "Content-Type: text/html; charset=UTF-8\r\n\r\n"

// application is php-fpm's part.
type application struct {
	net.Listener
	connections atomic.Int64

	mu    sync.Mutex
	asked []string
}

func (a *application) serve() {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		nc, err := a.Accept()
		if err != nil {
			return
		}
		a.connections.Add(1)
		all.Go(func() {
			defer nc.Close()
			for in := bufio.NewReader(nc); a.answer(nc, in); {
			}
		})
	}
}

// answer answers a request, and reports whether the connection is for another one.
func (a *application) answer(nc net.Conn, in *bufio.Reader) (keeps bool) {
	asked, body := map[string]string{}, ""
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return false
		}
		content := make([]byte, binary.BigEndian.Uint16(head[4:]))
		if _, err := io.ReadFull(in, content); err != nil {
			return false
		}
		_, _ = in.Discard(int(head[6]))
		if head[1] == 1 {
			keeps = content[2]&1 != 0
		} else if head[1] == 4 {
			for p := content; len(p) > 0; {
				n, v := 0, 0
				for _, to := range []*int{&n, &v} {
					if *to = int(p[0]); p[0] < 128 {
						p = p[1:]
					} else {
						*to, p = int(binary.BigEndian.Uint32(p)&^(1<<31)), p[4:]
					}
				}
				asked[string(p[:n])] = string(p[n : n+v])
				p = p[n+v:]
			}
		} else if head[1] == 5 && len(content) == 0 {
			break
		} else if head[1] == 5 {
			body += string(content)
		}
	}
	var lines []string
	for name, value := range asked {
		if name != "REMOTE_PORT" && name != "SERVER_PORT" && name != "DOCUMENT_ROOT" && name != "PATH_TRANSLATED" && name != "SCRIPT_FILENAME" {
			lines = append(lines, name+"="+value)
		}
	}
	slices.Sort(lines)
	a.mu.Lock()
	a.asked = append(a.asked, fmt.Sprint(lines, body))
	a.mu.Unlock()
	name := strings.TrimSuffix(filepath.Base(asked["SCRIPT_FILENAME"]), ".php")
	scripts[name](records{nc}, asked, body)
	return keeps && !slices.Contains([]string{"half", "cut", "silent", "full", "alien", "kind", "more"}, name)
}

// phpServer is a server with a folder of these scripts.
func phpServer(t *testing.T, off bool, idle int) (*application, *Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fpm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name+".php"), []byte("<?php secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	app, served := &application{Listener: ln}, make(chan struct{})
	go func() { defer close(served); app.serve() }() // the cleanup waits for it
	t.Cleanup(func() { _ = ln.Close(); <-served })
	return app, running(t, fmt.Sprintf("admin: {listen: off}\nlog: {format: off}\nlisten: 127.0.0.1:0\nlane: {off: %v}\nsites:\n- routes:\n    /app/: {static: {root: %q}, php: {to: %q, params: {OWN: yes}, idle: %d}}\n", off, dir, filepath.Join(dir, "s"), idle))
}

// say is the answer to a request on a new connection, or how far it came.
func say(t *testing.T, srv *Server, request string) string {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(nc, request)
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: method})
	if err != nil {
		return incomplete
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return incomplete
	}
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length") // it says how soon the end came
	return fmt.Sprint(resp.Status, resp.Header, len(body), string(body[:min(len(body), 200)]))
}

// incomplete is an answer that breaks off. How much of it has gone out by then is a
// matter of time.
const incomplete = "no whole answer"

// TestCarriedToPHPAtOnce: everybody gets their own answer, and no place is lost,
// also where clients leave.
func TestCarriedToPHPAtOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, idle := range []int{0, 4} {
		t.Run(fmt.Sprint(idle, " idle"), func(t *testing.T) { carriedToPHPAtOnce(t, idle) })
	}
}

func carriedToPHPAtOnce(t *testing.T, idle int) {
	_, on := phpServer(t, false, idle)
	say(t, on, get("/app/echo.php"))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for range 10 {
				text := fmt.Sprintf("user %03d", i)
				if got := say(t, on, send("POST", "/app/echo.php", text)); !strings.HasSuffix(got, text) {
					t.Errorf("%s got %q", text, got)
				}
				nc, err := net.Dial("tcp", strings.TrimPrefix(on.Addrs()[0], "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(nc, get("/app/slow.php"))
				_ = nc.Close()
			}
		})
	}
	all.Wait()
	if got := say(t, on, send("POST", "/app/echo.php", "last")); !strings.HasSuffix(got, "last") {
		t.Errorf("at the end: %q", got)
	}
}

// TestCarriedToPHP: what the loops pass on to php-fpm reaches it, and its answer the
// client, as by the handler, whatever the application does wrong.
func TestCarriedToPHP(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, idle := range []int{0, 4} {
		t.Run(fmt.Sprint(idle, " idle"), func(t *testing.T) { carriedToPHP(t, idle) })
	}
}

func carriedToPHP(t *testing.T, idle int) {
	with, on := phpServer(t, false, idle)
	without, off := phpServer(t, true, 0)
	asked := uint64(0)
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if idle > 0 && (name == "silent" || name == "more") {
			continue // of a kept connection: silence is asked again on another, and what comes late behind an end may meet the next request
		}
		requests := []string{
			get("/app/"+name+".php", "Cookie: a=b; c=d", "X-Test: 1"),
			get("/app/" + name + ".php/info/x?q=1&r"),
			send("POST", "/app/"+name+".php?a", "some=thing", "Content-Type: application/x-www-form-urlencoded"),
			send("PUT", "/app/"+name+".php", ""),
			strings.Replace(get("/app/"+name+".php"), "GET", "HEAD", 1),
		}
		for _, request := range requests {
			want := say(t, off, request)
			first := say(t, on, request) // by the handler, which remembers the script
			asked++
			if got := say(t, on, request); got != want || first != want {
				t.Errorf("%s, %q:\nby a loop    %.1000q\nby a handler %.1000q\nby net/http  %.1000q", name, request, got, first, want)
			}
			if strings.Contains(want+first, "secret") {
				t.Errorf("%s, %q: the source is shown", name, request)
			}
		}
	}
	if n := on.server.Forwarded(); n < asked/2 { // all, but on a machine that is slow
		t.Errorf("the loops passed on %d of %d requests", n, asked)
	}
	if n := with.connections.Load(); idle > 0 && n > int64(2*asked)*2/3 {
		t.Errorf("%d connections for %d requests, of which most could leave theirs to the next", n, 2*asked)
	}
	with.mu.Lock()
	defer with.mu.Unlock()
	without.mu.Lock()
	defer without.mu.Unlock()
	for i, want := range without.asked { // twice by the loops' server
		for _, got := range with.asked[2*i : 2*i+2] {
			if got != want {
				t.Fatalf("%d. the application got\n%s\nand by net/http\n%s", i, got, want)
			}
		}
	}
}
