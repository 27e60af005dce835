package fastcgi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// onLoop is an exchange as an event loop has it, and the application's end.
func onLoop(t *testing.T, c *Client) (x *Exchange, application int) {
	t.Helper()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	x = &Exchange{client: c}
	x.use(c.newConn(nil, ends[0]))
	return x, ends[1]
}

// outcome is an answer, what the application has complained about, and the error at the
// end.
func outcome(got []byte, x *Exchange, err error) string {
	return fmt.Sprintf("%q, complaints %q: %v", got, x.stderr.String(), err)
}

// FuzzLoop: an event loop reads the same as a goroutine, wherever the answer is cut, and a
// goroutine that continues reads the rest.
func FuzzLoop(f *testing.F) {
	good := append(stdout("Content-Type: a/b\r\n\r\nhello"), end(0)...)
	complaint := append(appendHeader(nil, kindStderr, 3), "oh\n"...)
	padded := []byte{1, kindStdout, 0, 1, 0, 1, 2, 0, 'x', 0, 0, 1, kindEnd, 0, 1, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}
	long := append(appendStream(nil, kindStderr, bytes.Repeat([]byte("x"), 2*maxStderr)), good...)
	for _, said := range [][]byte{good, good[:len(good)-1], append(complaint, good...), padded, long, end(1), append(good, good...), nil} {
		for _, cut := range []uint16{0, 5, 8, 30, 1000} {
			f.Add(said, cut)
		}
	}
	f.Fuzz(func(t *testing.T, said []byte, cut uint16) {
		if len(said) > 64<<10 {
			return
		}
		one, other := net.Pipe()
		defer one.Close()
		go func() { // ends with the pipe
			_, _ = other.Write(said)
			_ = other.Close()
		}()
		c := New(Options{})
		x := &Exchange{client: c}
		x.use(c.newConn(one, noFD))
		x.attach(t.Context())
		got, err := io.ReadAll(x)
		want := outcome(got, x, err)
		_ = x.Close()
		for _, goesOn := range []bool{false, true} {
			x, app := onLoop(t, c)
			at := min(int(cut), len(said))
			if !write(app, said[:at]) && at > 0 {
				t.Fatal("the socket is full")
			}
			got, _ := tryAll(x) // what is wrong is seen at the end
			if goesOn {
				if e := c.Continue(t.Context(), x); e != nil {
					t.Fatal(e)
				}
			}
			if !write(app, said[at:]) && at < len(said) {
				t.Fatal("the socket is full")
			}
			closeFD(app)
			var more []byte
			if goesOn {
				more, err = io.ReadAll(x)
			} else {
				more, err = tryAll(x)
			}
			if err == nil && !x.done {
				t.Error("it is whole without an end")
			}
			if got := outcome(append(got, more...), x, err); got != want {
				t.Errorf("goes on %v: %s\nwant %s", goesOn, got, want)
			}
			_ = x.Close()
		}
	})
}

// tryAll is io.ReadAll for what has come.
func tryAll(x *Exchange) (got []byte, err error) {
	var b [100]byte
	for {
		n, ok, err := x.TryRead(b[:])
		got = append(got, b[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return got, nil
		case err != nil || !ok:
			return got, err
		}
	}
}

// TestBegin: a loop sends a request that arrives whole, and keeps the connection for
// goroutines and loops, but not one that the application has ended meanwhile.
func TestBegin(t *testing.T) {
	ln, path := listen(t)
	var connections atomic.Int64
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go echoTwo(nc)
		}
	}()
	c := New(Options{To: []string{path}, Connect: 5 * time.Second, Read: 5 * time.Second, Write: 5 * time.Second, Keep: 2})
	t.Cleanup(func() { _ = c.Close(); _ = ln.Close(); <-served })
	byLoop := func(text string) string {
		var x Exchange
		if !c.Begin(&x) || !x.Send(&Request{Params: AppendParam(nil, "A", "b"), Body: strings.NewReader(text), Length: int64(len(text))}) {
			t.Fatal("it was not sent")
		}
		defer x.Close()
		var got []byte
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			more, err := tryAll(&x)
			got = append(got, more...)
			if err != nil || x.done {
				return fmt.Sprint(string(got), " ", err)
			}
		}
		return "late"
	}
	byGoroutine := func(text string) string {
		x, err := do(t.Context(), c, Request{Params: AppendParam(nil, "A", "b"), Body: strings.NewReader(text), Length: int64(len(text))})
		if err != nil {
			return err.Error()
		}
		defer x.Close()
		got, err := io.ReadAll(x)
		return fmt.Sprint(string(got), " ", err)
	}
	for i, ask := range []func(string) string{byLoop, byLoop, byLoop, byGoroutine, byGoroutine, byLoop, byLoop, byGoroutine, byGoroutine, byGoroutine} {
		text := fmt.Sprint("text ", i)
		if got := ask(text); got != text+" <nil>" {
			t.Fatalf("%d. %q", i, got)
		}
		if i%2 == 1 { // the application ends the connection: it is known before the next request
			waitFor(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.idle) == 1 && unread(c.idle[0].fd) })
		}
	}
	if n := connections.Load(); n != 5 {
		t.Errorf("%d connections for ten requests, of which each took two", n)
	}
	var x Exchange
	long := strings.Repeat("x", Small)
	if c.Begin(&x) && x.Send(&Request{Params: bytes.Repeat([]byte("x"), 8<<20), Body: strings.NewReader(long), Length: Small}) {
		t.Error("more was sent at once than a socket takes")
	}
}

func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// echoTwo answers two requests on a connection with their bodies, and closes it.
func echoTwo(nc net.Conn) {
	defer nc.Close()
	for range 2 {
		var body []byte
		for {
			var header [headerLen]byte
			if _, err := io.ReadFull(nc, header[:]); err != nil {
				return
			}
			content := make([]byte, int(header[4])<<8|int(header[5]))
			if _, err := io.ReadFull(nc, content); err != nil {
				return
			}
			if header[1] == kindStdin && len(content) == 0 {
				break
			}
			if header[1] == kindStdin {
				body = append(body, content...)
			}
		}
		if _, err := nc.Write(append(appendStream(nil, kindStdout, body), end(0)...)); err != nil {
			return
		}
	}
}

// TestStale: a kept connection that ends without an answer is told from one that is late,
// from one that has begun to answer, and from a new one.
func TestStale(t *testing.T) {
	for name, want := range map[string]bool{"kept": true, "new": false, "begun": false, "late": false} {
		c := New(Options{Read: time.Millisecond})
		x, app := onLoop(t, c)
		x.reused = name != "new"
		if name == "begun" && !write(app, stdout("x")) {
			t.Fatal("the socket is full")
		}
		if name == "late" {
			if err := c.Continue(context.Background(), x); err != nil {
				t.Fatal(err)
			}
		} else {
			closeFD(app)
		}
		if name == "late" {
			_, err := io.ReadAll(x)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("late: %v", err)
			}
		} else if _, err := tryAll(x); err == nil {
			t.Error(name, "has no error")
		}
		if got := x.Stale(); got != want {
			t.Errorf("%s: %v", name, got)
		}
		_ = x.Close()
		if name == "late" {
			closeFD(app)
		}
	}
}
