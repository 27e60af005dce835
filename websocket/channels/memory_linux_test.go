//go:build !race

package channels

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/observe/meter"
	"millrace/store/bus"
	"millrace/websocket/centrifuge"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
)

// TestIdleMemory is what a quiet client with one subscription takes, of both protocols:
// its connection on a loop, its session, and its place in the hub.
func TestIdleMemory(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 3*idleClients {
		t.Skipf("%d descriptors are too few (%v)", limit.Cur, err)
	}
	for _, tt := range []struct {
		name string
		own  bool
		say  []string
	}{
		{"our own", true, []string{`{"subscribe":"news"}`}},
		{"an SDK's", false, []string{`{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"news"}}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bytes := idleBytes(t, tt.own, tt.say)
			t.Logf("%.0f bytes for each client", bytes)
			const most = 300
			if bytes > most {
				t.Errorf("a quiet client takes %.0f bytes, want at most %d", bytes, most)
			}
		})
	}
}

const idleClients = 6000

func idleBytes(t *testing.T, own bool, say []string) float64 {
	t.Helper()
	e := conn.NewEngine(nil)
	defer e.Close()
	c, err := New(Options{}, Deps{Bus: bus.NewMemory(Options{}.Keep()), Runners: e.Runners(), Post: e.Post, ErrorLog: slog.New(slog.DiscardHandler), Ping: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	set := &conn.Settings{App: c, MaxMessage: 64 << 10, Ping: time.Hour, Meters: &meter.WebSocket{}}
	if !own {
		set.Beat = conn.Beat{Op: frame.Text, Data: []byte("{}")}
	}
	var peers []int
	defer func() {
		for _, fd := range peers {
			_ = unix.Close(fd)
		}
	}()
	open := func(n int) {
		for range n {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			peers = append(peers, pair[1])
			var early []byte
			for _, text := range say {
				early = append(early, masked(text)...)
			}
			var state any = &session{grant: c.auth.Anyone(), slot: noSlot}
			if !own {
				state = newSDKClient(centrifuge.JSON, nil, nil)
			}
			if err := e.AdoptDescriptor(pair[0], early, set, frame.Params{}, state); err != nil {
				t.Fatal(err)
			}
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			c.Measure()
			if c.meters.Subscriptions.Load() == int64(len(peers)) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d are subscribed", c.meters.Subscriptions.Load(), len(peers))
			}
		}
	}
	heap := func() uint64 {
		var s runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	open(idleClients / 8) // what all of them share is there
	before := heap()
	open(idleClients)
	return float64(heap()-before) / idleClients
}

// masked is a client's frame (RFC 6455, 5.2), with a mask of zeros.
func masked(text string) []byte {
	if len(text) > 125 {
		panic(fmt.Sprint("too long: ", text))
	}
	return append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
}
