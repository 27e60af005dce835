package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// slowClients is more than the places that the upstream of TestSlowClients has.
const slowClients = 12

// TestSlowClients: uploads that never end and downloads that nobody reads hold
// no place at the upstream, over HTTP/1.1 and HTTP/2.
func TestSlowClients(t *testing.T) {
	large := make([]byte, 20<<20)
	sent := make(chan bool, slowClients)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, err := w.Write(large)
			sent <- err == nil
		}
	}))
	defer up.Close()
	over(t, fmt.Sprintf("    /: {proxy: {to: %q, concurrency: 4, queue_timeout: 20s}}\n", up.URL), func(t *testing.T, v *visitors) {
		good := func(after string) {
			for range 20 {
				if status, _, _ := v.send("/", anything{}); status != http.StatusOK {
					t.Fatalf("a good client gets %d after %s", status, after)
				}
			}
		}
		for range slowClients {
			v.upload(t)
		}
		good("slow uploads")
		for range slowClients {
			v.download(t)
		}
		for range slowClients {
			if !<-sent {
				t.Error("the upstream could not send its answer")
			}
		}
		good("slow downloads")
	})
}

// upload begins one that does not end before the test.
func (v *visitors) upload(t *testing.T) {
	t.Helper()
	if v.h2 == nil {
		v.begin(t, "POST /upload HTTP/1.1\r\nHost: "+visited+"\r\nContent-Length: 1000\r\n\r\nslow")
		return
	}
	body, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	go func() { _, _ = w.Write([]byte("slow")) }() // ends with the pipe
	go func() {
		if res, err := v.h2.Post(v.server.Addrs()[1]+"/upload", "text/plain", body); err == nil {
			res.Body.Close()
		}
	}()
}

// download asks for a large answer, and reads none of it before the test ends.
func (v *visitors) download(t *testing.T) {
	t.Helper()
	if v.h2 == nil {
		v.begin(t, "GET /large HTTP/1.1\r\nHost: "+visited+"\r\n\r\n")
		return
	}
	res, err := v.h2.Get(v.server.Addrs()[1] + "/large")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
}

func (v *visitors) begin(t *testing.T, request string) {
	t.Helper()
	nc := dial(t, v.server.Addrs()[0])
	if _, err := io.WriteString(nc, request); err != nil {
		t.Fatal(err)
	}
}
