package download

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// payload is longer than the buffer, and no multiple of it.
func payload() []byte { return bytes.Repeat([]byte("0123456789abcdef!"), 150_000) }

func TestRunReadsEachBody(t *testing.T) {
	body := payload()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.Write(body)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := Run(conn, Request{Host: "h", Path: "/", Size: int64(len(body)), Times: 3, Checksum: true})
	if err != nil {
		t.Fatal(err)
	}
	want := crc32.Checksum(bytes.Repeat(body, 3), crc32.MakeTable(crc32.Castagnoli))
	if got.Bytes != 3*int64(len(body)) || got.CRC != want || got.Duration <= 0 {
		t.Errorf("Run = %+v, want %d bytes with the sum %d", got, 3*len(body), want)
	}
}

func TestRunRefuses(t *testing.T) {
	for name, answer := range map[string]string{
		"another status":       "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
		"another length":       "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell",
		"no length":            "HTTP/1.1 200 OK\r\n\r\nhello",
		"a body cut short":     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
		"bytes behind":         "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!",
		"a header cut short":   "HTTP/1.1 200 OK\r\nContent-Le",
		"a header with no end": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", headerLimit),
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() { // ends with the pipe
				io.ReadFull(theirs, make([]byte, len("GET /f HTTP/1.1\r\nHost: h\r\n\r\n")))
				io.WriteString(theirs, answer)
				theirs.Close()
			}()
			if got, err := Run(ours, Request{Host: "h", Path: "/f", Size: 5, Times: 1}); err == nil {
				t.Errorf("Run = %+v, want an error", got)
			}
		})
	}
}
