package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// startBytes serves on a port of its own.
func startBytes(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := bytesServer()
	go func() { _ = s.Serve(l) }() // ends with the listener
	t.Cleanup(func() { _ = s.Shutdown() })
	return "http://" + l.Addr().String()
}

func TestBytes(t *testing.T) {
	at := startBytes(t)
	for _, c := range []struct {
		path   string
		status int
		bytes  int
		cached bool
	}{
		{"/501", 200, 501, false},
		{"/0", 200, 0, false},
		{"/cached/501?n=17", 200, 501, true},
		{"/32768", 200, 32768, false},
		{"/1000003", 200, 1000003, false},
		{"/x", 404, 9, false},
		{"/-1", 404, 9, false},
		{"/9999999999", 404, 9, false},
	} {
		res, err := http.Get(at + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.status || len(body) != c.bytes || res.ContentLength != int64(c.bytes) || (res.Header.Get("Cache-Control") != "") != c.cached {
			t.Errorf("%s: %s, %d bytes, %v, %v", c.path, res.Status, len(body), res.Header, err)
		}
		if want := strings.Repeat("0123456789abcdef", c.bytes/16+1)[:c.bytes]; c.status == 200 && string(body) != want {
			t.Errorf("%s: wrong bytes", c.path)
		}
	}
}

func TestPost(t *testing.T) {
	at := startBytes(t)
	res, err := http.Post(at+"/x", "text/plain", bytes.NewReader(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "01048576" {
		t.Errorf("%q, %v", body, err)
	}
}

// TestRead: the bytes are the same by the way that fasthttp does not take.
func TestRead(t *testing.T) {
	for _, n := range []int{1, 17, 100_003} {
		s := &stream{piece: bytes.Repeat([]byte("0123456789abcdef"), 64), left: n}
		got, err := io.ReadAll(struct{ io.Reader }{s})
		if want := strings.Repeat("0123456789abcdef", n/16+1)[:n]; err != nil || string(got) != want {
			t.Errorf("%d: %d bytes, %v", n, len(got), err)
		}
	}
}
