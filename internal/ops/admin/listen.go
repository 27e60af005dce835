package admin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"millrace/internal/wire/netset"
)

const unixPrefix = "unix:"

// listener is a place where the admin listens.
type listener struct {
	net.Listener
	addr    string // as in Options.Listen
	warning string
	cleanup func()
	allowed hosts
}

// hosts says which Host headers are answered; nil allows any.
type hosts func(host string) bool

func listen(where string, p places) (*listener, error) {
	path, isUnix := strings.CutPrefix(where, unixPrefix)
	switch {
	case where == "":
		return listenDefault(p)
	case isUnix:
		return listenUnix(path)
	case strings.HasPrefix(where, "/"):
		return nil, fmt.Errorf("admin address %q: for a UNIX socket write unix:%s", where, where)
	}
	return listenTCP(where)
}

func listenTCP(where string) (*listener, error) {
	if _, _, err := net.SplitHostPort(where); err != nil {
		return nil, fmt.Errorf("admin address %q: write host:port, unix:/path or off", where)
	}
	of, err := netset.FamilyOf(where)
	if err != nil {
		return nil, fmt.Errorf("listening for admin on %s: %w", where, err)
	}
	l, err := net.Listen(of.Network("tcp"), where)
	if err != nil {
		return nil, fmt.Errorf("listening for admin on %s: %w", where, err)
	}
	bound, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("listening for admin on %s: got a %T", where, l.Addr())
	}
	return tcpListener(l, bound, where), nil
}

// tcpListener is the listener of a TCP socket.
func tcpListener(l net.Listener, bound *net.TCPAddr, where string) *listener {
	host, _, _ := net.SplitHostPort(where)
	res := &listener{
		Listener: l, addr: bound.String(), cleanup: func() {},
		allowed: tcpHosts(host, bound.AddrPort().Addr()),
	}
	if !bound.IP.IsLoopback() {
		res.warning = fmt.Sprintf("the admin listener %s can be reached from other machines and asks for nothing: "+
			"whoever reaches it may see all traffic, close the sites and reload the config. "+
			"Set a token (admin.token, or MILLRACE_ADMIN_TOKEN), or use the UNIX socket, which is the default", res.addr)
	}
	return res
}

// tcpHosts guards a TCP listener against DNS rebinding: a page in the
// operator's browser whose own name was made to resolve to this address reaches
// it, but with that name in Host. So only names that no stranger controls are
// answered: addresses of loopback, localhost and what Listen names; any address
// where it listens on all.
func tcpHosts(listenHost string, bound netip.Addr) hosts {
	bound = bound.Unmap()
	return func(host string) bool {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		} else {
			host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			ip = ip.Unmap()
			return ip.IsLoopback() || ip == bound || bound.IsUnspecified()
		}
		host = strings.TrimSuffix(host, ".")
		return strings.EqualFold(host, "localhost") || host != "" && strings.EqualFold(host, listenHost)
	}
}

// maxSameName is how many names are tried for one process's socket. A name can
// be taken by a live server only where process numbers repeat: containers that
// share a runtime folder.
const maxSameName = 16

// errNoFolder is wrapped by the error for a default socket that cannot be made.
// Other users may be the reason (a folder of theirs under our name), so it does
// not keep the server from starting.
var errNoFolder = errors.New("no folder for the admin socket")

// listenDefault listens on a socket in the first runtime folder that works.
func listenDefault(p places) (*listener, error) {
	var errs []error
	for _, folder := range p.folders() {
		if err := p.prepare(folder); err != nil {
			errs = append(errs, err)
			continue
		}
		l, err := listenIn(folder)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("%w: %w", errNoFolder, errors.Join(errs...))
}

func listenIn(folder string) (*listener, error) {
	removeDeadIn(folder)
	for n := 1; ; n++ {
		name := fmt.Sprintf("%d%s", os.Getpid(), socketSuffix)
		if n > 1 {
			name = fmt.Sprintf("%d-%d%s", os.Getpid(), n, socketSuffix)
		}
		l, err := listenUnix(folder + string(os.PathSeparator) + name)
		if n == maxSameName || !errors.Is(err, errInUse) {
			return l, err
		}
	}
}

// limited is a listener with a bounded number of open connections.
type limited struct {
	net.Listener
	free  chan struct{} // a token for each connection that may still be opened
	done  chan struct{}
	close sync.Once
}

func limitConnections(l net.Listener, n int) net.Listener {
	free := make(chan struct{}, n)
	for range n {
		free <- struct{}{}
	}
	return &limited{Listener: l, free: free, done: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case <-l.free:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		l.free <- struct{}{}
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { l.free <- struct{}{} })}, nil
}

func (l *limited) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
