// Package server owns the listeners, the connections and the ResponseWriter.
// A connection is accepted here, put behind the fast lane, and given to
// net/http, which calls ServeHTTP for what the lane does not answer.
package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/process/steer"
	"millrace/internal/route/site"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/stall"
)

// Options are the limits of the server. A zero field has the default given
// beside it. Durations are checked about every quarter of the shortest one,
// at most once a second: they may be exceeded by that much.
type Options struct {
	// HeaderTimeout is how long a client may take from the first byte of a
	// request to the end of its header. Default 10s.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// BodyTimeout is how long an upload may make no progress, and how far it may
	// be behind body_rate. Default 30s.
	BodyTimeout time.Duration `yaml:"body_timeout"`
	// WriteTimeout is how long a client may take no byte of its answer. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// IdleTimeout is how long a connection may wait for its next request. Default 75s.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// HandshakeTimeout bounds the TLS handshake. Default 10s.
	HandshakeTimeout time.Duration `yaml:"handshake_timeout"`
	// DrainTimeout is how long running requests may take after SIGTERM. Default 30s.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// HeaderBytes is the most a request's header may have. Default 64KiB.
	HeaderBytes bytesize.Size `yaml:"header_bytes"`
	// BodyBytes is the most a request's body may have. Default 100MiB.
	BodyBytes bytesize.Size `yaml:"body_bytes"`
	// BodyRate is the least an upload may send, as bytes a second; what falls
	// body_timeout behind that is cut off. With 1B nearly anything passes.
	// Default 500B.
	BodyRate bytesize.Size `yaml:"body_rate"`
	// WriteRate is the least a client may take of an answer that waits for it, as
	// bytes a second over TCP; what falls write_timeout behind that is cut off. With
	// 1B nearly anything passes. Default 100B.
	WriteRate bytesize.Size `yaml:"write_rate"`
	// Connections is how many clients may be connected at once; further ones
	// wait in the kernel's queue. Idle connections are closed for them, and then
	// those whose clients are slow. Default 16384, and never more than three
	// quarters of the process's file descriptors together with WebSockets (nearly
	// all, where there are only WebSockets or "websockets" asks for that).
	Connections int `yaml:"connections"`
	// ConnectionsPerAddress is how many of them one address may have: an IPv4
	// address, or an IPv6 network of 64 bits. More are refused, unless others of
	// that address are idle or slow. Default: half of connections.
	ConnectionsPerAddress int `yaml:"connections_per_address"`
	// TrustedProxies are addresses or networks of proxies and load balancers in
	// front, which bring many clients: connections_per_address is not for them.
	// Those in trust_forwarded of a route are meant as well.
	// What they say of the client in client_header is believed: the access log
	// has the client's address instead of theirs.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// ClientHeader is the field in which trusted proxies name the client:
	// X-Forwarded-For, Forwarded, X-Real-IP, CF-Connecting-IP or another that
	// has one address, or a list that each proxy adds to. Name one that your
	// proxy always sets itself: what it passes on unread anybody can write.
	// Default X-Forwarded-For.
	ClientHeader string `yaml:"client_header"`
	// StalledStreams is how many streams of HTTP/2 and HTTP/3 may wait for their
	// clients, which give them no window or read nothing; one address may have half of
	// them. When there are more, connections of the address that has most are closed,
	// those with most such streams first. Each takes up to 32 KiB. The same holds for
	// four times as many answers of HTTP/3 that are in a client's packets already, of
	// 5 KiB each; from a quarter of them on, new clients get 10 streams at a time
	// instead of 100. Default 1024.
	StalledStreams int `yaml:"stalled_streams"`
	// UpgradeTimeout is how long an old process goes on with downloads, uploads,
	// streams and WebSockets after `millrace upgrade`. Then WebSockets are told to
	// come back (1012), each after a time of its own, and a drain ends the rest.
	// Default 10m.
	UpgradeTimeout time.Duration `yaml:"upgrade_timeout"`
	// WebSockets is how many WebSockets may be open at once, of all routes;
	// further ones are refused with 503. Default: where nothing but WebSockets is
	// served, nearly all file descriptors of the process (97 of 100, two of them
	// for each proxied WebSocket); else what connections leaves of three quarters
	// of them, at least half of that. As many as by the first rule can be asked
	// for; the banner says how many there are.
	WebSockets int `yaml:"websockets"`
	// WebSocketsPerAddress is how many of them one address may have: an IPv4
	// address, or an IPv6 network of 64 bits. More are refused with 503. It is
	// not for trusted_proxies; give more to a load generator or to a network behind
	// one address. Default: half of websockets.
	WebSocketsPerAddress int `yaml:"websockets_per_address"`
}

// bounds returns the limits of connections.
func (s *Setup) bounds() bounds {
	o := s.Limits.withDefaults()
	b := bounds{all: o.Connections, each: o.ConnectionsPerAddress, descriptors: s.Share().Usable, sockets: s.Sockets, trusted: s.Trusted}
	if b.descriptors > 0 {
		b.all = min(b.all, b.descriptors)
	}
	if b.each <= 0 {
		b.each = max(1, b.all/2)
	}
	return b
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.HeaderTimeout, 10 * time.Second},
		{&o.BodyTimeout, 30 * time.Second},
		{&o.WriteTimeout, 30 * time.Second},
		{&o.IdleTimeout, 75 * time.Second},
		{&o.HandshakeTimeout, 10 * time.Second},
		{&o.DrainTimeout, 30 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.HeaderBytes <= 0 {
		o.HeaderBytes = 64 << 10
	}
	if o.BodyBytes <= 0 {
		o.BodyBytes = 100 << 20
	}
	if o.BodyRate <= 0 {
		o.BodyRate = 500
	}
	if o.WriteRate <= 0 {
		o.WriteRate = 100
	}
	if o.Connections <= 0 {
		o.Connections = 16384
	}
	if o.StalledStreams <= 0 {
		o.StalledStreams = 1024
	}
	return o
}

// Setup is everything that a reload may change.
type Setup struct {
	Listen []string // plain addresses: host:port, :port, unix:/path
	TLS    TLSOptions
	// Inherited are sockets that listen already. One is used for each address of Listen
	// and TLS that it listens on.
	Inherited []*os.File
	// Listeners are plain listeners that the program has opened itself.
	Listeners []net.Listener
	// Successor: Inherited comes from a process that this one takes over from.
	// Generation changes with each takeover.
	Successor  bool
	Generation steer.Generation
	// OwnTickets are the predecessor's keys of session tickets; empty: there are none.
	OwnTickets []byte
	Limits     Options // HeaderBytes only counts at the start
	Log        *accesslog.Log
	// Trusted reports whether an address is a proxy with many clients; nil: none is.
	// Sockets returns how many descriptors WebSockets use; nil: none.
	Trusted func(netip.Addr) bool
	Sockets func() int
	// SocketDescriptors is how many descriptors one WebSocket may use; 0: there are no
	// WebSockets. OnlySockets: no job needs descriptors for files or upstreams.
	SocketDescriptors int
	OnlySockets       bool
	// Clients finds the client behind a trusted proxy; nil: no proxy is trusted.
	Clients *netset.Finder
	// Tracing says where traces and slow requests go.
	Tracing Tracing
	// ProxyProtocolFrom are load balancers whose connections begin with a PROXY header.
	ProxyProtocolFrom netset.Set
	Tickets           SharedTickets
	// Auto gets certificates by ACME; nil: all certificates are in files.
	Auto Certifier
	// Responders sends OCSP requests about certificates in files; nil: these are served
	// without OCSP answers. A program that leaves it out has no HTTP client linked in.
	Responders Responders
	// HTTP3 serves HTTP/3 where TLS.HTTP3 asks for it; nil: this build cannot.
	HTTP3 HTTP3

	Plain, Secure *site.Table // the routing tables of the plain and the TLS listeners
}

// Server is a running server:
//
//	New ──Run──▶ serving ──ctx ends──▶ draining ──nobody left, or time over──▶ closed
//	               │                       ▲
//	               └──ctx ends after SetSuccessor──▶ serving what remains ──┘
//
// Reload is possible at any time before it is closed. Close leads to closed at once. The
// states are channels and contexts that goroutines wait for, so there is no field for
// them: life.handshakes ends, and http.h1Conns.closed is closed, when the server is.
type Server struct {
	// Not changed after New.
	meters *meter.Meters
	noJob  *meter.Job // of requests that no job answers
	errors *slog.Logger
	lane   *lane.Lane
	http   netHTTP
	life   lifetime

	// Replaced as a whole by a reload, and read by every request.
	current       atomic.Pointer[current]
	tls           atomic.Pointer[tls.Config]
	plain, secure lane.Scope

	// These have locks of their own.
	slots   *connSlots
	certs   *certificates
	tickets *ticketKeys
	quic    quicListeners
	streams streams
	budget  *stall.Budget
	copiers copiers
	warn    warnings

	successor atomic.Pointer[successor] // another process serves; nil: none

	mu     sync.Mutex // held by Reload, Run and Close
	reload reloadState
}

// netHTTP is what belongs to net/http.
type netHTTP struct {
	h1, h2           *http.Server
	h1Conns, h2Conns *handoff
	laneH2           *lane.HTTP2 // nil without a lane: then net/http has the connections to itself
}

// lifetime is what Close ends and Run waits for.
type lifetime struct {
	handshakes       context.Context // of TLS handshakes under way
	cancelHandshakes context.CancelFunc

	acceptors sync.WaitGroup // accept loops and handshakes
	conns     sync.WaitGroup // connections that net/http does not have, and what goes on beside them
}

// reloadState is under Server.mu.
type reloadState struct {
	listeners     map[string]*listener
	tlsKey        [sha256.Size]byte // what Server.tls was made of
	ticketKeysRun bool              // a goroutine renews the keys of session tickets
}

// warnings are those that may come again and again.
type warnings struct{ accept, clientFull, evicted, allFull, encrypted, proxyHeader warning }

// current has the settings that a reload may change and every request reads.
type current struct {
	limits Options
	log    *accesslog.Log
	// clients finds the client behind a trusted proxy; nil: no proxy is trusted.
	clients *netset.Finder
	tracing Tracing
	// proxyProtocolFrom are load balancers whose connections begin with a PROXY header.
	proxyProtocolFrom netset.Set
	// generation is in the ids of HTTP/3 connections, so that packets find their process.
	generation steer.Generation
}

// New binds every listener and is ready to run. When one cannot be bound, none is.
func New(setup Setup, lo lane.Options, m *meter.Meters, errorLog *slog.Logger) (*Server, error) {
	limits := setup.Limits.withDefaults()
	s := &Server{
		meters:  m,
		noJob:   m.Job("none"),
		errors:  errorLog,
		slots:   newConnSlots(),
		budget:  stall.NewBudget(func() { m.Refused.TooMany.Add(0, 1) }),
		certs:   &certificates{errors: errorLog},
		tickets: newTickets(errorLog),
		http:    netHTTP{h1Conns: newHandoff(), h2Conns: newHandoff()},
		reload:  reloadState{listeners: map[string]*listener{}},
	}
	s.copiers.budget = s.budget
	s.life.handshakes, s.life.cancelHandshakes = context.WithCancel(context.Background()) //nolint:fatcontext // one for the life of the server
	s.secure.Secure = true
	s.lane = lane.New(lo, lane.Settings{}, []*lane.Scope{&s.plain, &s.secure}, m)
	s.http.h1 = &http.Server{
		Handler:        s,
		MaxHeaderBytes: int(limits.HeaderBytes),
		ConnState:      lane.OnState,
		ConnContext:    connContext,
		ErrorLog:       slog.NewLogLogger(errorLog.Handler(), slog.LevelWarn),
		Protocols:      new(http.Protocols),
	}
	s.http.h1.Protocols.SetHTTP1(true)
	s.http.h2 = newH2(s, limits, s.http.h1.ErrorLog, s.lane.On())
	if !s.lane.On() { // only without the lane does net/http see that a connection is closed
		s.http.h2.Handler = http.HandlerFunc(s.serveH2)
		s.http.h2.ConnState, s.http.h2.ConnContext = s.streams.onState, s.trackH2
	}
	s.http.h1.BaseContext = func(net.Listener) context.Context { return s.lane.WithDrain(context.Background()) }
	s.http.h2.BaseContext = s.http.h1.BaseContext
	s.lane.Budget(s.budget)
	if s.lane.On() {
		base := context.WithValue(s.http.h1.BaseContext(nil), http.ServerContextKey, s.http.h1)
		s.lane.Through(base, &lean.Server{Handler: s, Name: lane.ServerName, Log: s.http.h1.ErrorLog.Printf})
		s.lane.ForwardWith(s)
		var err error
		if s.http.laneH2, err = newLaneHTTP2(s.http.h2); err != nil {
			s.life.cancelHandshakes()
			s.lane.Close()
			return nil, err
		}
	} else if err := screen(s.http.h2); err != nil {
		s.life.cancelHandshakes()
		s.lane.Close()
		return nil, err
	}
	s.tickets.restore(setup.OwnTickets)
	if err := s.Reload(setup); err != nil {
		s.life.cancelHandshakes()
		s.lane.Close()
		return nil, err
	}
	s.warnUnclaimed(setup)
	return s, nil
}

func connContext(ctx context.Context, nc net.Conn) context.Context {
	if c, ok := lane.FromNet(nc); ok {
		return lane.WithConn(ctx, c)
	}
	return ctx
}

// Reload puts a new setup into effect: listeners that are new are bound first,
// and if that fails nothing has changed; then the routing tables are swapped
// and listeners that are gone are closed. Connections live on.
func (s *Server) Reload(setup Setup) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(setup.TLS.Listen) > 0 {
		if err := s.certs.load(setup.TLS.Pairs()); err != nil {
			return err
		}
	}
	files, err := readTLSFiles(setup.TLS)
	if err != nil {
		return err
	}
	fresh, quic, err := s.bind(setup)
	if err != nil {
		return err
	}
	limits := setup.Limits.withDefaults()
	s.current.Store(&current{limits, setup.Log, setup.Clients, setup.Tracing, setup.ProxyProtocolFrom, setup.Generation})
	s.slots.set(setup.bounds())
	s.budget.Set(limits.budgets())
	s.certs.setCertifier(setup.Auto)
	s.setTLS(setup, files)
	s.lane.Set(lane.Settings{
		Header: limits.HeaderTimeout,
		Body:   limits.BodyTimeout, BodyRate: int64(limits.BodyRate),
		Write: limits.WriteTimeout, WriteRate: int64(limits.WriteRate),
		Idle:    limits.IdleTimeout,
		Log:     setup.Log,
		Errors:  s.errors,
		Clients: setup.Clients,

		Announced: s.warnProxyHeader,
		Tracer:    setup.Tracing.Tracer,
	})
	s.secure.Always.Store(setup.TLS.always(quic))
	s.plain.Sites.Store(setup.Plain)
	s.secure.Sites.Store(setup.Secure)
	s.lane.Forget()
	for key, l := range s.reload.listeners {
		if _, keep := fresh[key]; !keep {
			l.close()
			delete(s.reload.listeners, key)
		}
	}
	maps.Copy(s.reload.listeners, fresh)
	s.startHTTP3(quic)
	return nil
}

// Check reads what Reload would read for a setup, and reports what is wrong with it.
func Check(setup Setup, errorLog *slog.Logger) error {
	if len(setup.TLS.Listen) > 0 {
		if err := (&certificates{errors: errorLog}).load(setup.TLS.Pairs()); err != nil {
			return err
		}
	}
	_, err := readTLSFiles(setup.TLS)
	return err
}

// drainQueue is how long listeners go on accepting in a drain: clients that are in the
// kernel's queue have connected before the drain, and are answered.
const drainQueue = 50 * time.Millisecond

// Run serves until ctx ends and then drains: no new connections, running
// requests end, idle connections close. Close cuts that short, as does the
// drain timeout, which is returned as an error.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 2)
	var netHTTP sync.WaitGroup
	for srv, conns := range map[*http.Server]*handoff{s.http.h1: s.http.h1Conns, s.http.h2: s.http.h2Conns} {
		netHTTP.Go(func() {
			if err := srv.Serve(conns); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				failed <- err
			}
		})
	}
	s.mu.Lock()
	for _, l := range s.reload.listeners {
		l.start()
	}
	s.mu.Unlock()
	s.steerHTTP3()
	stopWatch := s.watchStreams()
	var err error
	select {
	case <-ctx.Done():
		err = s.drain()
	case err = <-failed:
	case <-s.http.h1Conns.closed:
	}
	s.Close()
	netHTTP.Wait()
	s.life.acceptors.Wait()
	s.lane.CloseAll() // connections that were between accept and net/http when Close came
	s.quic.wait()
	s.life.conns.Wait()
	stopWatch()
	s.lane.Close()
	return err
}

// drainHandshakes is how long a drain waits for clients whose TLS handshake is under
// way, or that wait for a slot, before it tells the connected clients to leave.
const drainHandshakes = 4 * drainQueue

// drain waits for running requests, for as long as the drain timeout says.
func (s *Server) drain() error {
	if h := s.successor.Load(); h != nil {
		s.serveRemaining(h)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.current.Load().limits.DrainTimeout)
	defer cancel()
	accepted := s.stopAccepting(ctx)
	s.lane.Drain()
	s.quic.drain()
	var h2 error // valid once drained is closed
	drained := make(chan struct{})
	go func() { // ends with ctx at the latest; every way out waits
		defer close(drained)
		if s.http.laneH2 == nil { // else the lane sends GOAWAY
			h2 = s.http.h2.Shutdown(ctx)
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.lane.Open() > 0 || s.quic.open() > 0 || !isClosed(accepted) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			<-drained
			return errors.New("some requests had not ended within drain_timeout and were cut off")
		case <-s.http.h1Conns.closed: // Close was called
			cancel()
			<-drained
			return nil
		}
	}
	<-drained
	if h2 != nil && !errors.Is(h2, http.ErrServerClosed) && !isClosed(s.http.h1Conns.closed) {
		return errors.New("some HTTP/2 requests had not ended within drain_timeout and were cut off")
	}
	return nil
}

// stopAccepting lets the listeners accept who is queued and closes them. The
// channel that it returns is closed when every accepted client is with net/http. That may
// be later than the return: a slow client's handshake delays no other client.
func (s *Server) stopAccepting(ctx context.Context) <-chan struct{} {
	s.mu.Lock()
	for _, l := range s.reload.listeners {
		l.acceptQueued(drainQueue)
	}
	s.mu.Unlock()
	accepted := make(chan struct{})
	go func() { // ends with the acceptors, for which Run waits
		s.life.acceptors.Wait()
		close(accepted)
	}()
	select {
	case <-accepted:
	case <-time.After(drainHandshakes):
	case <-ctx.Done():
	case <-s.http.h1Conns.closed:
	}
	s.mu.Lock()
	for _, l := range s.reload.listeners {
		l.close() // also those that wait for a slot for their last client
	}
	s.mu.Unlock()
	return accepted
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Draining reports whether the server has stopped accepting.
func (s *Server) Draining() bool { return s.lane.Draining() }

// Close ends everything at once. Run returns.
func (s *Server) Close() {
	s.mu.Lock()
	for _, l := range s.reload.listeners {
		l.close()
	}
	s.mu.Unlock()
	s.slots.close()
	s.quic.close()
	_ = s.http.h1Conns.Close()
	_ = s.http.h2Conns.Close()
	s.life.cancelHandshakes()
	// Below TLS first: net/http closes one connection after the other, and
	// the close of a TLS connection waits up to 5 s for a client that does
	// not read.
	s.lane.CloseAll()
	_ = s.http.h1.Close()
	_ = s.http.h2.Close()
}

// Addrs are the URLs under which the server answers. Of one that listens at all
// addresses the host is localhost, 0.0.0.0 for IPv4 alone, [::] for IPv6 alone.
func (s *Server) Addrs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var urls []string
	for _, l := range s.reload.listeners {
		urls = append(urls, l.url())
	}
	const all4, all6, all = "://0.0.0.0:", "://[::]:", "://localhost:"
	for i, url := range urls {
		if other := slices.Index(urls, strings.Replace(url, all4, all6, 1)); other >= 0 && other != i {
			urls[i], urls[other] = strings.Replace(url, all4, all, 1), ""
		}
	}
	urls = slices.DeleteFunc(urls, func(url string) bool { return url == "" })
	return sorted(urls)
}
