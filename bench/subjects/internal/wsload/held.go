package wsload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"millrace/bench/subjects/internal/wsramp"
)

// held are connections over TLS, which do nothing but answer pings. Each has a
// goroutine that reads; close waits for them.
type held struct {
	open, dropped atomic.Int64
	closing       atomic.Bool
	mu            sync.Mutex // guards what follows
	conns         []*tls.Conn
	failed        int
	first         string
	readers       sync.WaitGroup
}

// hold opens connections over TLS.
func hold(o Open, to netip.AddrPort) (*held, State) {
	h := &held{}
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server's certificate was made for this run
	ctx, cancel := context.WithTimeout(context.Background(), o.Limit)
	defer cancel()
	var next atomic.Int64
	var all sync.WaitGroup // of the openers
	for range min(o.Busy, o.Connections) {
		all.Go(func() {
			buf := make([]byte, maxHead)
			for i := int(next.Add(1) - 1); i < o.Connections; i = int(next.Add(1) - 1) {
				conn, early, err := dialTLS(ctx, &o, i, to, config, buf)
				h.add(conn, early, err)
			}
		})
	}
	all.Wait()
	var s State
	s.Open = h.state(&s)
	return h, State{}
}

func dialTLS(ctx context.Context, o *Open, i int, to netip.AddrPort, config *tls.Config, buf []byte) (_ *tls.Conn, early []byte, err error) {
	local := &net.TCPAddr{IP: source(o, i).AsSlice()}
	dialer := net.Dialer{LocalAddr: local, Control: wsramp.BindLate}
	raw, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, nil, err
	}
	conn := tls.Client(raw, config)
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if early, err = upgradeTLS(conn, o, buf); err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	return conn, early, conn.SetDeadline(time.Time{})
}

// upgradeTLS does both handshakes.
func upgradeTLS(conn *tls.Conn, o *Open, buf []byte) (early []byte, err error) {
	request, accept := handshake(o.Address, o.Path)
	if _, err := conn.Write([]byte(request)); err != nil {
		return nil, fmt.Errorf("asking for a WebSocket: %w", err)
	}
	return awaitHead(conn.Read, accept, buf)
}

// add keeps a connection, and starts its reader.
func (h *held) add(conn *tls.Conn, early []byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed++
		if h.first == "" {
			h.first = err.Error()
		}
		return
	}
	h.conns = append(h.conns, conn)
	h.open.Add(1)
	h.readers.Go(func() {
		err := answerPings(conn, early)
		h.open.Add(-1)
		if h.closing.Load() {
			return
		}
		h.dropped.Add(1)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.first == "" {
			h.first = err.Error()
		}
	})
}

// answerPings reads until there is nothing more to read, and says why.
func answerPings(conn *tls.Conn, have []byte) error {
	var buf [256]byte // a ping has at most 127 bytes
	for {
		f, size, err := cut(have)
		if err != nil {
			return err
		}
		switch {
		case size == 0:
			n, err := conn.Read(buf[:])
			if err != nil {
				return err
			}
			have = append(have, buf[:n]...)
			continue
		case f.op == opClose:
			return errors.New("the server closed the connection")
		case f.op == opPing:
			if _, err := conn.Write(masked(nil, opPong, f.payload)); err != nil {
				return err
			}
		}
		if have = have[size:]; len(have) == 0 {
			have = nil
		}
	}
}

// state adds to s what became of the connections, and says how many are open.
func (h *held) state(s *State) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Failed, s.Dropped, s.First = h.failed, int(h.dropped.Load()), h.first
	return int(h.open.Load())
}

// close closes all connections, as many as are open, and waits for the readers.
func (h *held) close() int {
	h.closing.Store(true)
	n := int(h.open.Load())
	h.mu.Lock()
	conns := h.conns
	h.mu.Unlock()
	for _, c := range conns {
		_, _ = c.Write(masked(nil, opClose, []byte("\x03\xe8"))) // it may have ended
		_ = c.NetConn().Close()
	}
	h.readers.Wait()
	return n
}
