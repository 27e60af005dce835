package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/load/client"
)

// slow is the driver for what the epoll loops do not speak: a goroutine for
// each connection, or for each stream of one. Its tally has one lock, which
// costs nothing beside a TLS record or an HTTP/2 frame.
type slow struct {
	*plan
	dialer client.Dialer
	ctx    context.Context // ends with stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
	fulls  chan struct{}
	due    chan int64    // open loop: arrivals that are due, for whoever is free
	slots  chan struct{} // for those that are opening
	tried  chan struct{} // closed when all connections were tried

	mu       sync.Mutex
	mayAsk   sync.Cond // something changed that a goroutine without a request waits for
	running  bool
	stopped  bool
	untried  int
	opened   int
	limited  bool
	left     uint64 // requests still to be sent
	notified bool   // that none is left, and none in flight
	supply   *supply
	streams  []stream // of all connections, in their order
	flying   uint64
	flownAt  int64
	opensAt  int64
	cutAt    int64
	used     cpu
	arrivals *arrivals
	pages    []page
	connect  Histogram
	cur      *tally
	other    *tally
	gaps     gaps // of closed loops
}

func newSlow(p *plan) (driver, error) {
	p.Threads = 1 // its goroutines run where they like
	var sources atomic.Uint32
	o := client.Options{
		Protocol: string(p.Protocol), URL: p.URL, Paths: p.Paths, Header: p.Header, Insecure: p.Insecure,
		Message: p.Message, Streams: p.Streams, Timeout: p.Timeout, Address: p.ConnectTo,
		TLS: &tls.Config{SessionTicketsDisabled: true}, // each connection does a whole handshake
	}
	if p.TLS != nil {
		o.TLS = p.TLS.Clone()
		o.TLS.SessionTicketsDisabled = true
	}
	if p.Protocol != WebSocket { // its requests are made by steps
		o.Paths, o.Header = []string{"/"}, nil
	}
	if host, _, err := net.SplitHostPort(p.address); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil {
			p.spread(ip)
		}
	}
	if p.Sources > 0 {
		o.LocalAddr = func() net.Addr {
			return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+int(sources.Add(1)-1)%p.Sources))}
		}
	}
	dialer, err := client.New(o)
	if err != nil {
		return nil, err
	}
	return newSlowOver(p, dialer), nil
}

// newSlowOver makes the driver over a dialer, which stop closes.
func newSlowOver(p *plan, dialer client.Dialer) *slow {
	d := &slow{
		plan: p, dialer: dialer, fulls: make(chan struct{}, 1), due: make(chan int64),
		slots: make(chan struct{}, maxDialing), tried: make(chan struct{}),
		untried: p.Connections, pages: make([]page, len(p.steps)), supply: newSupply(p, 0), cur: newTally(p), other: newTally(p), used: usage(),
		streams: make([]stream, p.Connections*max(p.Streams, 1)),
	}
	for i := range d.streams {
		d.streams[i].page, d.streams[i].visitor = p.first(i), p.newVisitor(d.supply)
	}
	d.mayAsk.L = &d.mu
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// maxDialing bounds the connections that are being opened: a handshake is work
// for the target too.
const maxDialing = 128

// open starts a goroutine for each connection; stop ends and awaits them.
func (d *slow) open(ctx context.Context) error {
	for i := range d.Connections {
		d.wg.Go(func() { d.keep(i) })
	}
	select {
	case <-d.tried:
	case <-time.After(openGrace):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (d *slow) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Arrival != Closed {
		d.arrivals = newArrivals(&d.Config, 0, 1, d.clock())
		d.wg.Go(d.dispatch) // ends with d.ctx
	}
	d.running = true
	d.mayAsk.Broadcast()
}

func (d *slow) full() <-chan struct{} { return d.fulls }

func (d *slow) stop() ending {
	d.mu.Lock()
	d.stopped = true
	d.mayAsk.Broadcast()
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
	e := ending{connect: d.connect, answers: make([]Answer, len(d.steps)), gaps: d.gaps.spans}
	for i := range d.steps {
		if d.pages[i].sample.done {
			e.answers[i] = d.pages[i].sample.Answer
		}
		e.answers[i].Path = d.pathOf(i)
	}
	if err := d.dialer.Close(); err != nil {
		e.err = fmt.Errorf("end the connections: %w", err)
	}
	return e
}

func (d *slow) cut(why cutReason) *tally {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	if why == windowCloses {
		if d.arrivals != nil {
			d.cur.dropped += d.arrivals.skip(now, d.opensAt)
		}
		d.running = false
		for i := range d.streams {
			if s := &d.streams[i]; s.asked > 0 {
				d.cur.under(s.asked, now, d.opensAt)
			}
		}
	}
	d.fly(now, 0)
	t := d.cur
	t.took, t.open, t.flying = time.Duration(now-d.cutAt), d.opened, d.flying
	d.cutAt = now
	used := usage()
	t.cpu, d.used = used.sub(d.used), used
	d.cur, d.other = d.other, t
	d.cur.reset()
	switch {
	case why == windowOpens && d.Arrival == Closed:
		d.gaps.open(now)
	case why == windowCloses:
		d.gaps.close(now)
	}
	if why == windowOpens {
		d.opensAt = now
		d.limited, d.left = d.Requests > 0, d.Requests
	}
	return t
}

// fly counts requests in flight over time.
func (d *slow) fly(now int64, change int) {
	d.cur.requestTime += int64(d.flying) * (now - d.flownAt)
	d.flownAt = now
	d.flying += uint64(change)
}

// dispatch hands out arrivals when they are due. A single goroutine waits for
// the time, as exactly as the system can, and then for one that is free.
func (d *slow) dispatch() {
	for d.ctx.Err() == nil {
		d.mu.Lock()
		now := d.clock()
		d.cur.dropped += d.arrivals.skip(now-int64(d.Timeout), d.opensAt)
		next := d.arrivals.next
		d.mu.Unlock()
		if next > now {
			// In short steps, to see the end.
			nap(min(next-now, int64(10*time.Millisecond)))
			continue
		}
		select {
		case d.due <- next:
			d.mu.Lock()
			if d.arrivals.next == next { // else it was dropped with the rest
				d.arrivals.pop()
			}
			d.mu.Unlock()
		case <-d.ctx.Done():
		}
	}
}
