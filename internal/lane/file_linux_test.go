package lane

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/send"
)

const fileRequest = "GET /file HTTP/1.1\r\nHost: a\r\n\r\n"

// fileAnswer makes "/file" hot, as a file.
func (b *bench) fileAnswer(t *testing.T, body string) *send.File {
	t.Helper()
	return b.namedFileAnswer(t, filepath.Join(t.TempDir(), "file"), body)
}

func (b *bench) namedFileAnswer(t *testing.T, name, body string) *send.File {
	t.Helper()
	if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	file := send.NewFile(f)
	t.Cleanup(file.Release)
	a := &send.Answer{Header: http.Header{"Content-Length": {strconv.Itoa(len(body))}}, File: file, Size: int64(len(body))}
	b.lane.table.put(key{1, "/file", false}, demands{}, variant{response: newResponse(a, Rule{}, b.meters.Job("test"))})
	return file
}

// readBody reads an answer with a body of n bytes and returns the body.
func readBody(t *testing.T, client net.Conn, n int) string {
	t.Helper()
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		m, err := client.Read(buf)
		got = append(got, buf[:m]...)
		if head, body, found := strings.Cut(string(got), "\r\n\r\n"); found && len(body) >= n {
			if !strings.HasPrefix(head, "HTTP/1.1 200 ") || len(body) > n {
				t.Fatalf("%q and %d bytes", head, len(body))
			}
			return body
		}
		if err != nil {
			t.Fatalf("%v after %d bytes", err, len(got))
		}
	}
}

// A file that is in the system's memory is sent by the loop: the connection
// stays on its loop, whether the file was sent a moment ago or never.
func TestOwnedFile(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	body := strings.Repeat("0123456789", 3000)
	file := b.fileAnswer(t, body)
	if !file.InMemory(0, int64(len(body))) {
		t.Skip("the file system of the temporary folder does not say what is in memory")
	}
	client, left, _ := b.owned(t)
	for range 3 {
		if _, err := io.WriteString(client, fileRequest); err != nil {
			t.Fatal(err)
		}
		if got := readBody(t, client, len(body)); got != body {
			t.Fatal("another body")
		}
		ask(t, client, hotRequest, "hello\n") // which is answered after the file was noted as sent
		if !file.Warm(time.Now().Unix()) {
			t.Error("that the file was sent is not known")
		}
	}
	select {
	case <-left:
		t.Error("the connection has left its loop for a file that is in memory")
	default:
	}
}

// A connection leaves its loop with a file that is not in memory, and with what
// was sent of it before.
func TestOwnedFileThatIsCold(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	name := filepath.Join(t.TempDir(), "file")
	body := strings.Repeat("0123456789abcdef", 4*bytesPerEvent/16)
	file := b.namedFileAnswer(t, name, body)
	if !file.InMemory(0, int64(len(body))) {
		t.Skip("the file system of the temporary folder does not say what is in memory")
	}
	client, left, _ := b.owned(t)
	if _, err := io.WriteString(client, fileRequest); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(client, first); err != nil { // the loop has begun
		t.Fatal(err)
	}
	dropFromMemory(t, name)
	if file.InMemory(0, int64(len(body))) {
		t.Skip("the system keeps the file in memory")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := <-left
		c.Serve()
	}()
	_ = client.(*net.UnixConn).CloseWrite()
	got, err := io.ReadAll(client)
	if err != nil || !strings.HasSuffix(string(got), "\r\n\r\n"+body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	<-done
	if sent := b.meters.Sent.Sendfile.Load(); sent != uint64(len(body)) {
		t.Errorf("%d bytes counted of %d", sent, len(body))
	}
}

// Several answers that came together, with files among them, keep their order.
func TestOwnedFilePipelined(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	b.fileAnswer(t, "file\n").WasSent(time.Now().Add(time.Hour).Unix())
	client, _, _ := b.owned(t)
	if _, err := io.WriteString(client, hotRequest+fileRequest+hotRequest+hotRequest); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 4096)
	for strings.Count(string(got), "HTTP/1.1 200 ") < 4 || !strings.HasSuffix(string(got), "hello\n") {
		n, err := client.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, buf[:n]...)
	}
	parts := strings.Split(string(got), "HTTP/1.1 200 ")
	for i, want := range []string{"", "hello\n", "file\n", "hello\n", "hello\n"} {
		if !strings.HasSuffix(parts[i], want) {
			t.Errorf("answer %d is %q, want %q", i, parts[i], want)
		}
	}
}

// dropFromMemory asks the system to forget what it holds of a file.
func dropFromMemory(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // what is not on the disk is never dropped
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// A client that takes only a part of a file gets the rest when it reads on, and
// the answers behind it; its connection needs no goroutine for that.
func TestOwnedFileReadLate(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	body := strings.Repeat("0123456789abcdef", 3*bytesPerEvent/16)
	if file := b.fileAnswer(t, body); !file.InMemory(0, int64(len(body))) {
		t.Skip("the file system of the temporary folder does not say what is in memory")
	}
	client, left, gone := b.owned(t)
	if _, err := io.WriteString(client, strings.Repeat(fileRequest, 3)+hotRequest); err != nil {
		t.Fatal(err)
	}
	_ = client.(*net.UnixConn).CloseWrite()
	got, err := io.ReadAll(client)
	if n := strings.Count(string(got), body); err != nil || n != 3 || !strings.HasSuffix(string(got), "hello\n") {
		t.Errorf("%d whole bodies, %v", n, err)
	}
	<-gone
	if len(left) != 0 {
		t.Error("the connection has left its loop")
	}
	if sent := b.meters.Sent.Sendfile.Load(); sent != uint64(3*len(body)) {
		t.Errorf("%d bytes counted of %d", sent, 3*len(body))
	}
}

// A client that takes nothing of a file is cut off when the time to write is
// over, one that takes some of it is not.
func TestOwnedFileStalls(t *testing.T) {
	b := newBench(t, Settings{Header: time.Hour, Body: time.Hour, Write: 40 * time.Millisecond, Idle: time.Hour})
	defer b.lane.Close()
	body := strings.Repeat("0123456789abcdef", 4*bytesPerEvent/16)
	file := b.fileAnswer(t, body)
	if !file.InMemory(0, int64(len(body))) {
		t.Skip("the file system of the temporary folder does not say what is in memory")
	}
	client, left, gone := b.owned(t)
	if _, err := io.WriteString(client, fileRequest); err != nil {
		t.Fatal(err)
	}
	<-gone
	if len(left) != 0 {
		t.Error("the connection has left its loop")
	}
	if !file.Retain() {
		t.Fatal("the file is closed")
	}
	file.Release()
}

// A file that has become shorter ends the connection.
func TestOwnedFileShrinks(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	a := &send.Answer{Header: http.Header{"Content-Length": {"100"}}, File: b.fileAnswer(t, "short"), Size: 100}
	a.File.WasSent(time.Now().Add(time.Hour).Unix())
	b.lane.table.put(key{1, "/long", false}, demands{}, variant{response: newResponse(a, Rule{}, b.meters.Job("test"))})
	client, left, _ := b.owned(t)
	if _, err := io.WriteString(client, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c := <-left
	go c.Serve()
	if got, err := io.ReadAll(client); err != nil || !strings.HasSuffix(string(got), "\r\n\r\nshort") {
		t.Errorf("%q, %v", got, err)
	}
}
