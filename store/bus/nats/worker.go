package nats

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"millrace/store/bus"
)

const (
	// liveQueue is how many messages from the server may wait for a worker,
	// which only hands them on. One that does not fit is lost, the connection
	// says so, and it is read from the stream.
	liveQueue = 8192
	// eventQueue is how many other things may: whoever has one waits.
	eventQueue = 64
	// heldMost is how many messages a channel holds back while what came before
	// them is read, and heldBytes how much a worker's channels do. What is more
	// is read from the stream too.
	heldMost  = 1024
	heldBytes = 32 << 20
	// waiting is the fill of a channel until the next reading of the stream.
	waiting = math.MaxUint64
)

// worker delivers the publications of a part of the channels, one after the
// other.
type worker struct {
	b      *Bus
	live   chan *nats.Msg
	events chan func()
	// Of run alone: what is held back, and by whom.
	heldSize int // bytes
	holding  map[*channel]bool
	// settled: what the stream had up to this number, and what came of it, was
	// taken from live. It moves on for channels on which nothing happens.
	settled uint64

	mu       sync.Mutex // never held while the listener is called
	channels map[string]*channel
	pending  map[string]*pending // by key
}

// channel is one that is listened to. What is not marked belongs to worker.run.
type channel struct {
	name  string
	token string
	sub   *nats.Subscription // under worker.mu
	// base is a number up to which nothing is due: the highest that was seen
	// before Listen, then the top of the first History behind it. Under
	// worker.mu.
	base  uint64
	based bool // by History
	// seen is the last number that was delivered.
	seen uint64
	// gap is the number after which something may be missing, while it is being
	// read: fill is not 0 then, and says by which reading.
	fill  uint64
	gap   uint64
	count int64 // messages read
	held  []*nats.Msg
	again bool // more came than could be held
	// owed are publications that were delivered here without a place, are in
	// the stream, and have not come back yet. By key.
	owed map[string]*pending
	// local counts the publications that were delivered here and have no place yet.
	// asked: since then somebody has begun to read the history, who will find them
	// neither there nor among the deliveries.
	local int
	asked bool
}

func newWorker(b *Bus) *worker {
	return &worker{
		b:        b,
		live:     make(chan *nats.Msg, liveQueue),
		events:   make(chan func(), eventQueue),
		holding:  map[*channel]bool{},
		channels: map[string]*channel{},
		pending:  map[string]*pending{},
	}
}

func (b *Bus) worker(token string) *worker {
	return b.workers[maphash.String(b.seed, token)%workers]
}

// run delivers until Close.
func (w *worker) run() {
	for {
		select {
		case <-w.b.ctx.Done():
			return
		default:
		}
		select {
		case m := <-w.live:
			w.take(m)
		case f := <-w.events:
			f()
		case <-w.b.ctx.Done():
			return
		}
	}
}

// do has f called by run. It reports false if the bus closes: f may not be
// called then.
func (w *worker) do(f func()) bool {
	select {
	case w.events <- f:
		return true
	case <-w.b.ctx.Done():
		return false
	}
}

// await is do, and waits for it.
func (w *worker) await(f func()) bool {
	done := make(chan struct{})
	if !w.do(func() { f(); close(done) }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-w.b.ctx.Done():
		return false
	}
}

// Listen implements [bus.Bus].
func (b *Bus) Listen(name string) error {
	if err := bus.CheckChannel(name); err != nil {
		return err
	}
	if err := b.ended(); err != nil {
		return err
	}
	token := encode(name)
	w := b.worker(token)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.channels[token] != nil {
		return nil
	}
	c := &channel{name: strings.Clone(name), token: token, base: b.order.highest()}
	sub, err := b.nc.ChanSubscribe(b.out(token), w.live)
	if err != nil {
		return fmt.Errorf("subscribing to a channel: %w", err)
	}
	c.sub = sub
	w.channels[token] = c
	return nil
}

// Ignore implements [bus.Bus].
func (b *Bus) Ignore(name string) {
	token := encode(name)
	w := b.worker(token)
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.channels[token]; c != nil {
		_ = c.sub.Unsubscribe() // fails when the connection is closed only
		delete(w.channels, token)
	}
}

// based notes the top of a channel's history: who has read that needs nothing from
// before.
func (w *worker) based(token string, top uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.channels[token]; c != nil && !c.based {
		c.base, c.based = max(c.base, top), true
	}
}

// position is the number up to which nothing is missing.
func (w *worker) position(c *channel) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(c.seen, c.base)
}

// find returns the channel of a message that came by its subscription.
func (w *worker) find(token string, sub *nats.Subscription) *channel {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.channels[token]
	if c == nil || sub != nil && c.sub != sub {
		return nil
	}
	return c
}

// mark moves settled to a number when everything that has come by now was handled. It
// does nothing if the queue is full: the next one will do.
func (w *worker) mark(settled uint64) {
	select {
	case w.live <- &nats.Msg{Reply: strconv.FormatUint(settled, 10)}: // of no subscription
	default:
	}
}

// take gives a message from the server to the listener, or holds it back until what is
// missing before it was read.
func (w *worker) take(m *nats.Msg) {
	if m.Sub == nil {
		if settled, err := strconv.ParseUint(m.Reply, 10, 64); err == nil {
			w.settled = max(w.settled, settled)
		}
		return
	}
	s, before, ok := w.b.live(m)
	if !ok {
		return
	}
	c := w.find(s.token, m.Sub)
	if c == nil {
		return
	}
	if c.fill != 0 {
		w.hold(c, m)
		return
	}
	at := w.position(c)
	if !w.b.link.inStep() {
		c.fill, c.gap, c.count = waiting, max(at, w.settled), 0
		w.hold(c, m)
		return
	}
	if before > at {
		w.hold(c, m)
		w.fillGap(c, at)
		return
	}
	w.deliver(c, s)
}

func (w *worker) hold(c *channel, m *nats.Msg) {
	if c.again || len(c.held) >= heldMost || w.heldSize+len(m.Data) > heldBytes {
		c.again = true
		return
	}
	c.held = append(c.held, m)
	w.holding[c] = true
	w.heldSize += len(m.Data)
}

// takeHeld returns the messages that a channel holds back, and holds none from then
// on.
func (w *worker) takeHeld(c *channel) []*nats.Msg {
	held := c.held
	c.held = nil
	delete(w.holding, c)
	for _, m := range held {
		w.heldSize -= len(m.Data)
	}
	return held
}

// deliver hands a message to the listener, unless it was before.
func (w *worker) deliver(c *channel, s stored) {
	if s.seq <= c.seen {
		return
	}
	c.seen = s.seq
	w.b.order.saw(s.seq)
	w.b.meters.Read.Add(0, uint64(len(s.data)))
	key := s.header.Get(nats.MsgIdHdr)
	w.mu.Lock()
	p := w.pending[key]
	if p == nil {
		p = c.owed[key]
		delete(c.owed, key)
	}
	mine, placed, asked := false, false, false
	if p != nil {
		mine, placed = p.local == c, p.placed
		p.echoed = s.seq
		p.placed = p.placed || mine
		asked = mine && !placed && c.settle()
	}
	w.mu.Unlock()
	switch {
	case !mine:
		w.b.listener.Deliver(s.message(c.name))
	case !placed:
		w.b.listener.Placed(c.name, p.message.ID, s.seq)
	}
	if asked {
		w.b.listener.Reset(c.name)
	}
}

// settle notes that a publication which was delivered here has its place, or is lost. It
// reports whether somebody may have missed it: after the last one, so that they ask once.
// It is called under mu.
func (c *channel) settle() (asked bool) {
	if c.local--; c.local > 0 {
		return false
	}
	asked, c.asked = c.asked, false
	return asked
}

// asks notes that a history of a channel is about to be read.
func (w *worker) asks(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.channels[token]; c != nil && c.local > 0 {
		c.asked = true
	}
}

// fillGap reads from the stream what a channel is missing after a number.
func (w *worker) fillGap(c *channel, after uint64) {
	id := w.b.fills.Add(1)
	c.fill, c.gap, c.count = id, after, 0
	err := w.b.ask(func(ctx context.Context) {
		all, err := w.b.read(ctx, c.token, after)
		whole := false
		if err == nil {
			whole, err = w.b.whole(ctx, c.token, after, all)
		}
		w.do(func() {
			switch {
			case c.fill != id:
				// A reading of all channels has begun meanwhile.
			case err != nil:
				w.b.log.Warn("reading what a channel missed", "channel", c.name, "error", err)
				w.b.link.note(func() { w.b.link.missed = true })
			default:
				for _, s := range all.messages {
					w.deliver(c, s)
				}
				w.filled(c, whole)
			}
		})
	})
	if err != nil {
		w.b.link.note(func() { w.b.link.missed = true })
	}
}

// filled ends a reading.
func (w *worker) filled(c *channel, whole bool) {
	c.fill = 0
	if w.find(c.token, nil) != c {
		w.takeHeld(c)
		return
	}
	if !whole && w.b.ctx.Err() == nil {
		w.b.listener.Reset(c.name)
	}
	// What was too much to hold came after what is held; seen is behind the
	// gap, so the last one held tells where it begins.
	again := c.again
	c.again = false
	for _, m := range w.takeHeld(c) {
		if !whole {
			// A gap before it has been told.
			if s, _, ok := w.b.live(m); ok {
				w.deliver(c, s)
			}
			continue
		}
		w.take(m)
	}
	switch {
	case again && c.fill != 0:
		c.again = true
	case again:
		w.fillGap(c, w.position(c))
	}
}

// begin prepares all channels for a reading of the whole stream. It returns how many
// there are, and the number behind which to read.
func (w *worker) begin(id uint64) (n int, from uint64) {
	from = math.MaxUint64
	for _, c := range w.all() {
		at := max(w.position(c), w.settled)
		if c.fill != 0 {
			at = max(c.gap, c.seen)
		}
		c.fill, c.gap, c.count = id, at, 0
		from = min(from, at)
		n++
	}
	return n, from
}

// read delivers what a reading has found.
func (w *worker) read(id uint64, found []stored) {
	for _, s := range found {
		c := w.find(s.token, nil)
		if c == nil || c.fill != id || s.seq <= c.gap {
			continue
		}
		c.count++
		w.deliver(c, s)
	}
}

// end ends a reading up to the number until. now is the stream after it; first says
// that it was the first one, so that nothing can have been missed before.
func (w *worker) end(id, until uint64, now info, first bool) {
	w.settled = max(w.settled, until)
	for _, c := range w.all() {
		if c.fill == id {
			count := c.count + int64(len(c.held))
			if c.again {
				count += heldMost
			}
			w.mu.Lock()
			c.base = max(c.base, until)
			w.mu.Unlock()
			w.filled(c, first || now.reaches(c.gap, count))
		}
		if c.fill == waiting && w.b.link.inStep() { // since after begin: take will see
			w.filled(c, true)
		}
	}
	for c := range w.holding {
		if w.find(c.token, nil) != c { // ignored meanwhile
			w.takeHeld(c)
		}
	}
}

// reset forgets all positions: the order begins anew. What waits to be taken
// is of the old one, or is read from the new one.
func (w *worker) reset() {
	for len(w.live) > 0 {
		<-w.live
	}
	w.settled = 0
	for _, c := range w.all() {
		w.mu.Lock()
		c.base = 0
		c.owed = nil
		w.mu.Unlock()
		c.seen, c.fill, c.gap, c.count, c.again = 0, 0, 0, 0, false
		w.takeHeld(c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pending {
		if p.placed && p.local != nil {
			p.local.local++
		}
		p.echoed, p.placed = 0, false
	}
}

func (w *worker) all() []*channel {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.channels))
}
