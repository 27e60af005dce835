package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/process/steer"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/stall"
)

// HTTP3 serves HTTP/3 on a UDP socket. internal/server/h3 has one; it is not here,
// because small programs leave it out.
type HTTP3 func(HTTP3Host) (HTTP3Listener, error)

// HTTP3Host is what such a listener is told by its server. The functions are safe
// for concurrent use.
type HTTP3Host struct {
	Socket  *net.UDPConn // the listener's from now on
	Handler http.Handler
	// Generation is what the ids of connections carry.
	Generation steer.Generation
	// TLS is the configuration for a new client.
	TLS func(*tls.ClientHelloInfo) (*tls.Config, error)
	// Context is put below the requests of a new connection.
	Context func(ctx context.Context, client net.Addr) context.Context
	// Admit finds a place for a new connection; gone gives it back, once.
	Admit func(client net.Addr) (gone func(), ok bool)
	// HalfFull reports whether new clients should prove their address first.
	HalfFull func() bool
	// Client is what limits count an address as.
	Client  func(client net.Addr) netip.Addr
	Budget  *stall.Budget
	Limits  func() Options
	Refused *meter.HTTP3Refused
	Errors  *slog.Logger
}

// HTTP3Listener serves on one socket.
type HTTP3Listener interface {
	// Drain refuses new connections, rejects new requests on the others in such a
	// way that clients send them elsewhere, and closes each when it has no request
	// any more. It returns at once.
	Drain()
	// Open is how many connections there are, those that are being opened among
	// them.
	Open() int
	// ShedIdle closes the connection that has been idle for longest, of the
	// clients that are meant, all if which is nil.
	ShedIdle(which func(net.Addr) bool) bool
	// WithStreams appends its connections.
	WithStreams(to []stall.Conn) []stall.Conn
	// Close ends everything at once. Wait waits for the handlers.
	Close()
	Wait()
}

// errNoHTTP3 is for programs that leave it out.
var errNoHTTP3 = errors.New("tls.http3: this build has no HTTP/3: set \"http3: false\", or use the whole millrace")

// quicListener is one listener for HTTP/3. It serves from swap on.
type quicListener struct {
	HTTP3Listener
	socket            *net.UDPConn
	open              HTTP3
	port              int
	besidePredecessor bool // a predecessor has a socket too, and gets all packets until Run
}

// quicListeners are a server's listeners for HTTP/3, by their addresses.
type quicListeners struct {
	tls atomic.Pointer[tls.Config]

	mu       sync.Mutex
	current  map[string]*quicListener
	draining []*quicListener // closed by a reload: their requests go on
}

// bindHTTP3 opens the UDP sockets beside the TLS listeners. After an error none
// that is new stays open.
func (s *Server) bindHTTP3(setup Setup, all map[string]*listener) (_ map[string]*quicListener, err error) {
	if !setup.TLS.HTTP3 {
		return nil, nil
	}
	if setup.HTTP3 == nil {
		return nil, errNoHTTP3
	}
	quic := map[string]*quicListener{}
	old := s.quic.all()
	defer func() {
		if err == nil {
			return
		}
		for addr, l := range quic {
			if old[addr] != l {
				_ = l.socket.Close() // nothing was asked there
			}
		}
	}()
	for addr, beside := range all {
		tcp, ok := beside.ln.Addr().(*net.TCPAddr)
		switch {
		case !ok || !beside.secure: // a UNIX socket, or plain HTTP
			continue
		case old[addr] != nil:
			quic[addr] = old[addr]
			continue
		}
		s.quic.free(tcp.Port)
		l := &quicListener{open: setup.HTTP3, port: tcp.Port}
		of := netset.FamilyOfSocket(beside.ln, tcp)
		if l.socket, l.besidePredecessor = s.takeUDP(setup, tcp, of); l.socket == nil {
			if l.socket, err = listenUDP(tcp, of); err != nil {
				return nil, err
			}
		}
		quic[addr] = l
	}
	return quic, nil
}

// takeUDP is the socket for the address of a TCP listener that is there already,
// or one beside that of the predecessor, nil if there is none.
func (s *Server) takeUDP(setup Setup, at *net.TCPAddr, of netset.Family) (socket *net.UDPConn, beside bool) {
	addr := at.String()
	if of == netset.Both {
		addr = ":" + strconv.Itoa(at.Port)
	}
	socket = inheritedUDP(setup.Inherited, addr)
	if socket == nil || !setup.Successor {
		return socket, false
	}
	own, err := steer.Beside(socket)
	if err != nil { // another user's socket, or another system: both read from one
		s.errors.Warn("HTTP/3 connections of the process before this one lose packets until they have ended", "err", err)
		return socket, false
	}
	_ = socket.Close() // the predecessor's, which keeps its own descriptor
	return own, true
}

// steerHTTP3 has new clients' packets come to this process.
func (s *Server) steerHTTP3() {
	s.quic.every(func(l *quicListener) {
		if !l.besidePredecessor {
			return
		}
		if err := steer.Begin(l.socket, s.current.Load().generation); err != nil {
			s.errors.Error("there is no HTTP/3 until the process before this one has ended", "port", l.port, "err", err)
		}
	})
}

// listenUDP opens the UDP port of a TCP listener.
func listenUDP(at *net.TCPAddr, of netset.Family) (*net.UDPConn, error) {
	socket, err := steer.Listen(of, &net.UDPAddr{IP: at.IP, Port: at.Port, Zone: at.Zone})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on UDP port %d of %s for HTTP/3: %w: another program uses it; stop that (`ss -lunp` names it), change tls.listen, or set tls.http3 to false", at.Port, at.IP, syscall.EADDRINUSE)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("listen on UDP port %d of %s for HTTP/3: %w: change tls.listen to a port above 1023, or set tls.http3 to false", at.Port, at.IP, fs.ErrPermission)
	case err != nil:
		return nil, fmt.Errorf("listen on UDP port %d of %s for HTTP/3: %w; set tls.http3 to false to do without", at.Port, at.IP, err)
	}
	return socket, nil
}

func (s *Server) http3Host(socket *net.UDPConn) HTTP3Host {
	return HTTP3Host{
		Socket:  socket,
		Handler: http.HandlerFunc(s.serveHTTP3),

		Generation: s.current.Load().generation,

		TLS: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.quic.tls.Load(), nil },
		Context: func(ctx context.Context, client net.Addr) context.Context {
			return s.lane.WithHTTP3(ctx, &s.secure, client)
		},
		Admit:    s.admitHTTP3,
		HalfFull: s.slots.halfFull,
		Client:   s.slots.client,
		Budget:   s.budget,
		Limits:   func() Options { return s.current.Load().limits },
		Refused:  &s.meters.HTTP3Refused,
		Errors:   s.errors,
	}
}

func (s *Server) serveHTTP3(w http.ResponseWriter, r *http.Request) {
	s.meters.HTTP3Requests.Add(0, 1)
	if !lane.AnswerHTTP3(w, r) {
		s.ServeHTTP(w, r)
	}
}

// admitHTTP3 finds a place for a client, as seat does over TCP. It does not wait:
// a client that is refused asks over TCP.
func (s *Server) admitHTTP3(addr net.Addr) (gone func(), ok bool) {
	s.meters.Accepted.Add(0, 1)
	client := s.slots.client(addr)
	v := s.slots.acquire(client, false)
	if v == clientFull {
		mine := func(a net.Addr) bool { return clientOf(a) == client }
		if s.slots.makeRoom(client, func() bool { return s.shed(mine) }) {
			v = s.slots.acquire(client, true)
		}
	}
	if v == allFull && s.shed(nil) {
		v = s.slots.acquire(client, false) // what was closed may have given its place back
	}
	if v != acquired {
		s.meters.Rejected.Add(0, 1)
		return nil, false
	}
	s.meters.Clients.Add(1)
	s.meters.Connections.Add(1)
	s.meters.HTTP3Connections.Add(1)
	return sync.OnceFunc(func() {
		s.meters.Clients.Add(-1)
		s.meters.Connections.Add(-1)
		s.meters.HTTP3Connections.Add(-1)
		s.slots.release(client)
	}), true
}

// tlsHTTP3 is what HTTP/3 needs instead of c (RFC 9001, 4.2, and RFC 9114, 3.1).
func tlsHTTP3(c *tls.Config) *tls.Config {
	q := c.Clone()
	q.NextProtos, q.MinVersion, q.GetConfigForClient = []string{"h3"}, tls.VersionTLS13, nil
	return q
}

// altSvcAge is how long clients remember that HTTP/3 is spoken here, in seconds. A
// browser that does not get through asks over TCP, and loses no time by it.
const altSvcAge = 86400

// altSvc is what answers say in Alt-Svc (RFC 7838), empty for nothing.
func altSvc(quic map[string]*quicListener) string {
	var ports []int
	for _, l := range quic {
		if !slices.Contains(ports, l.port) {
			ports = append(ports, l.port)
		}
	}
	slices.Sort(ports)
	texts := make([]string, len(ports))
	for i, port := range ports {
		texts[i] = `h3=":` + strconv.Itoa(port) + `"; ma=` + strconv.Itoa(altSvcAge)
	}
	return strings.Join(texts, ", ")
}

// all are the listeners in use.
func (q *quicListeners) all() map[string]*quicListener {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.current)
}

// startHTTP3 has the listeners of a new setup serve in the place of the old ones,
// of which those that are gone drain.
func (s *Server) startHTTP3(next map[string]*quicListener) {
	for addr, l := range next {
		if l.HTTP3Listener != nil {
			continue
		}
		var err error
		if l.HTTP3Listener, err = l.open(s.http3Host(l.socket)); err != nil {
			s.errors.Error("there is no HTTP/3", "port", l.port, "err", errors.Join(err, l.socket.Close()))
			delete(next, addr)
		}
	}
	s.quic.swap(next)
}

func (q *quicListeners) swap(next map[string]*quicListener) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = slices.DeleteFunc(q.draining, func(l *quicListener) bool {
		if l.Open() > 0 {
			return false
		}
		l.Close()
		l.Wait()
		return true
	})
	for addr, l := range q.current {
		if next[addr] != l {
			l.Drain()
			q.draining = append(q.draining, l)
		}
	}
	q.current = next
}

// free closes the listeners that drain at a port, because it is needed again.
func (q *quicListeners) free(port int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.draining {
		if l.port == port {
			l.Close()
		}
	}
}

// every calls f for all listeners, also for those that drain.
func (q *quicListeners) every(f func(*quicListener)) {
	q.mu.Lock()
	all := slices.AppendSeq(slices.Clone(q.draining), maps.Values(q.current))
	q.mu.Unlock()
	for _, l := range all {
		f(l)
	}
}

func (q *quicListeners) open() (n int) {
	q.every(func(l *quicListener) { n += l.Open() })
	return n
}

func (q *quicListeners) drain() { q.every(func(l *quicListener) { l.Drain() }) }
func (q *quicListeners) close() { q.every(func(l *quicListener) { l.Close() }) }
func (q *quicListeners) wait()  { q.every(func(l *quicListener) { l.Wait() }) }

func (q *quicListeners) shedIdle(which func(net.Addr) bool) (done bool) {
	q.every(func(l *quicListener) { done = done || l.ShedIdle(which) })
	return done
}

// writeDeadline is what a ResponseWriter over HTTP/3 has.
type writeDeadline interface {
	SetWriteDeadline(t time.Time) error
}

// writeTimed is Write over HTTP/3, where the client has the write timeout for each
// piece.
func (w *writer) writeTimed(p []byte) (total int, err error) {
	for first := true; err == nil && (len(p) > 0 || first); first = false {
		_ = w.deadline.SetWriteDeadline(time.Now().Add(w.writeTimeout)) // of a stream
		var n int
		w.waits.Wait()
		n, err = w.rw.Write(p[:min(len(p), timedPiece)])
		w.waits.Go()
		p, total = p[n:], total+n
	}
	w.bytes += int64(total)
	return total, err
}

// timedPiece is how much a client must take within the write timeout.
const timedPiece = 64 << 10

// timedWriter is a writer without ReadFrom.
type timedWriter struct{ w *writer }

// Write implements [io.Writer].
func (s timedWriter) Write(p []byte) (int, error) { return s.w.writeTimed(p) }

// dropHop removes what says something about a connection of HTTP/1.1: over HTTP/3
// it makes an answer malformed (RFC 9114, 4.2), and quic-go does not look.
func dropHop(h http.Header) {
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"} {
		delete(h, name)
	}
}
