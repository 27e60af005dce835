package lane

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// tooMuch is more than the buffers of both sides hold.
var tooMuch = make([]byte, 32<<20)

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) && errors.As(err, &ne) && ne.Timeout()
}

func TestWireWriteDeadline(t *testing.T) {
	t.Run("holds while the client reads nothing", func(t *testing.T) {
		server, client := socketPair(t)
		w := NewWire(server)
		_ = w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := w.Write(tooMuch)
		if !isTimeout(err) || n == 0 || n == len(tooMuch) {
			t.Fatalf("%d bytes, %v; want some and a timeout", n, err)
		}
		if _, err := w.Write([]byte("x")); !isTimeout(err) {
			t.Errorf("after the deadline: %v", err)
		}
		// Cleared, it holds no longer, and all that was written arrives.
		_ = w.SetWriteDeadline(time.Time{})
		read := make(chan int64)
		go func() {
			m, _ := io.CopyN(io.Discard, client, int64(n)+1<<20)
			read <- m
		}()
		m, err := w.Write(tooMuch[:1<<20])
		if err != nil || m != 1<<20 {
			t.Errorf("cleared: %d, %v", m, err)
		}
		if got := <-read; got != int64(n)+1<<20 {
			t.Errorf("%d bytes arrived, want %d", got, n+1<<20)
		}
	})
	t.Run("set while somebody waits", func(t *testing.T) {
		server, _ := socketPair(t)
		w := NewWire(server)
		failed := make(chan error)
		go func() {
			_, err := w.Write(tooMuch)
			failed <- err
		}()
		for waits := false; !waits; time.Sleep(time.Millisecond) {
			w.writer.mu.Lock()
			waits = w.writer.blocking
			w.writer.mu.Unlock()
		}
		_ = w.SetDeadline(time.Now())
		select {
		case err := <-failed:
			if !isTimeout(err) {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it goes on waiting")
		}
	})
	t.Run("of a write that did not wait", func(t *testing.T) {
		server, client := socketPair(t)
		w := NewWire(server)
		for range 3 { // as net/http does, with time between
			_ = w.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := w.Write([]byte("page")); err != nil {
				t.Fatal(err)
			}
			_ = w.SetWriteDeadline(time.Time{})
			time.Sleep(30 * time.Millisecond)
		}
		got := make([]byte, 12)
		if _, err := io.ReadFull(client, got); err != nil || string(got) != "pagepagepage" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		server, _ := socketPair(t)
		w := NewWire(server)
		_ = w.Close()
		if _, err := w.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want net.ErrClosed", err)
		}
	})
	t.Run("no socket", func(t *testing.T) {
		server, client := net.Pipe()
		defer func() { _, _ = server.Close(), client.Close() }()
		w := NewWire(server)
		_ = w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := w.Write([]byte("x")); !isTimeout(err) {
			t.Error(err)
		}
	})
}
