package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/netset"
)

// listener accepts connections on one address.
type listener struct {
	server  *Server
	ln      net.Listener
	direct  *direct // nil: ln accepts
	secure  bool
	bound   bool // this process has bound it, and removes the path of a UNIX socket
	started bool
	stop    chan struct{}
	once    sync.Once
}

// bind opens the listeners of setup that are not open yet, and returns all listeners of
// setup; quic are those of HTTP/3. After an error no new one stays open.
func (s *Server) bind(setup Setup) (all map[string]*listener, quic map[string]*quicListener, err error) {
	all = map[string]*listener{}
	var fresh, given []*listener // given: opened by the program
	defer func() {
		if err == nil {
			return
		}
		for _, l := range fresh {
			l.close()
		}
	}()
	for _, group := range []struct {
		addrs  []string
		secure bool
	}{{setup.Listen, false}, {setup.TLS.Listen, true}} {
		for _, addr := range group.addrs {
			opened, err := s.bindAddress(setup, all, addr, group.secure)
			fresh = append(fresh, opened...)
			if err != nil {
				return nil, nil, &ListenError{Addr: addr, Secure: group.secure, err: err}
			}
		}
	}
	for _, ln := range setup.Listeners {
		key := fmt.Sprintf("%p", ln)
		l := s.reload.listeners[key]
		if l == nil {
			l = &listener{server: s, ln: ln, stop: make(chan struct{})}
			given = append(given, l)
		}
		all[key] = l
	}
	if quic, err = s.bindHTTP3(setup, all); err != nil {
		return nil, nil, err
	}
	if len(s.reload.listeners) > 0 { // a reload: the server runs
		for _, l := range slices.Concat(fresh, given) {
			l.start()
		}
	}
	return all, quic, nil
}

// bindAddress adds the listeners of an address to all, and returns those that were not
// open before, also with an error. ":80" opens one socket for IPv4 and one for IPv6, so
// that a reload from :80 to 0.0.0.0:80 keeps the one that stays; where one socket for
// both was inherited, that is used.
func (s *Server) bindAddress(setup Setup, all map[string]*listener, addr string, secure bool) (fresh []*listener, err error) {
	parts := netset.SplitFamilies(addr)
	if s.reload.listeners[listenerKey(addr, secure)] != nil || isInherited(setup, addr, secure) {
		parts = []string{addr}
	}
	var missing error
	opened := 0
	for _, at := range parts {
		key := listenerKey(at, secure)
		l := s.reload.listeners[key]
		if l == nil {
			ln, bound, err := open(setup.Inherited, at)
			if len(parts) > 1 && noFamily(err) {
				missing = err
				continue
			}
			if err != nil {
				return fresh, err
			}
			l = &listener{server: s, ln: ln, secure: secure, bound: bound, stop: make(chan struct{})}
			fresh = append(fresh, l)
		}
		all[key] = l
		opened++
	}
	if opened == 0 {
		return nil, missing
	}
	return fresh, nil
}

func listenerKey(addr string, secure bool) string { return fmt.Sprint(addr, secure) }

// noFamily reports whether an error means that this machine, or this process's sandbox,
// has no addresses of the family.
func noFamily(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// open returns the listener of an inherited socket, or binds one.
func open(sockets []*os.File, addr string) (ln net.Listener, bound bool, err error) {
	if ln := inherited(sockets, addr); ln != nil {
		return ln, false, nil
	}
	if ln, err = listen(addr); err != nil {
		return nil, false, heldBySystemd(err, sockets, addr)
	}
	return ln, true, nil
}

// ListenError says why the server cannot listen at an address.
type ListenError struct {
	Addr   string // as Setup has it
	Secure bool   // it is one of Setup.TLS
	err    error
}

// Error also says what to do.
func (e *ListenError) Error() string {
	if other := e.Other(); other != "" {
		return e.err.Error() + "; choose another one with --listen " + other
	}
	return e.err.Error()
}

// Other suggests an address that may be free; "": none.
func (e *ListenError) Other() string {
	switch {
	case errors.Is(e.err, syscall.EADDRINUSE):
		return nextPort(e.Addr)
	case errors.Is(e.err, fs.ErrPermission) && !strings.HasPrefix(e.Addr, "unix:"):
		return "127.0.0.1:8080"
	}
	return ""
}

// Unwrap returns the reason alone.
func (e *ListenError) Unwrap() error { return e.err }

// Listen opens host:port, :port or unix:/path, or takes the inherited socket for
// it. The error is a [*ListenError].
func Listen(sockets []*os.File, addr string) (net.Listener, error) {
	ln, _, err := open(sockets, addr)
	if err != nil {
		return nil, &ListenError{Addr: addr, err: err}
	}
	return ln, nil
}

// Try reports whether the server could listen at an address now, without doing
// so. For a UNIX socket it only checks that the folder exists.
func Try(addr string) error {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return &ListenError{Addr: addr, err: fmt.Errorf("listen on %s: %w", addr, err)}
		}
		return nil
	}
	ln, err := listen(addr)
	if err != nil {
		return &ListenError{Addr: addr, err: err}
	}
	return ln.Close()
}

// listen opens host:port, :port or unix:/path.
func listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
	}
	// No TCP keep-alive: the idle timeout ends dead connections anyway, and setting it
	// costs four system calls for each connection.
	config := net.ListenConfig{KeepAlive: -1}
	of, err := netset.FamilyOf(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	ln, err := config.Listen(context.Background(), of.Network("tcp"), addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: %w: another program uses this port", addr, syscall.EADDRINUSE)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("listen on %s: %w: ports below 1024 need privileges", addr, fs.ErrPermission)
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

// listenUnix listens on a UNIX socket. The socket of a dead process is
// replaced; one that is in use, or any other file, is not.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("listen on unix:%s: a file that is not a socket is there; remove it or choose another path", path)
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
	if !l.secure && l.server.lane.On() {
		l.direct = newDirect(l.ln)
	}
	l.server.life.acceptors.Go(l.accept)
}

// handshaker is implemented by [tls.Conn] and similar types.
type handshaker interface {
	HandshakeContext(ctx context.Context) error
}

// accepted is a new connection.
type accepted struct {
	nc          net.Conn // nil: it has only a descriptor
	fd          int
	peer, local net.Addr
}

// next waits for the next connection.
func (l *listener) next() (accepted, error) {
	if l.direct == nil {
		nc, err := l.ln.Accept()
		if err != nil {
			return accepted{}, err //nolint:wrapcheck // it says what it did
		}
		return accepted{nc: nc, peer: nc.RemoteAddr()}, nil
	}
	c, err := l.direct.accept()
	select {
	case <-l.stop:
		if err != nil {
			err = net.ErrClosed
		}
	default:
	}
	return c, err
}

// accept accepts connections until the listener is closed. Other errors, such as a lack
// of descriptors, are temporary: it tries again.
func (l *listener) accept() {
	const least, most = 5 * time.Millisecond, time.Second
	s, pause := l.server, least
	for {
		c, err := l.next()
		if err == nil {
			pause = least
			if l.enter(&c) {
				return
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			l.close()
			return
		}
		s.warn.accept.warn(s.errors, "accept failed; trying again", "listener", l.url(), "err", err)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			s.shed(nil)
		}
		select {
		case <-time.After(pause):
		case <-l.stop:
			return
		}
		pause = min(2*pause, most)
	}
}

// enter finds a slot for a new connection and serves it, or refuses it. It reports true when
// the listener has ended.
func (l *listener) enter(c *accepted) (done bool) {
	s := l.server
	if _, other := c.nc.(handshaker); other && !l.secure {
		s.warn.encrypted.warn(s.errors, "a listener of the program speaks TLS itself, and its clients are turned away: give the server the plain one, and the certificate by its own settings", "listener", l.url())
		c.close()
		return false
	}
	s.meters.Accepted.Add(0, 1)
	if s.expectsProxyHeader(c.peer) {
		nc, err := c.conn()
		return err == nil && l.acceptProxied(nc)
	}
	// The slot comes after accept, so that no idle connection is closed without need.
	client := s.slots.client(c.peer)
	ok, done := l.acquireSlot(client)
	switch {
	case done:
		c.close()
	case !ok:
		if nc, err := c.conn(); err == nil {
			l.refuse(nc)
		}
	case c.nc == nil && s.lane.AdoptSocket(c.fd, c.peer, c.local, &s.plain, func() { s.slots.release(client) }, s.serveConnOf):
	default:
		if nc, err := c.conn(); err == nil {
			l.admit(nc, client)
		} else { // there are no more descriptors
			s.slots.release(client)
		}
	}
	return done
}

// admit serves an accepted connection that has a slot: by an event loop or a goroutine,
// after the TLS handshake if there is one.
func (l *listener) admit(nc net.Conn, client netip.Addr) {
	s := l.server
	gone := func() { s.slots.release(client) }
	if !l.secure {
		if s.lane.Adopt(nc, &s.plain, gone, s.serveConnOf) {
			return
		}
		c := s.lane.NewConn(nc, &s.plain, gone)
		s.life.conns.Go(func() { s.serveConn(c) })
		return
	}
	counted := &countedConn{Wire: lane.NewWire(nc), gone: gone}
	s.life.acceptors.Add(1)
	s.life.conns.Add(1)
	go l.serveTLS(counted)
}

// serveConn runs in a goroutine of its own for each HTTP/1.1 connection, until
// net/http gets it or it ends.
func (s *Server) serveConn(c lane.NetConn) {
	if c.Serve() {
		s.http.h1Conns.put(lane.ForNetHTTP(c))
	}
}

// serveConnOf is serveConn for a connection that leaves its loop.
func (s *Server) serveConnOf(c *lane.Conn) { s.serveConn(c) }

// acceptQueued lets the listener accept for d more, the connections that are queued, and
// then end.
func (l *listener) acceptQueued(d time.Duration) {
	if l.direct != nil {
		_ = l.direct.setDeadline(time.Now().Add(d))
		return
	}
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
		if l.direct != nil {
			l.direct.close()
		}
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
	if netset.FamilyOfSocket(l.ln, tcp) == netset.Both {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// countedConn releases its slot when it is closed, or by Uncount.
type countedConn struct {
	*lane.Wire
	gone func()
	once sync.Once
}

// NetConn returns the connection itself.
func (c *countedConn) NetConn() net.Conn { return c.Wire }

// Uncount releases the slot: another owner counts the connection from now on
// ([lane.Release]).
func (c *countedConn) Uncount() { c.once.Do(c.gone) }

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.Uncount()
	return c.Wire.Close()
}

// handoff is a net.Listener that hands net/http connections accepted elsewhere.
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

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
