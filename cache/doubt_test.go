package cache

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestDoubt: bytes that came too late to be told from an answer are stored as one,
// and purged as soon as what comes behind shows what they were.
func TestDoubt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { late(c, n == 0) })
		}
	})
	o := Options{}
	o.To = []string{"http://" + l.Addr().String()}
	unasked := make(chan struct{}, 1)
	h, err := New(o, Deps{ErrorLog: slog.New(slog.DiscardHandler), Unasked: func() { unasked <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if w := asked(t, h, "GET", "http://a.example/1"); w.Body.String() != "/1" {
		t.Fatalf("the first answer is %q", w.Body)
	}
	if w := asked(t, h, "GET", "http://a.example/2"); w.Body.String() != "planted" {
		t.Fatalf("the second answer is %q: the test does not do what it is for", w.Body)
	}
	<-unasked
	for deadline := time.Now().Add(5 * time.Second); ; {
		w := asked(t, h, "GET", "http://a.example/2")
		if w.Body.String() == "/2" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is still %q; %v", w.Body, w.Header()["Cache-Status"])
		}
	}
	if w := asked(t, h, "GET", "http://a.example/1"); w.Body.String() != "/1" || !isHit(t, w) {
		t.Errorf("the first answer, before which there was nothing: %q %v", w.Body, w.Header()["Cache-Status"])
	}
}

// late answers with the request's target. If plants is true, another answer, which
// nobody asked for, comes right before its second one.
func late(c net.Conn, plants bool) {
	defer c.Close()
	reader := bufio.NewReader(c)
	for n := 1; ; n++ {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		text := ""
		if plants && n == 2 {
			text = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 7\r\n\r\nplanted"
		}
		target := r.URL.RequestURI()
		text += fmt.Sprintf("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: %d\r\n\r\n%s", len(target), target)
		if _, err := c.Write([]byte(text)); err != nil {
			return
		}
	}
}
