package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// TestBothAtOnce: a handler may read the body and write the answer in two
// goroutines, and both may have to wait for the client.
func TestBothAtOnce(t *testing.T) {
	big := strings.Repeat("0123456789", 30_000)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		var n int64
		var err error
		var read sync.WaitGroup
		read.Go(func() { n, err = io.Copy(io.Discard, r.Body) })
		put(w, big)
		read.Wait()
		fmt.Fprint(w, n, err)
	})
	r := start(t, plan{handler: h})
	overAll(t, func(t *testing.T, transport string) {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				c := r.dial(t, transport)
				for i := range 5 {
					c.write("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 200\r\n\r\n")
					time.Sleep(time.Duration(i%3) * time.Millisecond)
					c.write(strings.Repeat("b", 200))
					if resp, body := c.answer("POST"); resp.StatusCode != 200 || body != big+"200 <nil>" {
						t.Errorf("%s, %d bytes", resp.Status, len(body))
					}
				}
				_ = c.Close()
			})
		}
		all.Wait()
	})
}

// TestCutLeavesNumber: a connection that is cut while its handler runs does not
// end the watch of the one that has its descriptor's number next.
func TestCutLeavesNumber(t *testing.T) {
	t.Parallel() // it mostly waits
	begun, word := make(chan struct{}, 100), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/stays", func(w http.ResponseWriter, _ *http.Request) {
		put(w, strings.Repeat("0123456789", 1<<20)) // the client takes none of it, and is cut
		begun <- struct{}{}
		<-word
	})
	r := start(t, plan{handler: mux, limits: Options{WriteTimeout: 100 * time.Millisecond}})
	r.teach(t, "tcp", "/hot")
	const n = 20
	for range n {
		r.dial(t, "tcp").write(request("GET", "/stays"))
	}
	for range n {
		<-begun
	}
	var next []*client
	for range 3 * n { // some of them have a number of those
		c := r.dial(t, "tcp")
		c.get("/hot")
		next = append(next, c)
	}
	open := r.srv.lane.Open()
	close(word)
	servertest.Eventually(t, "the others are gone", func() bool { return r.srv.lane.Open() <= open-n })
	for i, c := range next {
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		c.write(request("GET", "/hot"))
		if _, _, err := c.tryAnswer("GET"); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}
