package fastcgi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen opens a UNIX socket that counts its connections.
func listen(t testing.TB) (net.Listener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fcgi") // short, for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln, path
}

// counted counts what is accepted.
type counted struct {
	net.Listener
	n atomic.Int64
}

func (c *counted) Accept() (net.Conn, error) {
	nc, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return nc, err
}

// client talks to an application of the standard library's server, which was
// written by others.
func client(t *testing.T, keep int, h http.HandlerFunc) (*Client, *counted) {
	t.Helper()
	ln, path := listen(t)
	c := &counted{Listener: ln}
	go func() { _ = fcgi.Serve(c, h) }() // ends with the listener
	one := New(Options{To: []string{"unix:" + path}, Connect: 5 * time.Second, Read: 20 * time.Second, Write: 20 * time.Second, Keep: keep})
	t.Cleanup(func() { _ = one.Close() })
	return one, c
}

// request is one as net/http's server side of FastCGI wants it.
func request(body []byte, params ...string) Request {
	var b []byte
	for name, value := range map[string]string{
		"REQUEST_METHOD": "POST", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "a.example", "REQUEST_URI": "/x?y",
		"CONTENT_LENGTH": strconv.Itoa(len(body)),
	} {
		b = AppendParam(b, name, value)
	}
	for i := 0; i < len(params); i += 2 {
		b = AppendParam(b, params[i], params[i+1])
	}
	return Request{Params: b, Body: bytes.NewReader(body), Length: int64(len(body))}
}

func do(ctx context.Context, c *Client, r Request) (*Exchange, error) {
	x := new(Exchange)
	return x, c.Do(ctx, x, r)
}

// Bodies of every size arrive both ways, with parameters as long as they like.
func TestSizes(t *testing.T) {
	long := strings.Repeat("v", 100_000)
	c, accepted := client(t, 1, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if got := fcgi.ProcessEnv(r)["LONG"]; got != long && len(body) == 1 {
			t.Errorf("the long parameter has %d bytes", len(got))
		}
		_, _ = w.Write(body)
	})
	sizes := []int{0, 1, 127, 128, Small - 1, Small, Small + 1, maxContent, maxContent + 1, 1 << 20}
	for _, size := range sizes {
		body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		var params []string
		if size == 1 {
			params = []string{"LONG", long, "EMPTY", ""}
		}
		a, err := do(t.Context(), c, request(body, params...))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		got, err := io.ReadAll(a)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if _, rest, _ := bytes.Cut(got, []byte("\r\n\r\n")); !bytes.Equal(rest, body) {
			t.Errorf("%d bytes: %d came back, or others", size, len(rest))
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := accepted.n.Load(); n >= int64(len(sizes)) {
		t.Errorf("%d connections for %d requests: none was used again", n, len(sizes))
	}
}

// Many at once do not get each other's answers.
func TestAtOnce(t *testing.T) {
	c, _ := client(t, 3, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, fcgi.ProcessEnv(r)["N"]) })
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			for range 10 {
				a, err := do(t.Context(), c, request(nil, "N", strconv.Itoa(n)))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(a)
				if _, rest, _ := strings.Cut(string(got), "\r\n\r\n"); rest != strconv.Itoa(n) || err != nil {
					t.Errorf("%d got %q, %v", n, rest, err)
				}
				_ = a.Close()
			}
		})
	}
	all.Wait()
}

// says is an application that says the same to everybody, and then reads on.
func says(t testing.TB, b []byte, end bool) *Client {
	t.Helper()
	ln, path := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { // ends with the listener
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer nc.Close()
				_, _ = nc.Write(b)
				if end {
					if half, ok := nc.(*net.UnixConn); ok {
						_ = half.CloseWrite()
					}
				}
				_, _ = io.Copy(io.Discard, nc)
			})
		}
	})
	c := New(Options{To: []string{path}, Connect: 5 * time.Second, Read: 300 * time.Millisecond, Write: 5 * time.Second})
	t.Cleanup(func() { _ = c.Close(); _ = ln.Close(); serving.Wait() })
	return c
}

// all is what an application said, and the error that ended it.
func all(c *Client) (string, error) {
	a, err := do(context.Background(), c, request([]byte("body")))
	if err != nil {
		return "", err
	}
	defer a.Close()
	got, err := io.ReadAll(a)
	return string(got), err
}

func stdout(text string) []byte { return appendStream(nil, kindStdout, []byte(text)) }

func end(status byte) []byte {
	return append(appendHeader(nil, kindEnd, 8), 0, 0, 0, 0, status, 0, 0, 0)
}

// An application that breaks the protocol, ends early or says nothing is an
// error, never a short answer that looks whole.
func TestHostileApplications(t *testing.T) {
	whole := append(stdout("hello"), end(0)...)
	for name, c := range map[string]struct {
		said []byte
		want string // of the error; "" for none
	}{
		"whole":          {whole, ""},
		"padding":        {append(append([]byte{1, kindStdout, 0, 1, 0, 5, 3, 0}, "hello\x00\x00\x00"...), end(0)...), ""},
		"in pieces":      {append(append(stdout("he"), stdout("llo")...), append(appendHeader(nil, kindStdout, 0), end(0)...)...), ""},
		"standard error": {append(append(appendHeader(nil, kindStderr, 3), "oh\n"...), whole...), ""},
		"nothing":        {nil, "unexpected EOF"},
		"no end":         {stdout("hello"), "unexpected EOF"},
		"half a header":  {whole[:4], "unexpected EOF"},
		"half a record":  {whole[:10], "unexpected EOF"},
		"version 2":      {append([]byte{2}, whole[1:]...), "does not speak FastCGI"},
		"HTTP":           {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak FastCGI"},
		"another's":      {append([]byte{1, kindStdout, 0, 2}, whole[4:]...), "a record of request 2"},
		"unknown kind":   {append(appendHeader(nil, 99, 0), whole...), "a record of kind 99"},
		"overloaded":     {end(2), "takes no request now"},
		"a short end":    {append(appendHeader(nil, kindEnd, 4), 0, 0, 0, 0), "an end of 4 bytes"},
	} {
		got, err := all(says(t, c.said, true))
		switch {
		case c.want == "" && (err != nil || got != "hello"):
			t.Errorf("%s: %q, %v", name, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %q, %v; want an error with %q", name, got, err, c.want)
		}
	}
}

// Silence ends by the time that was set, and a client that goes ends its request.
func TestSilence(t *testing.T) {
	c := says(t, nil, false)
	if _, err := all(c); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := do(ctx, c, request(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: %v", err)
	}
	half := says(t, stdout("he"), false)
	if got, err := all(half); !errors.Is(err, os.ErrDeadlineExceeded) || got != "he" {
		t.Errorf("half an answer: %q, %v", got, err)
	}
}

// A client that goes between two reads ends its request as well: its deadline is not
// replaced by that of the next read.
func TestGoneBetweenReads(t *testing.T) {
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = one.SetDeadline(time.Unix(1, 0)) // as the end of the context has it
	c := New(Options{Read: time.Hour})
	a := &Exchange{client: c}
	a.use(c.newConn(one, noFD))
	a.attach(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.advance() }()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the application is waited for, though the client has gone")
	}
}

// Nobody there is an error of its own; of several addresses the next is tried.
func TestNobodyThere(t *testing.T) {
	ln, path := listen(t)
	_ = ln.Close()
	c := New(Options{To: []string{path}, Connect: time.Second})
	if _, err := do(t.Context(), c, request(nil)); !errors.Is(err, ErrConnect) {
		t.Errorf("nobody: %v", err)
	}
	there := says(t, append(stdout("hello"), end(0)...), true)
	c = New(Options{To: []string{path, there.options.To[0], path}, Connect: time.Second, Read: 5 * time.Second})
	for range 6 {
		if got, err := all(c); got != "hello" || err != nil {
			t.Errorf("one of three: %q, %v", got, err)
		}
	}
}

// Whatever an application says: no panic, no endless wait, and what is whole to
// the client ends with the record that says so.
func FuzzAnswer(f *testing.F) {
	f.Add(append(stdout("Status: 200 OK\r\n\r\nhello"), end(0)...))
	f.Add(append(appendHeader(nil, kindStderr, 3), "oh\n"...))
	f.Add(end(1))
	f.Fuzz(func(t *testing.T, said []byte) {
		one, other := net.Pipe()
		defer one.Close()
		go func() { // ends with the pipe
			_, _ = other.Write(said)
			_ = other.Close()
		}()
		c := New(Options{})
		a := &Exchange{client: c}
		a.use(c.newConn(one, noFD))
		a.attach(t.Context())
		_, err := io.ReadAll(a)
		if err == nil && !bytes.Contains(said, []byte{1, kindEnd, 0, 1, 0, 8}) {
			t.Errorf("%q is whole without an end", said)
		}
	})
}

// TestRepeat: a kept connection that ends without an answer is replaced for a
// request that may be made twice, and for no other one; nor is one that is late.
func TestRepeat(t *testing.T) {
	for name, want := range map[string]int64{"repeat": 2, "once": 1, "late": 1} {
		var asked atomic.Int64
		ln, path := listen(t)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				serving.Go(func() {
					defer nc.Close()
					b := make([]byte, 4<<10)
					for first := true; ; first = false {
						n, err := nc.Read(b)
						if err != nil {
							return
						}
						if bytes.Contains(b[:n], []byte("second")) {
							asked.Add(1)
							if !first && name != "late" {
								return // as when php-fpm ends a worker
							}
							if !first {
								continue
							}
						}
						_, _ = nc.Write(append(stdout("\r\n\r\n"), end(0)...))
					}
				})
			}
		})
		c := New(Options{To: []string{path}, Connect: 5 * time.Second, Read: 200 * time.Millisecond, Keep: 4})
		ask := func(what string) error {
			a, err := do(t.Context(), c, Request{Params: AppendParam(nil, "what", what), Repeat: name != "once"})
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, a)
			return errors.Join(err, a.Close())
		}
		if err := ask("first"); err != nil {
			t.Fatal(err)
		}
		if err := ask("second"); (err == nil) != (name == "repeat") {
			t.Errorf("%s: %v", name, err)
		}
		if n := asked.Load(); n != want {
			t.Errorf("%s: it was asked %d times, want %d", name, n, want)
		}
		_, _ = c.Close(), ln.Close()
		serving.Wait()
	}
}
