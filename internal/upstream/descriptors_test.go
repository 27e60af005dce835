package upstream

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestNoDescriptors: that this machine can open no connection says nothing about the
// servers: they get requests again at once.
func TestNoDescriptors(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.counting("a:80")
		w.counting("b:80")
		var room atomic.Bool
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !room.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", syscall.EMFILE)}
			}
			return w.dial(ctx, network, addr)
		}
		p, err := start(Options{To: hosts(2), Health: Health{Path: "/health", Interval: time.Second}}, slog.New(slog.DiscardHandler), dial)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 20 {
			if _, _, err := get(t, p); err == nil {
				t.Fatal("there was an answer")
			}
		}
		time.Sleep(time.Minute)
		for _, s := range p.Servers() {
			if !s.Healthy || s.Fails != 0 {
				t.Errorf("%+v", s)
			}
		}
		room.Store(true)
		if _, _, err := get(t, p); err != nil {
			t.Error(err)
		}
	})
}
