package nats

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"millrace/store/bus"
)

type deaf struct{}

func (deaf) Deliver(bus.Message)           {}
func (deaf) Placed(string, string, uint64) {}
func (deaf) Reset(string)                  {}
func (deaf) State(error)                   {}
func (deaf) Members(string) []bus.Member   { return nil }

func openBench(b *testing.B) *Bus {
	path, err := exec.LookPath("nats-server")
	if err != nil {
		b.Skip("nats-server is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.Command(path, "-a", "127.0.0.1", "-p", port, "-js", "-sd", b.TempDir())
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	bench, err := Open(Options{URL: "nats://127.0.0.1:" + port, Keep: bus.Keep{Messages: 100}, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		bench.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	bench.Start(deaf{})
	for {
		switch p, changed := bench.link.now(); p {
		case up:
			return bench
		default:
			<-changed
		}
	}
}

// BenchmarkPublish publishes 100 bytes to a channel that is listened to.
func BenchmarkPublish(b *testing.B) {
	data := make([]byte, 100)
	for _, publishers := range []int{1, 64} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			n := openBench(b)
			n.Listen("a")
			b.SetParallelism(max(1, publishers/runtime.GOMAXPROCS(0)))
			b.ResetTimer()
			if publishers == 1 {
				for b.Loop() {
					n.Publish(context.Background(), bus.Message{Channel: "a", Data: data})
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n.Publish(context.Background(), bus.Message{Channel: "a", Data: data})
				}
			})
		})
	}
}

// BenchmarkHistory asks for what came after the last message, as clients do
// that come back, and for a hundred messages.
func BenchmarkHistory(b *testing.B) {
	n := openBench(b)
	var first, last uint64
	for range 100 {
		m, _ := n.Publish(context.Background(), bus.Message{Channel: "a", Data: make([]byte, 100)})
		if last = m.Offset; first == 0 {
			first = last
		}
	}
	for name, offset := range map[string]uint64{"nothing missed": last, "99 missed": first} {
		b.Run(name, func(b *testing.B) {
			since := &bus.Position{Epoch: n.order.current(), Offset: offset}
			b.RunParallel(func(pb *testing.PB) {
				done := make(chan bool)
				for pb.Next() {
					n.History("a", since, 0, func(h bus.History, err error) { done <- err == nil && h.Complete })
					if !<-done {
						b.Error("a history is not complete")
					}
				}
			})
		})
	}
}

// BenchmarkListen says what a channel costs that is listened to and does
// nothing.
func BenchmarkListen(b *testing.B) {
	n := openBench(b)
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	const channels = 20_000
	for b.Loop() {
		before, at := heap(), time.Now()
		for i := range channels {
			n.Listen(fmt.Sprint("channel", i))
		}
		b.ReportMetric(float64(time.Since(at).Microseconds())/channels, "µs/channel")
		b.ReportMetric(float64(heap()-before)/channels, "bytes/channel")
		for i := range channels {
			n.Ignore(fmt.Sprint("channel", i))
		}
	}
}
