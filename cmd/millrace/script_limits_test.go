package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// dripping are uploads that a script has begun and does not end.
type dripping struct {
	stop chan struct{}
	gone sync.WaitGroup // each connection, when the server has ended it
}

type drippingKey struct{}

// drip FROM N URL PATH opens N connections from that address, all of them
// uploads that send a byte every half second, for as long as they may.
func drip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: drip FROM N URL PATH")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	d := ts.Value(drippingKey{}).(*dripping)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(args[0])}, Timeout: patience}
	for range n {
		conn, err := dialer.Dial("tcp", strings.TrimPrefix(args[2], "http://"))
		ts.Check(err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx", args[3])
		if err != nil {
			_ = conn.Close()
			continue // refused already
		}
		ended := make(chan struct{})
		d.gone.Go(func() { // ends with the connection, for which dripped waits
			defer close(ended)
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		})
		d.gone.Go(func() {
			every := time.NewTicker(500 * time.Millisecond)
			defer every.Stop()
			for {
				select {
				case <-every.C:
					_, _ = conn.Write([]byte{'x'})
				case <-d.stop:
					_ = conn.Close()
					return
				case <-ended:
					return
				}
			}
		})
	}
}

// dripped waits until the server has ended all uploads that drip.
func dripped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: dripped")
	}
	d := ts.Value(drippingKey{}).(*dripping)
	done := make(chan struct{})
	go func() { d.gone.Wait(); close(done) }() // ends with the script at the latest
	select {
	case <-done:
	case <-time.After(patience):
		ts.Fatalf("uploads that drip are not ended")
	}
}
