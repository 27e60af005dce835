package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"millrace/store"
)

// This file is about what a machine knows of messages that it has not received: whether
// it has all, and whether it could have more.

// hearing says whether all messages were received that are there.
type hearing struct {
	atomic.Bool
	mu   sync.Mutex
	wait chan struct{} // closed by wake; nil: nobody waits
}

// set reports whether that is a change.
func (h *hearing) set(all bool) bool {
	if h.Swap(all) == all {
		return false
	}
	h.wake()
	return true
}

// wake has those look again who wait for a change of what is heard, or could be.
func (h *hearing) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wait != nil {
		close(h.wait)
		h.wait = nil
	}
}

// changes is closed at the next change. Look after it was called.
func (h *hearing) changes() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wait == nil {
		h.wait = make(chan struct{})
	}
	return h.wait
}

// rounds numbers the attempts of something that is tried again and again.
type rounds struct{ begun, failed atomic.Uint64 }

// next is the number of the first that begins from now on.
func (r *rounds) next() uint64 { return r.begun.Load() + 1 }

// lost notes that messages may be there which were not received.
func (r *Redis) lost() {
	if r.caughtUp.set(false) {
		r.o.OnLag()
	}
}

// CaughtUp reports whether this machine listens, and has received all messages so far.
func (r *Redis) CaughtUp() bool { return r.caughtUp.Load() }

// errLagging tells that the server can be reached, but what was published is not yet read.
var errLagging = errors.New("messages of other machines are still to be read")

// CatchUp returns nil when all messages were received that were published before the call.
// It returns ErrDown if the server cannot be reached, or used: that is tried from now on, in
// a few milliseconds, which many calls share. If it can, but the messages do not come within
// Timeout, that is another error. Of a cluster, or a server that was found through a
// Sentinel, it says only what is known already.
func (r *Redis) CatchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	var check, step uint64 // the first that begin from now on
	for {
		changed := r.caughtUp.changes()
		up := r.health.up()
		switch {
		case r.caughtUp.Load():
			return nil
		case r.closing.Err() != nil:
			return store.ErrClosed
		case !up && check == 0:
			if !r.contact.made(ctx, r) {
				return fmt.Errorf("catching up with redis: %w", store.ErrDown)
			}
			check = r.checks.next()
			ring(r.contact.again)
			continue
		case up && step == 0:
			step = r.steps.next()
			ring(r.contact.listen)
			continue
		case !up && r.checks.failed.Load() >= check, up && r.steps.failed.Load() >= step:
			return fmt.Errorf("catching up with redis: %w: it answers, but cannot be used", store.ErrDown)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errLagging
		}
	}
}

const (
	// contactTime is how long a server may take to answer that is near. One that is far
	// has four times as long as it has usually taken besides.
	contactTime = 20 * time.Millisecond
	// contactPause lies between two attempts at least: many machines may try.
	contactPause = 10 * time.Millisecond
)

// contact finds out whether a server that was down answers. Whoever asks gets the result
// of an attempt that began after that: what an earlier one has met may be over.
type contact struct {
	mu     sync.Mutex
	next   *attempt // not begun yet
	busy   bool
	usual  atomic.Int64  // nanoseconds that the server takes
	again  chan struct{} // tells the supervisor that the server answers
	listen chan struct{} // tells listen that it is worth while
}

// took notes how long a server that works has taken. usual follows slowly: one late answer
// must not have each request wait for as long in the next outage.
func (c *contact) took(d time.Duration) {
	before := c.usual.Load()
	if before == 0 {
		before = int64(d)
	}
	c.usual.Store(before + (int64(d)-before)/8)
}

type attempt struct {
	done chan struct{}
	made bool
}

// made reports whether the server answers now.
func (c *contact) made(ctx context.Context, r *Redis) bool {
	c.mu.Lock()
	if c.next == nil {
		c.next = &attempt{done: make(chan struct{})}
	}
	a := c.next
	if !c.busy && r.closing.Err() == nil {
		c.busy = true
		r.wg.Go(func() { c.try(r) })
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.made
	case <-ctx.Done():
	case <-r.closing.Done():
	}
	return false
}

// try makes attempts as long as somebody asks.
func (c *contact) try(r *Redis) {
	for {
		c.mu.Lock()
		a := c.next
		c.next = nil
		if a == nil {
			c.busy = false
		}
		c.mu.Unlock()
		if a == nil {
			return
		}
		pause := time.After(contactPause)
		a.made = r.answers() == nil
		close(a.done)
		select {
		case <-pause:
		case <-r.closing.Done():
		}
	}
}

// answers connects to the server once more, and asks for a sign of life. Any answer is one,
// but for that of a server which reads its data.
func (r *Redis) answers() error {
	if l := r.link.Load(); len(r.client.InitAddress) != 1 || r.client.Sentinel.MasterSet != "" || l != nil && l.write.Mode() != rueidis.ClientModeStandalone {
		return store.ErrDown
	}
	ctx, cancel := context.WithTimeout(r.closing, min(contactTime+4*time.Duration(r.contact.usual.Load()), r.o.Timeout))
	defer cancel()
	c, err := r.dial(ctx, r.client.InitAddress[0], new(net.Dialer), r.client.TLSConfig)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReaderSize(c, 512).ReadSlice('\n')
	if err != nil {
		return err
	}
	if line[0] == '+' || line[0] == '-' && !notReady(word(string(line[1:]))) {
		return nil
	}
	return fmt.Errorf("it says %q", line)
}

// notReady reports whether an error says that nothing works until something is over.
func notReady(code string) bool {
	switch code {
	case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY":
		return true
	}
	return false
}

// ring fills a channel with room for one.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
