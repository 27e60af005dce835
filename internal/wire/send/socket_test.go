//go:build linux

package send

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// overSockets runs a test on both ends of a TCP and a UNIX connection.
func overSockets(t *testing.T, f func(t *testing.T, s *Socket, nc, peer net.Conn, stalls *atomic.Int64)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = filepath.Join(t.TempDir(), "s")
			}
			ln, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			peer, err := net.Dial(network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			nc, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			for _, c := range []net.Conn{nc, peer} {
				_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // only a failing test gets there
			}
			var stalls atomic.Int64
			f(t, NewSocket(nc, func() { stalls.Add(1) }), nc, peer, &stalls)
		})
	}
}

func TestSocketOfOtherConnections(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if NewSocket(a, nil) != nil {
		t.Error("a pipe has a socket")
	}
	if _, ok := Queued(a); ok {
		t.Error("a pipe tells what is queued")
	}
}

func TestSocketReads(t *testing.T) {
	overSockets(t, func(t *testing.T, s *Socket, nc, peer net.Conn, _ *atomic.Int64) {
		buf := make([]byte, 8)
		if n, err := s.Read(nil); n != 0 || err != nil {
			t.Errorf("into nothing: %d, %v", n, err)
		}
		for _, text := range []string{"a", "12345678"} {
			go func() { _, _ = io.WriteString(peer, text) }()
			if n, err := s.Read(buf); string(buf[:n]) != text || err != nil {
				t.Errorf("%q, %v", buf[:n], err)
			}
		}
		_ = nc.SetReadDeadline(time.Now().Add(-time.Second))
		if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("past the deadline: %v", err)
		}
		_ = nc.SetReadDeadline(time.Time{})
		_ = peer.Close()
		for range 2 {
			if n, err := s.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %d, %v", n, err)
			}
		}
		_ = nc.Close()
		if _, err := s.Read(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Quiet takes no byte, and tells deadline, end and close apart. A peer that sends no
// more has not ended: the system is to find out when it has.
func TestSocketQuiet(t *testing.T) {
	overSockets(t, func(t *testing.T, s *Socket, nc, peer net.Conn, _ *atomic.Int64) {
		quiet := make(chan error, 1)
		go func() { quiet <- s.AwaitGone() }()
		for range 3 {
			_, _ = io.WriteString(peer, "x")
		}
		select {
		case err := <-quiet:
			t.Fatalf("bytes ended the wait: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		_ = nc.SetReadDeadline(time.Unix(1, 0))
		if err := <-quiet; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("past the deadline: %v", err)
		}
		_ = nc.SetReadDeadline(time.Time{})
		buf := make([]byte, 3)
		if _, err := io.ReadFull(readerFunc(s.Read), buf); string(buf) != "xxx" || err != nil {
			t.Errorf("afterwards %q is there, %v", buf, err)
		}
		go func() { quiet <- s.AwaitGone() }()
		_ = peer.(interface{ CloseWrite() error }).CloseWrite()
		select {
		case err := <-quiet:
			t.Fatalf("half a close ended the wait: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		if tcp, ok := peer.(*net.TCPConn); ok {
			_ = RawConn(nc).Control(func(fd uintptr) {
				if n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT); n != probesLost || err != nil {
					t.Errorf("probes that may be lost: %v, %v", n, err)
				}
			})
			_ = tcp.SetLinger(0) // otherwise it takes a minute
		}
		_ = peer.Close()
		if err := <-quiet; !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		_ = nc.Close()
		if err := s.AwaitGone(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Whatever the sizes, every byte arrives once and in order, and a peer that
// does not keep up is told of.
func TestSocketWrites(t *testing.T) {
	overSockets(t, func(t *testing.T, s *Socket, _, peer net.Conn, stalls *atomic.Int64) {
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB: more than any buffer
		for _, c := range []struct{ head, body []byte }{
			{nil, nil},
			{[]byte("head"), nil},
			{nil, []byte("body")},
			{[]byte("head"), []byte("body")},
			{[]byte("head"), big},
			{big, []byte("body")},
			{big, big},
		} {
			want := append(bytes.Clone(c.head), c.body...)
			got := make([]byte, len(want))
			done := make(chan error, 1)
			before := stalls.Load()
			go func() {
				for end := time.Now().Add(20 * time.Second); len(want) > len(big) && stalls.Load() == before && time.Now().Before(end); {
					time.Sleep(time.Millisecond) // until the writer stalls
				}
				_, err := io.ReadFull(peer, got)
				done <- err
			}()
			if n, err := s.Write(c.head, c.body); n != int64(len(want)) || err != nil {
				t.Fatalf("%d and %d bytes: %d, %v", len(c.head), len(c.body), n, err)
			}
			if err := <-done; err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d and %d bytes arrive as others, %v", len(c.head), len(c.body), err)
			}
			if len(want) > len(big) && stalls.Load() == before {
				t.Error("nobody was told of the stall")
			}
		}
	})
}

func TestSocketWriteFails(t *testing.T) {
	overSockets(t, func(t *testing.T, s *Socket, nc, peer net.Conn, stalls *atomic.Int64) {
		big := make([]byte, 64<<20)
		_ = nc.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := s.Write(big, big)
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == int64(2*len(big)) || stalls.Load() != 1 {
			t.Errorf("nobody reads: %d bytes, %v, %d stalls", n, err, stalls.Load())
		}
		if queued, ok := Queued(nc); !ok || queued == 0 {
			t.Errorf("%d bytes are queued, known %t", queued, ok)
		}
		_ = nc.SetWriteDeadline(time.Time{})
		_ = peer.Close()
		for range 2 { // the first may only find out
			_, err = s.Write(big, nil)
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the peer is gone: %v", err)
		}
	})
}

func TestSocketSendsFiles(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	file := NewFile(f)
	defer file.Release()
	size := int64(len(content))
	overSockets(t, func(t *testing.T, s *Socket, _, peer net.Conn, _ *atomic.Int64) {
		for _, c := range []struct {
			head   string
			off, n int64
			short  bool
		}{
			{"", 0, size, false},
			{"head", 0, size, false},
			{"head", 1, 1, false},
			{"head", size - 5, 5, false},
			{"head", 7, 0, false},
			{"", 0, 0, false},
			{"head", size - 5, 6, true},
			{"head", size + 1, 1, true},
		} {
			there := max(min(c.n, size-c.off), 0)
			want := append([]byte(c.head), content[min(c.off, size):min(c.off, size)+there]...)
			got := make([]byte, len(want))
			done := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(peer, got)
				done <- err
			}()
			sec := file.Section(c.off, c.n)
			nHead, nFile, err := s.SendFile([]byte(c.head), sec)
			if nHead != int64(len(c.head)) || nFile != there || sec.Remaining() != c.n-there || (err != nil) != c.short {
				t.Errorf("%+v: %d, %d, %v; %d remain", c, nHead, nFile, err, sec.Remaining())
			}
			if c.short && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%+v: %v", c, err)
			}
			if err := <-done; err != nil || !bytes.Equal(got, want) {
				t.Errorf("%+v: others bytes arrive, %v", c, err)
			}
		}
	})
}

// copied is content of which the kernel knows nothing.
type copied struct {
	io.ReaderAt
	syscall.Conn
}

func TestSocketCopiesWhatTheKernelCannotSend(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	overSockets(t, func(t *testing.T, s *Socket, nc, peer net.Conn, _ *atomic.Int64) {
		conn, ok := nc.(syscall.Conn)
		if !ok {
			t.Fatal("no descriptor")
		}
		src := &copied{bytes.NewReader(content), conn} // a socket is not a file to sendfile
		got := make(chan []byte)
		go func() {
			b := make([]byte, 4+len(content)-10)
			_, _ = io.ReadFull(peer, b)
			got <- b
		}()
		sec := &Section{at: src, desc: src, off: 10, n: int64(len(content)) - 10}
		nHead, nFile, err := s.SendFile([]byte("head"), sec)
		if nHead != 4 || nFile != int64(len(content))-10 || err != nil || sec.n != 0 {
			t.Errorf("%d, %d, %v, %d remain", nHead, nFile, err, sec.n)
		}
		if b := <-got; string(b) != "head"+string(content[10:]) {
			t.Error("other bytes arrive")
		}
	})
}

func TestSectionOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	shared := NewFile(f)
	defer shared.Release()
	limited := func(r io.Reader, n int64) *io.LimitedReader { return &io.LimitedReader{R: r, N: n} }
	for name, c := range map[string]struct {
		src    io.Reader
		off, n int64
		ok     bool
	}{
		"file":            {f, 3, 7, true},
		"part":            {limited(f, 4), 3, 4, true},
		"more than there": {limited(f, 99), 3, 7, true},
		"section":         {shared.Section(1, 5), 1, 5, true},
		"part of section": {limited(shared.Section(1, 5), 2), 1, 2, true},
		"no file":         {bytes.NewReader([]byte("x")), 0, 0, false},
		"part of none":    {limited(bytes.NewReader([]byte("x")), 1), 0, 0, false},
		"no descriptor":   {NewReaderAt(bytes.NewReader([]byte("x")), nil).Section(0, 1), 0, 0, false},
		"parts of parts":  {limited(limited(f, 4), 4), 0, 0, false},
	} {
		if _, err := f.Seek(3, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		sec, moved, ok := SectionOf(c.src)
		if ok != c.ok {
			t.Errorf("%s: %t", name, ok)
		}
		if !ok {
			continue
		}
		if sec.off != c.off || sec.n != c.n {
			t.Errorf("%s: %d bytes from %d", name, sec.n, sec.off)
		}
		// After two bytes were sent, a plain read goes on where it should.
		sec.off, sec.n = sec.off+2, sec.n-2
		moved(2)
		b, err := io.ReadAll(c.src)
		if want := "0123456789"[c.off+2 : c.off+c.n]; string(b) != want || err != nil {
			t.Errorf("%s: then comes %q, want %q, %v", name, b, want, err)
		}
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, _, ok := SectionOf(dir); ok {
		t.Error("a folder is taken for a file")
	}
	// The size of such files is not what is in them.
	if proc, err := os.Open("/proc/self/status"); err == nil {
		defer proc.Close()
		if sec, _, ok := SectionOf(proc); ok && sec.n == 0 {
			t.Error("a file of /proc is taken for empty")
		}
	}
}
