package lane

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// owned gives one end of a connection to a loop. The connection comes over left
// when the loop gives it up; gone is closed when it has ended.
func (b *bench) owned(t *testing.T) (client net.Conn, left <-chan *Conn, gone <-chan struct{}) {
	t.Helper()
	server, client := socketPair(t)
	leaves, ends := make(chan *Conn, 1), make(chan struct{})
	if !b.lane.Adopt(server, b.scope, func() { close(ends) }, func(c *Conn) { leaves <- c }) {
		t.Fatal("not adopted")
	}
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	return client, leaves, ends
}

func ask(t *testing.T, client net.Conn, request, want string) {
	t.Helper()
	if _, err := io.WriteString(client, request); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := client.Read(buf)
	if err != nil || !strings.HasSuffix(string(buf[:n]), want) {
		t.Fatalf("%q, %v; want the end to be %q", buf[:n], err, want)
	}
}

// A hot request on a loop costs no allocation, from the socket to the socket.
func TestOwnedAllocates(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	client, _, _ := b.owned(t)
	hotCostsNothing(t, client)
}

// A mistake on one connection ends that one, is told, and leaves the others.
func TestOwnedThatPanics(t *testing.T) {
	var told strings.Builder
	settings := patient
	settings.Errors = slog.New(slog.NewTextHandler(&told, nil))
	b := newBench(t, settings)
	broken := newResponse(answerOf("x"), Rule{}, nil) // no job to count for
	b.lane.table.put(key{1, "/broken", false}, demands{}, variant{response: broken})
	good, _, _ := b.owned(t)
	bad, _, gone := b.owned(t)
	if _, err := io.WriteString(bad, "GET /broken HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-gone
	ask(t, good, hotRequest, "hello\n")
	b.lane.Close() // ends the loops, which write the log
	if !strings.Contains(told.String(), "a connection failed in the fast lane") {
		t.Errorf("the log says %q", told.String())
	}
}

// An answer that was not sent yet when a connection failed reaches nobody, least
// of all the next connection of the same loop.
func TestOwnedThatPanicsLeavesNothing(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one loop
	settings := patient
	settings.Errors = slog.New(slog.DiscardHandler)
	b := newBench(t, settings)
	defer b.lane.Close()
	broken := newResponse(answerOf("not for others"), Rule{}, nil) // no job to count for
	b.lane.table.put(key{1, "/broken", false}, demands{}, variant{response: broken})
	good, _, _ := b.owned(t)
	bad, _, gone := b.owned(t)
	if _, err := io.WriteString(bad, "GET /broken HTTP/1.1\r\nHost: a\r\n\r\n"+hotRequest); err != nil {
		t.Fatal(err)
	}
	<-gone
	if _, err := io.WriteString(good, hotRequest); err != nil {
		t.Fatal(err)
	}
	_ = good.(*net.UnixConn).CloseWrite()
	got, err := io.ReadAll(good)
	if err != nil || strings.Count(string(got), "HTTP/1.1 ") != 1 || strings.Contains(string(got), "not for others") {
		t.Errorf("%q, %v", got, err)
	}
}

// What is not for the lane takes the connection to net/http with exactly the
// bytes that were not answered, whatever came before them in the same packet,
// and what comes later follows them.
func TestOwnedLeavesWithItsBytes(t *testing.T) {
	for _, foreign := range []string{
		"GET /other HTTP/1.1\r\nHost: a\r\n\r\n", // not hot
		"GET / HT",                               // not yet whole
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		strings.Repeat("x", maxHead),
	} {
		t.Run(foreign[:8], func(t *testing.T) {
			b := newBench(t, patient)
			defer b.lane.Close()
			client, left, _ := b.owned(t)
			ask(t, client, hotRequest, "hello\n")
			ask(t, client, hotRequest+foreign, "hello\n")
			c := <-left
			if _, err := io.WriteString(client, "more"); err != nil {
				t.Fatal(err)
			}
			_ = client.(*net.UnixConn).CloseWrite()
			c.tracker.lost = true // read as it comes
			got, err := io.ReadAll(c)
			if err != nil || string(got) != foreign+"more" {
				t.Errorf("%q, %v; want %q", got, err, foreign+"more")
			}
			if c.LocalAddr() == nil || c.RemoteAddr() == nil {
				t.Error("no addresses")
			}
			_ = c.Close()
		})
	}
}

// A client that takes nothing for a while gets the rest when it reads on, and its
// connection stays on its loop.
func TestOwnedThatReadsLate(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	body := strings.Repeat("x", 60<<10)
	r := newResponse(answerOf(body), Rule{}, b.meters.Job("test"))
	b.lane.table.put(key{1, "/large", false}, demands{}, variant{response: r})
	client, left, gone := b.owned(t)
	const n = 40
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = io.WriteString(client, strings.Repeat("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", n))
		_ = client.(*net.UnixConn).CloseWrite()
	}()
	<-wrote // all of it fits into the socket
	got, err := io.ReadAll(client)
	if bodies := strings.Count(string(got), body); err != nil || bodies != n {
		t.Errorf("%d whole bodies, %v; want %d", bodies, err, n)
	}
	<-gone
	if len(left) != 0 {
		t.Error("the connection has left its loop")
	}
}

func TestOwnedEnds(t *testing.T) {
	t.Run("with its client", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		client, _, gone := b.owned(t)
		ask(t, client, hotRequest, "hello\n")
		_ = client.Close()
		<-gone
	})
	t.Run("when it has been idle", func(t *testing.T) {
		b := newBench(t, Settings{Header: time.Hour, Body: time.Hour, Write: time.Hour, Idle: 20 * time.Millisecond})
		defer b.lane.Close()
		client, _, gone := b.owned(t)
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want the end", err)
		}
		<-gone
	})
	t.Run("with the last answer of a drain", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		client, _, gone := b.owned(t)
		b.lane.Drain()
		ask(t, client, hotRequest, "Connection: close\r\n\r\nhello\n")
		<-gone
	})
	t.Run("with the lane", func(t *testing.T) {
		b := newBench(t, patient)
		client, _, gone := b.owned(t)
		ask(t, client, hotRequest, "hello\n")
		b.lane.Close()
		<-gone
		if n := b.lane.Open(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}
