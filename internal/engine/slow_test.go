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
// no place at the upstream, by every protocol.
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
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /: {proxy: {to: %q, concurrency: 4, queue_timeout: 20s}}\n", up.URL), func(w *way) {
		good := func(after string) {
			for range 20 {
				if status, _, _ := w.visit("/", anything{}); status != http.StatusOK {
					w.Fatalf("a good client gets %d after %s", status, after)
				}
			}
		}
		for range slowClients {
			w.upload()
		}
		good("slow uploads")
		for range slowClients {
			w.download()
		}
		for range slowClients {
			if !<-sent {
				w.Error("the upstream could not send its answer")
			}
		}
		good("slow downloads")
	})
}

// upload begins one that does not end before the test.
func (w *way) upload() {
	w.Helper()
	if w.http1() {
		w.begin("POST /upload HTTP/1.1\r\nHost: " + visited + "\r\nContent-Length: 1000\r\n\r\nslow")
		return
	}
	body, begun := io.Pipe()
	w.Cleanup(func() { begun.Close() })
	go func() { _, _ = begun.Write([]byte("slow")) }() // ends with the pipe
	go func() {
		if res, err := w.client.Post(w.base+"/upload", "text/plain", body); err == nil {
			res.Body.Close()
		}
	}()
}

// download asks for a large answer, and reads none of it before the test ends.
func (w *way) download() {
	w.Helper()
	if w.http1() {
		w.begin("GET /large HTTP/1.1\r\nHost: " + visited + "\r\n\r\n")
		return
	}
	res, err := w.another().client.Get(w.base + "/large") // a QUIC connection has one window for all that is not read
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { res.Body.Close() })
}

func (w *way) begin(request string) {
	w.Helper()
	nc := w.dial()
	if _, err := io.WriteString(nc, request); err != nil {
		w.Fatal(err)
	}
}
