package php

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	"millrace/internal/lane"
	"millrace/internal/wire/message"
)

// answers plays php-fpm at a socket without allocating: to each request it gives the same
// answer.
func answers(b *testing.B, body int) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		b.Fatal(err)
	}
	if err := syscall.Listen(fd, 64); err != nil {
		b.Fatal(err)
	}
	text := "X-Powered-By: PHP/8.2\r\nSet-Cookie: session=0123456789; path=/\r\nCache-Control: no-store\r\nContent-Type: text/html; charset=UTF-8\r\n\r\n" + string(make([]byte, body))
	said := append([]byte{1, 6, 0, 1, byte(len(text) >> 8), byte(len(text)), 0, 0}, text...)
	said = append(said, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	done := make(chan struct{})
	b.Cleanup(func() { _ = syscall.Shutdown(fd, syscall.SHUT_RDWR); <-done; _ = syscall.Close(fd) })
	go func() { // ends with the socket
		defer close(done)
		var asked [8 << 10]byte
		for {
			one, _, err := syscall.Accept(fd)
			if err != nil {
				return
			}
			_, _ = syscall.Read(one, asked[:])
			_, _ = syscall.Write(one, said)
			_, _ = syscall.Read(one, asked[:]) // the end
			_ = syscall.Close(one)
		}
	}()
	return path
}

func benchHandler(b *testing.B) *Handler {
	b.Helper()
	dir := folder(b, "index.php")
	h, err := Open(Options{To: []string{answers(b, 2000)}}, Deps{Files: http.NotFoundHandler(), Static: Static{Root: dir, Hides: func(string) bool { return false }}, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	return h
}

// fields are those that a browser sends.
const fields = "Host: a.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: text/html,application/xhtml+xml\r\nAccept-Language: en\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nCookie: session=0123456789; theme=dark\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nPriority: u=0, i\r\n\r\n"

// BenchmarkLoop is a request as an event loop forwards it.
func BenchmarkLoop(b *testing.B) {
	h := benchHandler(b)
	client := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1234"))
	var head message.Request
	if !head.Parse("GET /a.php?a=b HTTP/1.1\r\n" + fields) {
		b.Fatal("the request is not plain")
	}
	q := lane.ForwardRequest{Head: &head, Client: client, Local: client}
	out, buf := make([]byte, 16<<10), make([]byte, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		h.seen.note("/a.php", target{script: "index.php"}) // which holds for a second
		q.Out = out[:0]
		x := h.Pass(&q)
		if x == nil {
			b.Fatal("it was not sent")
		}
		var r lane.Reply
		for {
			fd, _, _ := x.Line(nil)
			wait(b, fd)
			if p := x.Take(buf, &r); p == lane.Complete {
				break
			} else if p == lane.NeedsHandler {
				b.Fatal("it is for the handler")
			}
		}
		if r.Status != 200 || len(r.Body) != 2000 {
			b.Fatal(r.Status, len(r.Body))
		}
		x.Sent(nil, &r)
	}
}

// wait waits until there is something to read.
func wait(b *testing.B, fd int) {
	var set syscall.FdSet
	set.Bits[fd/64] = 1 << (fd % 64)
	if _, err := syscall.Select(fd+1, &set, nil, nil, nil); err != nil {
		b.Fatal(err)
	}
}

// silent is a ResponseWriter of a client that nobody looks at.
type silent struct{ header http.Header }

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) Write(p []byte) (int, error) { return len(p), nil }
func (s *silent) WriteHeader(int)             {}

// BenchmarkHandler is one by a goroutine.
func BenchmarkHandler(b *testing.B) {
	h := benchHandler(b)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/a.php?a=b", nil)
	r.Header = http.Header{
		"User-Agent": {"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}, "Accept": {"text/html,application/xhtml+xml"}, "Accept-Language": {"en"},
		"Accept-Encoding": {"gzip, deflate, br, zstd"}, "Cookie": {"session=0123456789; theme=dark"}, "Sec-Fetch-Dest": {"document"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Site": {"none"}, "Priority": {"u=0, i"},
	}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(&silent{http.Header{}}, r)
	}
}
