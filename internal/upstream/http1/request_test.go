package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/field"
)

// FuzzRequest: whatever the fields hold, one request goes out, or none.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "a.example", "X-A", "b", "/a%20b", "c=d")
	f.Add("POST", "[fe80::1%25eth0]:80", "Content-length", "5", "/", "")
	f.Add("G ET", "a\r\nX: y", "X\r\nY", "a\r\nb", "/", "")
	f.Add("PUT", "é.example", "transfer-Encoding", "chunked", "*", "")
	f.Fuzz(func(t *testing.T, method, host, name, value, path, query string) {
		if strings.ContainsFunc(path+query, func(r rune) bool { return r <= ' ' || r == 0x7f }) || !strings.HasPrefix(path, "/") {
			return // package upstream has looked
		}
		out := http1.Request{Method: method, Path: path, Query: query, Host: host, Fields: field.Lines{{Name: name, Value: value}}}
		b, err := out.Append(nil)
		if err != nil {
			if !errors.Is(err, http1.ErrRequest) {
				t.Errorf("error %v", err)
			}
			return
		}
		in := bufio.NewReader(bytes.NewReader(b))
		got, err := http.ReadRequest(in)
		if err != nil {
			return // a server refuses it, which harms nobody
		}
		want := method
		if want == "" {
			want = "GET"
		}
		if got.Method != want || got.ContentLength != 0 || len(got.TransferEncoding) > 0 {
			t.Errorf("%q became %s with a body of %d, %q", b, got.Method, got.ContentLength, got.TransferEncoding)
		}
		if left, _ := io.ReadAll(in); len(left) > 0 {
			t.Errorf("%q is more than one request: %q is left", b, left)
		}
		if len(got.Header) > 2 {
			t.Errorf("%q has %d fields", b, len(got.Header))
		}
	})
}

// TestRequest: what goes out, for every kind of body.
func TestRequest(t *testing.T) {
	fields := field.Lines{{Name: "X-A", Value: "1"}, {Name: "Content-Length", Value: "7"}, {Name: "host", Value: "x"}, {Name: "Transfer-Encoding", Value: "gzip"}, {Name: "User-Agent"}, {Name: "X-A", Value: " 2\t"}}
	for name, c := range map[string]struct {
		out  http1.Request
		want []string
	}{
		"GET":    {http1.Request{}, []string{"GET / HTTP/1.1"}},
		"POST":   {http1.Request{Method: "POST"}, []string{"POST / HTTP/1.1", "Content-Length: 0"}},
		"length": {http1.Request{Method: "PUT", Body: 5}, []string{"PUT / HTTP/1.1", "Content-Length: 5"}},
		"chunks": {
			http1.Request{Method: "DELETE", Body: -1, Trailer: http.Header{"B": nil, "A": nil}, Close: true},
			[]string{"DELETE / HTTP/1.1", "Connection: close", "Transfer-Encoding: chunked", "Trailer: A,B"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.out.Host, c.out.Path, c.out.Fields = "[fe80::1%eth0]:80", "/", fields
			b, err := c.out.Append(nil)
			got := strings.Split(strings.TrimSuffix(string(b), "\r\n\r\n"), "\r\n")
			want := append(c.want, "Host: [fe80::1]:80", "X-A: 1", "X-A: 2")
			slices.Sort(got[1:])
			slices.Sort(want[1:])
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
}

// TestChunk: net/http reads what we write.
func TestChunk(t *testing.T) {
	var wire []byte
	var want []byte
	for _, n := range []int{1, 15, 16, 255, 4096, 40000} {
		b := make([]byte, http1.ChunkRoom+n+2)
		for i := range n {
			b[http1.ChunkRoom+i] = byte('a' + i%26)
		}
		want = append(want, b[http1.ChunkRoom:http1.ChunkRoom+n]...)
		wire = append(wire, http1.Chunk(b, n)...)
	}
	wire, err := http1.AppendLastChunk(wire, http.Header{"X-Sum": {"1"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(wire))))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || !bytes.Equal(got, want) || r.Trailer.Get("X-Sum") != "1" {
		t.Errorf("%d bytes, %v, trailer %v", len(got), err, r.Trailer)
	}
	if _, err := http1.AppendLastChunk(nil, http.Header{"X": {"a\r\nb"}}); !errors.Is(err, http1.ErrRequest) {
		t.Errorf("error %v", err)
	}
}
