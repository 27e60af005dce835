package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/internal/lane"
)

// listener accepts connections on one address.
type listener struct {
	server  *Server
	ln      net.Listener
	secure  bool
	started bool
	stop    chan struct{}
	once    sync.Once
}

// bind opens the listeners of setup that are not open yet and returns all of
// setup's. After an error none that is new stays open.
func (s *Server) bind(setup Setup) (map[string]*listener, error) {
	all := map[string]*listener{}
	var fresh []*listener
	for _, group := range []struct {
		addrs  []string
		secure bool
	}{{setup.Listen, false}, {setup.TLS.Listen, true}} {
		for _, addr := range group.addrs {
			key := fmt.Sprint(addr, group.secure)
			if l := s.listeners[key]; l != nil {
				all[key] = l
				continue
			}
			ln, err := listen(addr)
			if err != nil {
				for _, l := range fresh {
					l.close()
				}
				return nil, err
			}
			l := &listener{server: s, ln: ln, secure: group.secure, stop: make(chan struct{})}
			all[key] = l
			fresh = append(fresh, l)
		}
	}
	if len(s.listeners) > 0 { // a reload: the server runs
		for _, l := range fresh {
			l.start()
		}
	}
	return all, nil
}

// listen opens host:port, :port or unix:/path.
func listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
	}
	// Probes of idle connections would tell nothing that the idle timeout does
	// not end anyway, and cost four system calls for each connection.
	config := net.ListenConfig{KeepAlive: -1}
	ln, err := config.Listen(context.Background(), "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w: another program uses this port; choose another one with --listen %s", addr, syscall.EADDRINUSE, nextPort(addr))
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("listen on %s: not allowed; ports below 1024 need privileges, choose another one with --listen %s", addr, "127.0.0.1:8080")
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return ln, nil
}

func nextPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if n, e := strconv.Atoi(port); err == nil && e == nil && n < 65535 {
		return net.JoinHostPort(host, strconv.Itoa(n+1))
	}
	return "127.0.0.1:8081"
}

// listenUnix listens on a UNIX socket. The socket of a process that has died
// is replaced; that of a living one, or anything else there, is not.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("listen on unix:%s: a file that is no socket is there; remove it or choose another path", path)
		}
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("listen on unix:%s: another program answers there; stop it or choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on unix:%s: remove the old socket: %w", path, err)
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	return ln, nil
}

// start begins to accept. The goroutine ends with the listener; Run waits for it.
func (l *listener) start() {
	if l.started {
		return
	}
	l.started = true
	l.server.acceptors.Go(l.accept)
}

// accept never gives up: what goes wrong with one connection, or for want of
// descriptors, passes.
func (l *listener) accept() {
	const least, most = 5 * time.Millisecond, time.Second
	s, pause := l.server, least
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			pause = least
			s.meters.Accepted.Add(0, 1)
			// Only now: nobody idle is closed for somebody who has not come.
			if !s.slots.acquire(l.stop, s.lane.ShedIdle) {
				_ = nc.Close()
				return
			}
			l.admit(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			l.close()
			return
		}
		if pause == least || pause == most {
			s.errors.Warn("accept failed; trying again", "listener", l.url(), "err", err)
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			s.lane.ShedIdle()
		}
		select {
		case <-time.After(pause):
		case <-l.stop:
			return
		}
		pause = min(2*pause, most)
	}
}

// admit passes an accepted connection on to net/http, after the handshake if
// there is one.
func (l *listener) admit(nc net.Conn) {
	s := l.server
	if !l.secure {
		if s.lane.Adopt(nc, &s.plain, s.slots.release, func(c *lane.Conn) { s.serveConn(c) }) {
			return
		}
		c := s.lane.NewConn(nc, &s.plain, s.slots.release)
		s.serving.Go(func() { s.serveConn(c) })
		return
	}
	counted := &countedConn{Conn: nc, gone: s.slots.release}
	s.acceptors.Go(func() { l.handshake(counted) })
}

// handshake runs in a goroutine of its own for each TLS connection; it is
// bounded in time by the handshake timeout and in number by the slots.
func (l *listener) handshake(nc *countedConn) {
	s := l.server
	if tcp, ok := nc.Conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(true) // HTTP/2 and hijacked connections have no lane to watch over them
	}
	_ = nc.SetDeadline(time.Now().Add(s.current.Load().limits.HandshakeTimeout))
	tc := tls.Server(nc, s.tls)
	if err := tc.HandshakeContext(s.handshakes); err != nil {
		s.meters.Rejected.Add(0, 1)
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
			_, _ = plain.Conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" +
				"This port speaks HTTPS: use https:// in the address.\n"))
		}
		_ = nc.Close()
		return
	}
	_ = nc.SetDeadline(time.Time{})
	if tc.ConnectionState().NegotiatedProtocol == "h2" {
		s.h2Conns.put(tc)
		return
	}
	c := s.lane.NewConn(tc, &s.secure, nil)
	s.serving.Go(func() { s.serveConn(c) })
}

// serveConn runs in a goroutine of its own for each HTTP/1.1 connection, until
// net/http gets it or it ends.
func (s *Server) serveConn(c lane.NetConn) {
	if c.Serve() {
		s.h1Conns.put(c)
	}
}

func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// finish lets the listener accept who is queued, and then end.
func (l *listener) finish(d time.Duration) {
	if dl, ok := l.ln.(interface{ SetDeadline(time.Time) error }); ok && l.started {
		_ = dl.SetDeadline(time.Now().Add(d))
		return
	}
	l.close()
}

func (l *listener) close() {
	l.once.Do(func() {
		close(l.stop)
		_ = l.ln.Close()
	})
}

func (l *listener) url() string {
	addr := l.ln.Addr()
	scheme := "http"
	if l.secure {
		scheme = "https"
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return scheme + "+unix:" + addr.String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// countedConn gives its slot back when it is closed, or uncounted.
type countedConn struct {
	net.Conn
	gone func()
	once sync.Once
}

// NetConn returns the connection itself.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// Uncount gives the slot back: the connection is somebody else's ([lane.Release]).
func (c *countedConn) Uncount() { c.once.Do(c.gone) }

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.Uncount()
	return c.Conn.Close()
}

// handoff is a net.Listener that is fed with connections accepted elsewhere.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *handoff) put(nc net.Conn) {
	select {
	case h.conns <- nc:
	case <-h.closed:
		_ = nc.Close()
	}
}

// Accept implements [net.Listener].
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case nc := <-h.conns:
		return nc, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements [net.Listener].
func (h *handoff) Addr() net.Addr { return &net.UnixAddr{Name: "handoff", Net: "unix"} }

// slots bounds the number of connections.
type slots struct {
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n), closed: make(chan struct{})}
	return s
}

// shedEvery is how often somebody who waits for a slot looks for an idle
// connection to close: there may be none at first.
const shedEvery = 100 * time.Millisecond

// acquire takes a slot. While there is none, it asks shed for one by closing
// idle connections, and waits. It reports false when it is to wait no more.
func (s *slots) acquire(stop <-chan struct{}, shed func() bool) bool {
	select {
	case s.free <- struct{}{}:
		return true
	default:
	}
	shed()
	tick := time.NewTicker(shedEvery)
	defer tick.Stop()
	for {
		select {
		case s.free <- struct{}{}:
			return true
		case <-tick.C:
			shed()
		case <-stop:
			return false
		case <-s.closed:
			return false
		}
	}
}

func (s *slots) release() { <-s.free }

func (s *slots) close() { s.once.Do(func() { close(s.closed) }) }

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
