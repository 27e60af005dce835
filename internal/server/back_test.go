package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
)

// TestBackOnTheLoops: whatever connections have asked for (hot and cold answers, long ones that
// are read late, uploads, requests that are given up), all answers are those of a server
// without a lane, and afterwards no connection has a goroutine: each is back on its loop.
func TestBackOnTheLoops(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 40 {
			_, _ = fmt.Fprint(w, strings.Repeat(fmt.Sprint(i), 10000))
		}
	})
	mux.HandleFunc("/trailer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-End")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-End", "yes")
	})
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond): // a client of HTTP/1.1 that closes may only have closed its sending side
		}
	})
	var rigs []*rig
	for _, off := range []bool{false, true} {
		rigs = append(rigs, start(t, plan{handler: mux, lane: lane.Options{Off: off}}))
	}
	for _, proto := range []string{"tcp", "tls", "h2"} {
		t.Run(proto, func(t *testing.T) {
			var all sync.WaitGroup
			var clients []*http.Transport
			for seed := range uint64(6) {
				var conns [2]*http.Transport
				for i, r := range rigs {
					tr := &http.Transport{TLSClientConfig: r.clientTLS.Clone(), ForceAttemptHTTP2: proto == "h2", DisableCompression: true, MaxConnsPerHost: 4}
					conns[i] = tr
					clients = append(clients, tr)
				}
				all.Go(func() {
					visitBoth(t, rigs, conns, proto, seed)
					conns[1].CloseIdleConnections() // which have goroutines
				})
			}
			all.Wait()
			servertest.Eventually(t, "no connection has a goroutine", func() bool { return busyConns() == "" })
			if busyConns() != "" {
				t.Log(busyConns())
			}
			for _, tr := range clients {
				tr.CloseIdleConnections()
			}
		})
	}
}

// busyConns are the goroutines that a server with a lane has for its connections.
func busyConns() string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for one := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		for _, name := range []string{"lane.(*h2Host).serve", "lane.(*stream).serve", "lane.(*Conn).serveTask", "lane.(*Conn).Serve(", "lane.(*session).Read", "h2.(*innerConn)", "h2.(*Conn).Run"} {
			if bytes.Contains(one, []byte(name)) {
				return string(one)
			}
		}
	}
	return ""
}

// visitBoth asks both servers for the same, and compares the answers.
func visitBoth(t *testing.T, rigs []*rig, conns [2]*http.Transport, proto string, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 7))
	for range 60 {
		kind := dice.IntN(12)
		var got [2]string
		for i, r := range rigs {
			base := "https://" + r.secure
			if proto == "tcp" {
				base = "http://" + r.tcp
			}
			got[i] = visitOne(conns[i], base, kind)
		}
		if got[0] != got[1] {
			t.Errorf("%s, kind %d: with the lane\n%s\nwithout\n%s", proto, kind, got[0], got[1])
		}
	}
}

// visitOne makes a request of a kind and returns what matters of the answer.
func visitOne(tr *http.Transport, base string, kind int) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	method, path, body := "GET", "/hot", io.Reader(nil)
	late := false
	switch kind {
	case 3:
		path = "/slow"
	case 4:
		path, late = "/long", true
	case 5:
		method, path, body = "POST", "/echo", strings.NewReader("short")
	case 6: // without a length
		method, path, body = "POST", "/echo", io.MultiReader(strings.NewReader("long "), bytes.NewReader(make([]byte, 100<<10)))
	case 7:
		path = "/trailer"
	case 8:
		method, path = "HEAD", "/slow"
	case 9:
		path = "/silent"
	case 10:
		path = "/hang"
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, 5*time.Millisecond)
		defer stop()
	case 11:
		method, path, body = "POST", "/unread", bytes.NewReader(make([]byte, 300<<10))
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return err.Error()
	}
	req.Host = "a.example"
	if kind == 2 {
		req.Header["If-None-Match"] = []string{`"nothing"`}
	}
	res, err := tr.RoundTrip(req)
	if kind == 11 && err != nil {
		return "an upload that nobody reads may fail"
	}
	if kind == 10 { // on a busy machine the answer may come before the client gives up
		if err == nil {
			_ = res.Body.Close()
		}
		return "it is given up"
	}
	if err != nil {
		return fmt.Sprint(kind, " fails: ", ctx.Err())
	}
	defer res.Body.Close()
	if late {
		time.Sleep(2 * time.Millisecond)
	}
	b, err := io.ReadAll(res.Body)
	if kind == 11 {
		return "an upload that nobody reads may fail"
	}
	res.Header.Del("Date")
	return fmt.Sprintf("%s %v %v %x %v", res.Status, res.Header, res.Trailer, sha256.Sum256(b), err)
}

// TestDrainBeside: in a drain, streams beside hot ones are answered to their ends, and then the
// connection ends.
func TestDrainBeside(t *testing.T) {
	for _, method := range []string{"GET", "POST"} { // by a worker, and by net/http
		running, release := make(chan struct{}, 1), make(chan struct{})
		mux := http.NewServeMux()
		mux.Handle("/", newPages())
		mux.HandleFunc("/wait", func(w http.ResponseWriter, _ *http.Request) {
			running <- struct{}{}
			<-release
			_, _ = io.WriteString(w, "waited")
		})
		r := start(t, plan{handler: mux})
		r.teach(t, "tls", "/hot")
		tr := &http.Transport{TLSClientConfig: r.clientTLS.Clone(), ForceAttemptHTTP2: true}
		answers := make(chan string, 1)
		go func() {
			req, _ := http.NewRequest(method, "https://"+r.secure+"/wait", strings.NewReader("body"))
			if method == "GET" {
				req.Body, req.ContentLength = nil, 0
			}
			req.Host = "a.example"
			res, err := tr.RoundTrip(req)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			answers <- fmt.Sprint(string(b), err)
		}()
		<-running
		r.srv.lane.Drain()
		close(release)
		if got := <-answers; got != "waited<nil>" {
			t.Errorf("%s: %s", method, got)
		}
		tr.CloseIdleConnections()
		servertest.Eventually(t, "the connection ends", func() bool { return r.srv.lane.Open() == 0 })
	}
}

// A file, or any other answer that is not hot, leaves a connection over TLS where it was.
func TestThroughOverTLS(t *testing.T) {
	r := start(t, plan{})
	c := r.dial(t, "tls")
	before := r.job.Through.Requests()
	for range 10 {
		if got := c.get("/slow"); !strings.HasPrefix(got, "GET /slow") {
			t.Fatal(got)
		}
	}
	if n := r.job.Through.Requests() - before; n != 10 {
		t.Errorf("%d of 10 requests were served without net/http", n)
	}
	_ = c.Conn.Close()
}
