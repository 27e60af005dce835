package conn

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"millrace/websocket/frame"
)

// echoing is a client of an echo, over a loopback connection.
type echoing struct {
	*net.TCPConn
	in, out []byte
}

func newEchoing(tb testing.TB, hide bool, app App, size int) *echoing {
	tb.Helper()
	e := NewEngine(nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ours, theirs := pairOf(tb, ln)
	if hide {
		theirs = hidden{theirs}
	}
	s := &Settings{App: app, MaxMessage: 1 << 20, WriteTimeout: time.Minute, Ping: time.Minute, Idle: time.Hour}
	if err := e.Adopt(theirs, nil, s, frame.Params{}, nil); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ours.Close()
		ln.Close()
		_ = e.Close()
	})
	b := packet(frame.Binary, true, false, make([]byte, size))
	return &echoing{ours.(*net.TCPConn), b, make([]byte, len(b)-4)}
}

// round sends the message and waits for its echo.
func (e *echoing) round(tb testing.TB) {
	if _, err := e.Write(e.in); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.ReadFull(e, e.out); err != nil {
		tb.Fatal(err)
	}
}

// wholeEcho and pieceEcho are the two kinds of Apps, with nothing else.
type wholeEcho struct{}

func (wholeEcho) Open(*Conn)                                    {}
func (wholeEcho) Closed(*Conn, frame.Code)                      {}
func (wholeEcho) Message(c *Conn, op frame.Opcode, data []byte) { c.Send(op, data) }

type pieceEcho struct{ wholeEcho }

func (pieceEcho) Piece(c *Conn, op frame.Opcode, data []byte, first, last bool) {
	c.SendPiece(op, data, first, last)
}

func BenchmarkEcho(b *testing.B) {
	for _, driver := range []string{"loop", "goroutine"} {
		for _, size := range []int{20, 1000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", driver, size), func(b *testing.B) {
				app := App(pieceEcho{})
				if size > 10_000 {
					app = wholeEcho{} // in pieces it would have more headers than the client counts
				}
				e := newEchoing(b, driver == "goroutine", app, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					e.round(b)
				}
			})
		}
	}
}

// TestNoGarbage: a message costs no allocation.
func TestNoGarbage(t *testing.T) {
	if underRace {
		t.Skip("pools forget what they have, under the race detector")
	}
	drivers(t, func(t *testing.T, r *rig) {
		for name, app := range map[string]App{"whole": wholeEcho{}, "pieces": pieceEcho{}} {
			for _, size := range []int{20, 200, 3000} {
				t.Run(fmt.Sprint(name, size), func(t *testing.T) {
					e := newEchoing(t, r.hide, app, size)
					for range 100 {
						e.round(t)
					}
					var before, after runtime.MemStats
					const rounds = 2000
					runtime.ReadMemStats(&before)
					for range rounds {
						e.round(t)
					}
					runtime.ReadMemStats(&after)
					// The pools are emptied by collections, and the clock ticks.
					if n := after.Mallocs - before.Mallocs; n > rounds/2 {
						t.Errorf("%d allocations for %d messages", n, rounds)
					}
				})
			}
		}
	})
}

// BenchmarkSlab is what the state of a million quiet connections takes, and
// how long it takes to find those of them whose time has come.
func BenchmarkSlab(b *testing.B) {
	const conns = 1_000_000
	set := &Settings{Ping: 30 * time.Second, PongTimeout: time.Second}
	for b.Loop() {
		before := inUse()
		lp := &runner{}
		sl := &slab{}
		for i := range conns {
			c := sl.get()
			c.set, c.lastBytes = set, uint32(i%60)
			lp.wheel.put(c, 1+uint32(i%60))
		}
		heap, _ := inUse().minus(before)
		b.ReportMetric(float64(heap)/conns, "B/conn")
		began, n := time.Now(), 0
		for now := range uint32(60) {
			lp.wheel.turn(now+1, func(c *Conn) {
				_, next := c.timeUp(now + 1)
				lp.wheel.put(c, next)
				n++
			})
		}
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(n), "ns/look")
		runtime.KeepAlive(sl)
	}
}

// BenchmarkIdle is what a quiet plain connection takes, and a quiet pair of
// them behind the proxy, but for what the system has of it.
func BenchmarkIdle(b *testing.B) {
	const conns = 2000
	for _, piped := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "proxied"}[piped], func(b *testing.B) {
			for b.Loop() {
				e := NewEngine(nil)
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				s := &Settings{App: wholeEcho{}, MaxMessage: 1 << 16, Ping: time.Hour}
				var clients []*rawClient
				before := inUse()
				for range conns {
					front, theirs := pairOf(b, ln)
					if piped {
						back, upstream := pairOf(b, ln)
						err = e.Join(theirs, nil, upstream, nil, s, func() {})
						clients = append(clients, keepOpen(b, back))
					} else {
						err = e.Adopt(theirs, nil, s, frame.Params{}, nil)
					}
					if err != nil {
						b.Fatal(err)
					}
					clients = append(clients, keepOpen(b, front))
				}
				time.Sleep(100 * time.Millisecond)
				heap, stack := inUse().minus(before)
				b.ReportMetric(float64(heap)/conns, "heap-B/conn")
				b.ReportMetric(float64(stack)/conns, "stack-B/conn")
				for _, c := range clients {
					c.close()
				}
				ln.Close()
				_ = e.Close()
			}
		})
	}
}

// pairOf is a connection from both of its sides.
func pairOf(tb testing.TB, ln net.Listener) (_, _ net.Conn) {
	tb.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, _ := ln.Accept()
		accepted <- nc
	}()
	ours, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	return ours, <-accepted
}
