package stall

import (
	"context"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
)

// stream is something of which memory is kept.
type stream struct {
	conn *keeper
	_    [64]byte
}

// keeper is a connection that keeps streams for its client.
type keeper struct {
	client netip.Addr
	kept   *Kept
	mu     sync.Mutex
	all    []*stream
	gone   bool
}

func (k *keeper) Client() netip.Addr { return k.client }

func (k *keeper) Streams(time.Time) Count {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return Count{}
	}
	return Count{Kept: k.kept.Streams()}
}

func (k *keeper) Evict() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone, k.all = true, nil
}

func (k *keeper) evicted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone
}

// answer opens streams of which some are taken at once.
func (k *keeper) answer(n int, taken bool) {
	for range n {
		s := &stream{conn: k}
		if Keep(k.kept, s); !taken {
			k.mu.Lock()
			k.all = append(k.all, s)
			k.mu.Unlock()
		}
	}
}

// Streams that their clients have not taken are known by the garbage collector: who has
// most of them gives way, however many others were opened and taken.
func TestWatchKept(t *testing.T) {
	b := NewBudget(nil)
	b.Set(Budgets{Kept: Limits{All: 300, Each: 200}})
	from := func(last byte) *keeper {
		return &keeper{client: netip.AddrFrom4([4]byte{10, 0, 0, last}), kept: b.NewKept()}
	}
	busy, slow, attack := from(1), from(2), from(3)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		b.WatchKept(ctx, func() []Conn { return []Conn{busy, slow, attack} }, func(Conn) {})
	})
	busy.answer(10_000, true)
	slow.answer(100, false)
	attack.answer(250, false)
	for deadline := time.Now().Add(10 * time.Second); (!attack.evicted() || b.Kept() != 100) && time.Now().Before(deadline); {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if !attack.evicted() || busy.evicted() || slow.evicted() || b.Kept() != 100 || !b.Keeps() {
		t.Errorf("%v %v %v %d", attack.evicted(), busy.evicted(), slow.evicted(), b.Kept())
	}
	cancel()
	watching.Wait()
	runtime.KeepAlive(slow)
	var none *Budget
	Keep(none.NewKept(), new(stream))
	if none.Keeps() {
		t.Error("nobody counts")
	}
}

// A busy client whose streams are all taken keeps its connection, although under load the
// collector frees what it has found only by and by.
func TestWatchKeptUnderLoad(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	b := NewBudget(nil)
	b.Set(Budgets{Kept: Limits{All: 4096, Each: 2048}})
	busy := &keeper{client: netip.AddrFrom4([4]byte{10, 0, 0, 1}), kept: b.NewKept()}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { b.WatchKept(ctx, func() []Conn { return []Conn{busy} }, func(Conn) {}) })
	for range 2 * runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for ctx.Err() == nil {
				busy.answer(100, true)
				_ = make([]byte, 1<<20)
			}
		})
	}
	running.Wait()
	if busy.evicted() || b.Keeps() {
		t.Errorf("evicted: %v; %d streams are kept", busy.evicted(), b.Kept())
	}
}
