package lane

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// TestIdleForTooLong: a request that has come by the time at which the sweeper
// finds a connection idle is answered, whoever reads from the connection; nothing
// is waited for then, and one on which nothing comes is closed.
func TestIdleForTooLong(t *testing.T) {
	secure := &tls.Config{Certificates: []tls.Certificate{servertest.Make(t, "lane")}}
	serve := func(b *bench, nc net.Conn) {
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }), ConnState: OnState}
		conns := make(chan net.Conn, 1)
		conns <- nc
		ln := &chanListener{conns: conns}
		t.Cleanup(func() { _ = srv.Close() })
		go func() { _ = srv.Serve(ln) }()
	}
	alone := func(c NetConn) {
		go c.Serve()
	}
	for name, begin := range map[string]func(t *testing.T, b *bench) net.Conn{
		"loop":     func(t *testing.T, b *bench) net.Conn { client, _, _ := b.owned(t); return client },
		"loop TLS": func(t *testing.T, b *bench) net.Conn { return b.wired(t) },
		"goroutine": func(t *testing.T, b *bench) net.Conn {
			server, client := socketPair(t)
			alone(b.lane.NewConn(server, b.scope, nil))
			return client
		},
		"goroutine TLS": func(t *testing.T, b *bench) net.Conn {
			server, client := socketPair(t)
			tc, inner := tls.Client(client, &tls.Config{InsecureSkipVerify: true}), tls.Server(server, secure)
			go func() { _ = tc.Handshake() }()
			if err := inner.Handshake(); err != nil {
				t.Fatal(err)
			}
			alone(b.lane.NewConn(inner, b.scope, nil))
			return tc
		},
		"net/http": func(t *testing.T, b *bench) net.Conn {
			server, client := socketPair(t)
			serve(b, b.lane.NewConn(server, b.scope, nil))
			return client
		},
		"net/http without a lane": func(t *testing.T, b *bench) net.Conn {
			server, client := socketPair(t)
			serve(b, b.lane.NewConn(server, b.scope, nil))
			return client
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := patient
			settings.Header, settings.Body, settings.Write = 100*time.Hour, 100*time.Hour, 100*time.Hour // later than late
			b := newBench(t, settings)
			defer b.lane.Close()
			if name == "net/http without a lane" {
				b.lane.table = nil
			}
			client := begin(t, b)
			late := time.Now().Add(24 * time.Hour).UnixNano()
			for range 100 {
				_ = client.SetDeadline(time.Now().Add(time.Minute))
				ask(t, client, hotRequest, "hello\n")
				if _, err := io.WriteString(client, hotRequest); err != nil {
					t.Fatal(err)
				}
				b.lane.each(func(c *Conn) { c.expire(late) })
				buf := make([]byte, 4096)
				n, err := client.Read(buf)
				if err != nil || !strings.HasSuffix(string(buf[:n]), "hello\n") {
					t.Fatalf("%q, %v", buf[:n], err)
				}
				if !strings.HasPrefix(name, "loop") { // this one may have been found idle behind the answer
					_ = client.Close()
					client = begin(t, b)
				}
			}
			ended := make(chan error, 1)
			go func() {
				_, err := client.Read(make([]byte, 1))
				ended <- err
			}()
			for {
				b.lane.each(func(c *Conn) { c.deadline.Store(time.Now().Add(-time.Second).UnixNano() | idleMark) })
				b.lane.each(func(c *Conn) { c.expire(late) })
				select {
				case err := <-ended:
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					return
				case <-time.After(3 * recheckTime): // it was just being served
				}
			}
		})
	}
}

// TestTooSlow: a client that takes an answer, but less of it than it must, is cut
// off once it is the write timeout behind; one that takes as much is not.
func TestTooSlow(t *testing.T) {
	const step = 8 * time.Second
	for name, c := range map[string]struct {
		rate int64
		cut  bool
	}{"fast enough": {1 << 10, false}, "any": {0, false}, "too slow": {64 << 20, true}} {
		t.Run(name, func(t *testing.T) {
			s := patient
			s.Write, s.WriteRate = 30*time.Second, c.rate
			b := newBench(t, s)
			defer b.lane.Close()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			client, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn := b.lane.NewConn(server, b.scope, nil)
			done := make(chan error, 1)
			go func() {
				_, err := conn.(net.Conn).Write(make([]byte, 256<<20))
				done <- err
			}()
			inner := conn.(*Conn)
			b.lane.untrack(inner) // from the lane's own sweeper, which goes by another clock
			now, buf := time.Now(), make([]byte, 4<<20)
			cut := false
			for i := 0; i < 8 && !cut; i++ { // a minute, which this test does not wait for
				for inner.writeBy.Load() == 0 && len(done) == 0 {
					time.Sleep(time.Millisecond)
				}
				by := inner.writeBy.Load()
				inner.expire(now.UnixNano())
				now = now.Add(step)
				_, err := io.ReadFull(client, buf)
				cut = err != nil
				// Until the server has written more, and waits for the client again.
				end := time.Now().Add(2 * time.Second)
				for waits := 0; !cut && waits < 3 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					cut = len(done) > 0
					next := inner.writeBy.Load()
					if queued, _ := inner.queued(); next != 0 && next != by && queued > 0 {
						waits++
					} else {
						waits = 0
					}
				}
			}
			if cut != c.cut {
				t.Errorf("the client was cut off: %t, want %t", cut, c.cut)
			}
			_ = client.Close()
			<-done
		})
	}
}
