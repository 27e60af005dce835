package client

// This file holds connections to a server as slow or hostile clients do: with
// uploads that do not end, answers that are hardly read, and streams of HTTP/2
// that stay open. It is for servers on this machine that are measured, to see
// what becomes of everybody else meanwhile.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// An AbuseKind is what the clients do.
type AbuseKind uint8

// The kinds.
const (
	// Uploads are POST requests whose body is promised and comes in small pieces
	// (known as slow POST, or R.U.D.Y.).
	Uploads AbuseKind = iota
	// Readers ask for an answer and take it in small pieces.
	Readers
	// Streams are POST requests like those of Uploads, many on each connection of
	// HTTP/2 over TLS.
	Streams
)

const (
	// dialTimeout is how long opening a connection may take.
	dialTimeout = 10 * time.Second
	// receiveBuffer is what the kernel takes in for a slow reader, in bytes. Linux
	// doubles it, and has a least size of some 2 KB.
	receiveBuffer = 4 << 10
	// maxConnections and maxStreams bound an attack.
	maxConnections, maxStreams = 10_000, 1000
)

// An AbuseConfig is one attack.
type AbuseConfig struct {
	Kind AbuseKind
	// URL is asked for: http, or https for Streams. Its host is an address of the
	// loopback interface: nobody else's server is attacked.
	URL         string
	Connections int           // at once
	Streams     int           // on each, for the kind of this name
	Length      int           // bytes that an upload promises; at most Piece of them come every Every
	Piece       int           // bytes
	Every       time.Duration // between two pieces
	Again       time.Duration // how long after its end a connection or stream is opened anew
}

// errConfig is why there is no attack.
var errConfig = errors.New("no such attack")

// check says what is wrong with an attack.
func (c AbuseConfig) check() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the URL: %w", err)
	}
	scheme := "http"
	if c.Kind == Streams {
		scheme = "https"
	}
	ip, err := netip.ParseAddrPort(u.Host)
	switch {
	case err != nil || !ip.Addr().IsLoopback():
		return nil, fmt.Errorf("%w: %q is not an address and port of the loopback interface", errConfig, u.Host)
	case u.Scheme != scheme:
		return nil, fmt.Errorf("%w: its URL is one of %s", errConfig, scheme)
	case c.Connections < 1 || c.Connections > maxConnections || c.Streams > maxStreams || c.Kind == Streams && c.Streams < 1:
		return nil, fmt.Errorf("%w: %d connections with %d streams", errConfig, c.Connections, c.Streams)
	case c.Piece < 1 || c.Every <= 0 || c.Again <= 0:
		return nil, fmt.Errorf("%w: pieces of %d bytes every %v, again after %v", errConfig, c.Piece, c.Every, c.Again)
	}
	return u, nil
}

// An Attack is one that goes on.
type Attack struct {
	AbuseConfig
	url  *url.URL
	stop context.CancelFunc
	all  sync.WaitGroup // of one goroutine for each connection, which ends with stop

	held, ended, refused atomic.Int64
}

// AbuseCounts are what became of an attack.
type AbuseCounts struct {
	Held    int // uploads, answers or streams that are open now
	Ended   int // that the server has answered, refused or cut off
	Refused int // connections that were not let in
}

// BeginAttack opens the connections, without waiting for them, and holds them until Stop.
func BeginAttack(c AbuseConfig) (*Attack, error) {
	u, err := c.check()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Attack{AbuseConfig: c, url: u, stop: stop}
	for range c.Connections {
		s.all.Go(func() { s.keep(ctx) })
	}
	return s, nil
}

// Counts says how the attack stands.
func (s *Attack) Counts() AbuseCounts {
	return AbuseCounts{Held: int(s.held.Load()), Ended: int(s.ended.Load()), Refused: int(s.refused.Load())}
}

// Stop closes all connections and waits.
func (s *Attack) Stop() AbuseCounts {
	c := s.Counts()
	s.stop()
	s.all.Wait()
	return c
}

// wait waits, unless ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// keep holds one connection, and opens it again when the server has ended it.
func (s *Attack) keep(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := s.dial(ctx)
		if err != nil {
			s.refused.Add(1)
		} else {
			over := context.AfterFunc(ctx, func() { _ = conn.Close() })
			s.hold(ctx, conn)
			over()
			_ = conn.Close() // what it has to say no longer matters
		}
		wait(ctx, s.Again)
	}
}

func (s *Attack) dial(ctx context.Context) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	if s.Kind != Streams {
		return d.DialContext(ctx, "tcp", s.url.Host)
	}
	over := tls.Dialer{NetDialer: d, Config: &tls.Config{
		NextProtos:         []string{"h2"},
		InsecureSkipVerify: true, // it is a server of ours
	}}
	return over.DialContext(ctx, "tcp", s.url.Host)
}

// hold does what the kind of client does until the connection ends.
func (s *Attack) hold(ctx context.Context, conn net.Conn) {
	switch s.Kind {
	case Streams:
		s.streams(ctx, conn)
	case Readers:
		s.held.Add(1)
		s.read(ctx, conn)
		s.held.Add(-1)
		s.ended.Add(1)
	case Uploads:
		s.held.Add(1)
		s.upload(conn)
		s.held.Add(-1)
		s.ended.Add(1)
	}
}

// upload sends a POST's head and pieces of its body until the server says anything.
func (s *Attack) upload(conn net.Conn) {
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n",
		s.url.RequestURI(), s.url.Host, s.Length); err != nil {
		return
	}
	piece, answer := s.piece(), make([]byte, 1)
	for sent := 0; sent < s.Length; sent += len(piece) {
		if _, err := conn.Write(piece); err != nil {
			return
		}
		if err := conn.SetReadDeadline(time.Now().Add(s.Every)); err != nil {
			return
		}
		if _, err := conn.Read(answer); !timedOut(err) {
			return // an answer, or the end
		}
	}
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// piece is what comes of a body at once.
func (s *Attack) piece() []byte {
	p := make([]byte, s.Piece)
	for i := range p {
		p[i] = 'x'
	}
	return p
}

// read asks for an answer and takes it in pieces until it ends.
func (s *Attack) read(ctx context.Context, conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(receiveBuffer) // with the system's own it is only a little less slow
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", s.url.RequestURI(), s.url.Host); err != nil {
		return
	}
	into := make([]byte, s.Piece)
	for {
		if _, err := conn.Read(into); err != nil {
			return
		}
		wait(ctx, s.Every)
	}
}
