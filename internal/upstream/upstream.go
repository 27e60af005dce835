// Package upstream makes requests to the servers behind this one. A [Pool] has one or
// several of them, with connections that are kept, balancing, health, retries within a
// budget, a circuit breaker and a bounded queue that keeps a slow server from being
// overloaded. It has a [Request] and an [Answer] of its own; net/http's are made of them
// at the edge, for HTTP/2 and for [Pool.RoundTrip] (message.go).
//
// # A request's life
//
// Do asks for a place (queue.go): among the servers that are up, not
// ejected, whose breaker lets requests pass and which this request has not
// tried yet, the balance (balance.go) chooses one. Where all of them are full
// the request waits its turn, first come, first served; where the queue is full,
// too, or the wait takes too long, it ends with [ErrBusy]. A place is held until all
// of the answer has come from the network, or its body is closed. Upgraded connections (101, such as
// WebSockets) and event streams may last for hours: from their header on they
// do not count as running any more but against Options.Streams.
//
// One try over HTTP/1.1 is an [Exchange]. An event loop drives it without waiting (exchange.go),
// or a goroutine, which writes the request, waits and reads the answer itself (drive.go,
// reply.go); the goroutine can go on with what a loop has begun. Idle connections have
// no goroutine (client.go, lines.go); they are looked at before they are used again
// (wire.go). The format is http1's, which refuses what could be read in two ways.
//
// HTTP/2 is net/http's (try.go, transport.go). A server at an https:// address is
// offered both, and asked by what it chose last.
//
//   - An answer must come after its question. Where a server sends more than it
//     announced, the connection is closed, and for a while each request to that
//     server gets a connection of its own (distrust.go).
//   - Every phase has a limit: connecting, the TLS handshake, sending a body,
//     waiting for the header, each read of the body.
//   - Of interim answers (1xx) there are at most maxInterim.
//   - The request's target goes out byte for byte as it came in (address.go).
//   - A request whose context ends is given up at most 2*brief later.
//
// Upgrade (upgrade.go) is for callers that want the connection itself, such as
// the proxy for WebSockets. It is an exchange on a new connection, and a tunnel that waits
// for hours keeps nothing besides that. Do can switch protocols, too; its body is then the
// connection.
//
// # When a try fails
//
// It is repeated, on another server if there is one, as long as no byte of an
// answer has come and the retries' budget allows: whatever the method, if no
// byte of the request has left; else only if the method is idempotent (RFC
// 9110, 9.2.2) and there is no body, or one that can be had again. A server
// that took a request and was too slow is not asked again: it is busy already.
// Answers are never repeated whatever their status, and redirects are never
// followed: both are for the client.
//
// A server is ejected for a while after failures in a row, longer each time;
// its breaker opens when too large a part of its requests fails; and active
// probes, where wanted, take it out until it answers them. Only what the server
// did counts, not requests that the client gave up or made impossible to send.
// If all that are up are ejected, all count again (a panic threshold: an
// ejection must never turn a bad answer into none). A failed probe and a breaker
// that refused connections have opened do turn requests away, with [ErrUnhealthy].
// Failures after a request was sent do not: one page may crash the application,
// which goes on with all others. Those of one request count once.
//
// # Errors
//
// Every failure of a server is one of five sentinels, with its cause wrapped.
// A request whose context was cancelled ends in [context.Canceled], whose
// deadline has passed in [ErrTimeout]. What went wrong on the client's side (its body
// broke off, its Host cannot be sent) is passed on without a sentinel.
package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/wire/field"
	"millrace/internal/wire/lookup"
)

// Pool is a [Doer], and an http.RoundTripper. It must be closed.
type Pool struct {
	options  Options // complete: no zero value means a default any more
	servers  []*server
	errorLog *slog.Logger
	balance  balancer
	weighted bool // not all servers are to get the same
	hashBy   hashKey
	good     *regexp.Regexp // what the body of a good probe has; nil: anything

	started time.Time // times below are counted from it

	mu      sync.Mutex
	queue   queue
	scratch [maxServers]*server // of choose
	turn    int                 // of round_robin
	budget  window              // cell 0: requests, cell 1: retries
	retried uint64

	lookups atomic.Pointer[func()] // see OnLookupFailure

	ctx     context.Context // of the probes, and of connections made for loops
	stop    context.CancelFunc
	working sync.WaitGroup // both
}

// OnLookupFailure registers f, which is called when the name of a server cannot be
// looked up and the addresses that it had are used. f must return at once.
func (p *Pool) OnLookupFailure(f func()) { p.lookups.Store(&f) }

func (p *Pool) lookupFailed() {
	if f := p.lookups.Load(); f != nil {
		(*f)()
	}
}

// dialer connects to an address as [net.Dialer.DialContext] does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// New starts the health checks, if any, and does not wait for them: until they
// say otherwise, every server counts as healthy. No connection is made before it
// is needed. A nil errorLog is slog.Default().
func New(o Options, errorLog *slog.Logger) (*Pool, error) { return start(o, errorLog, nil) }

func start(o Options, errorLog *slog.Logger, dial dialer) (*Pool, error) {
	for _, key := range sortedKeys(o.Check()) {
		return nil, fmt.Errorf("upstream: %s: %w", key, o.Check()[key])
	}
	if errorLog == nil {
		errorLog = slog.Default()
	}
	o = o.complete()
	p := &Pool{
		options:  o,
		errorLog: errorLog,
		balance:  balancers[o.Balance],
		weighted: len(o.Weights) > 0 || o.SlowStart > 0,
		hashBy:   newHashKey(o.HashBy),
		started:  time.Now(),
		budget:   window{cell: budgetWindow / windowCells},
	}
	if body := o.Health.Body; body != "" {
		p.good = regexp.MustCompile(body) // was checked
	}
	var names *lookup.Dialer
	if dial == nil {
		names = &lookup.Dialer{Dialer: net.Dialer{Timeout: o.ConnectTimeout}, Log: errorLog, Kept: p.lookupFailed}
		dial = names.DialContext
	}
	tlsConfig, err := o.TLS.config()
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	for i, to := range o.To {
		a, err := parseAddress(to)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		way := newConnector(a, o.ConnectTimeout, tlsConfig, dial, names)
		p.servers = append(p.servers, newServer(i, a, o, way, errorLog, p.started))
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if o.Health.Path != "" {
		for _, s := range p.servers {
			p.working.Go(func() { p.watch(s) }) // waited for by Close
		}
	}
	return p, nil
}

// call is a request with what its tries have in common.
type call struct {
	pool    *Pool
	ctx     context.Context
	request *Request
	interim Interim
	what    demand
	started *Exchange // by a loop, until the first try; nil: none
}

// Interim is told of an interim answer (1xx), whose fields it may keep. Its error ends the
// request.
type Interim = func(status int, fields field.Lines) error

// Do implements [Doer].
func (p *Pool) Do(ctx context.Context, q *Request, interim Interim) (*Answer, error) {
	return p.Continue(ctx, q, nil, interim)
}

// Continue is Do for a request that an event loop has begun, in whatever state it is: it
// waits for the answer, or for a place first if the request was not sent. q must be the
// request that x was made of, and has the body. x, if it is not nil, is the answer's from
// then on, and must not be used again.
func (p *Pool) Continue(ctx context.Context, q *Request, x *Exchange, interim Interim) (*Answer, error) {
	up := newUpload(q.Body, p.options.BodyTimeout)
	k := &call{pool: p, ctx: ctx, request: q, interim: interim}
	if err := q.check(); err != nil {
		up.abandon()
		if x != nil {
			x.Discard()
		}
		return nil, err
	}
	if x == nil {
		k.what = p.demandOf(q, false)
		return p.repeat(k, up, place{}, p.try)
	}
	if err := k.goOn(x); err != nil {
		up.abandon()
		return nil, err
	}
	return p.repeat(k, up, x.place, p.try)
}

// goOn prepares the first try with what a loop has begun. It waits for a place, if the loop
// has none.
func (k *call) goOn(x *Exchange) error {
	if k.what = x.what; x.step == waiting {
		if err := x.await(k.ctx); err != nil {
			return err
		}
	}
	x.count(x.pool.now())
	if x.step != ended { // where it could not be sent
		k.started = x
	}
	return nil
}

// repeat acquires a place for a request and calls try with it, until there is an answer
// or the failure may not be repeated. try releases the place, or its answer's body does.
// has is a place that the request already holds; the zero one: none.
func (p *Pool) repeat(k *call, up *upload, has place, try func(*call, place, *upload) (*Answer, *failure)) (*Answer, error) {
	defer func() { up.settle() }()
	what, again := &k.what, false
	for n := 1; ; n++ {
		c, err := has, error(nil)
		if has = (place{}); c.server == nil {
			c, err = p.acquire(k.ctx, *what)
		}
		if err != nil {
			up.abandon()
			return nil, err
		}
		what.tried, c.again = what.tried.with(c.server), again
		step := trace.Begin(k.ctx, trace.Attempt)
		a, f := try(k, c, up)
		step.End(c.server.name, f.cause())
		if f == nil && !p.unwelcome(k, a, up, n) {
			p.stick(a, *what, c.server, k.request.Secure)
			return a, nil
		}
		var next *upload
		if f == nil {
			a.Body.Close() // which gives the place back
		} else if body, ok := p.again(k, f, up, n); ok {
			next, again = body, again || f.sent
		} else {
			up.abandon()
			return nil, f.err
		}
		if up = next; len(p.servers) == what.tried.len() && !pause(k.ctx, n) {
			up.abandon()
			return nil, interrupted(k.ctx)
		}
	}
}

// Server is one address, as it is now.
type Server struct {
	Address         string        // as in Options.To
	Healthy         bool          // its probes succeed and it is not ejected
	Drained         bool          // it gets no new requests: see Drain
	Open            bool          // circuit breaker open: no requests now
	Running         int           // requests that hold a place
	Streams         int           // upgraded connections and event streams
	Latency         time.Duration // moving average to the header
	Requests, Fails uint64        // tries, and those that the server failed
	Unasked         uint64        // connections on which it sent what nobody had asked for
}

// Servers lists the addresses in their order.
func (p *Pool) Servers() []Server {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Server, 0, len(p.servers))
	for _, s := range p.servers {
		out = append(out, Server{
			Address:  s.name,
			Healthy:  !s.down && now >= s.ejectedUntil,
			Drained:  s.drained,
			Open:     s.breaker.isOpen(),
			Running:  s.running,
			Streams:  s.streams,
			Latency:  time.Duration(s.latency.nanos),
			Requests: s.requests,
			Fails:    s.fails,
			Unasked:  s.distrust.count.Load(),
		})
	}
	return out
}

// Waiting is how many requests are queued.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.len
}

// Retried counts repeated tries.
func (p *Pool) Retried() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retried
}

// Close ends the health checks and idle connections; running requests go on.
func (p *Pool) Close() error {
	p.stop()
	p.working.Wait()
	for _, s := range p.servers {
		s.distrust.over.Store(true)
		if s.client != nil {
			s.client.close()
		}
		if t, ok := s.transport.(interface{ CloseIdleConnections() }); ok {
			t.CloseIdleConnections()
		}
	}
	return nil
}

// now is the time since the pool was made, by the monotonic clock.
func (p *Pool) now() time.Duration { return time.Since(p.started) }

// at is a moment on the pool's clock; the zero time: now.
func (p *Pool) at(t time.Time) time.Duration {
	if t.IsZero() {
		return p.now()
	}
	return t.Sub(p.started)
}
