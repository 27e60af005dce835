package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// idleTimeout is QUIC's usual one. The target may have a shorter one of its own.
const idleTimeout = 30 * time.Second

// An http3Dialer opens HTTP/3 connections (RFC 9114). Each has a UDP socket of
// its own, as those of different visitors have: one socket for all would send
// all of them to the same of the target's threads, and its receive queue would
// be what is measured.
type http3Dialer struct {
	*target
	requests  []*http.Request // by path
	transport *http3.Transport
	config    *quic.Config
}

func newHTTP3Dialer(t *target) (*http3Dialer, error) {
	t.tls.NextProtos = []string{http3.NextProtoH3}
	t.tls.MinVersion = tls.VersionTLS13 // RFC 9001, 4.2
	d := &http3Dialer{
		target:    t,
		transport: &http3.Transport{DisableCompression: true, MaxResponseHeaderBytes: MaxHead},
		config: &quic.Config{
			HandshakeIdleTimeout: t.timeout,
			// An answer may take its whole time without a packet.
			MaxIdleTimeout: max(idleTimeout, 2*t.timeout),
		},
	}
	var err error
	d.requests, err = t.prepare("https")
	return d, err
}

func (d *http3Dialer) Dial(ctx context.Context) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	socket, to, err := d.socket(ctx)
	if err != nil {
		return nil, d.quicError(err)
	}
	// The transport is what lets us wait, at the end, until the goroutine
	// that reads the socket has gone.
	transport := &quic.Transport{Conn: socket}
	conn, err := transport.Dial(ctx, to, d.tls, d.config)
	if err != nil {
		return nil, errors.Join(d.quicError(err), transport.Close(), socket.Close())
	}
	asked := d.transport.NewClientConn(conn)
	return &roundTripConn{
		target:   d.target,
		scheme:   "https",
		requests: d.requests,
		trip:     asked.RoundTrip,
		close: func() error {
			err := asked.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
			return errors.Join(err, transport.Close(), socket.Close())
		},
		leaving: func() bool { return asked.Context().Err() != nil },
		kind:    http3Kind,
	}, nil
}

// socket opens a UDP socket and looks the target up.
func (d *http3Dialer) socket(ctx context.Context) (*net.UDPConn, *net.UDPAddr, error) {
	host, port, err := net.SplitHostPort(d.address)
	if err != nil {
		return nil, nil, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, nil, err
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	to := &net.UDPAddr{IP: found[0].IP, Zone: found[0].Zone, Port: number}
	var from *net.UDPAddr
	if d.local != nil {
		if a := d.local(); a != nil {
			from = &net.UDPAddr{IP: addrIP(a), Port: addrPort(a)}
		}
	}
	network := "udp6"
	if to.IP.To4() != nil {
		network = "udp4"
	}
	var socket *net.UDPConn
	err = d.within(func() (err error) {
		socket, err = net.ListenUDP(network, from)
		return err
	})
	return socket, to, err
}

// quicError says what QUIC's errors mean.
func (d *http3Dialer) quicError(err error) error {
	if _, idle := errors.AsType[*quic.IdleTimeoutError](err); idle || isTimeout(err) {
		// Nothing tells a UDP port where nobody listens from a slow one.
		return &failure{
			text:  fmt.Sprintf("%v to %s: no answer to QUIC's handshake within %v: does the target speak HTTP/3 on this UDP port?", ErrConnect, d.address, d.timeout),
			kind:  ErrConnect,
			cause: err,
		}
	}
	return d.connectError(err)
}

func (d *http3Dialer) Close() error { return d.transport.Close() }

// http3Kind tells the errors of HTTP/3 (RFC 9114, 8.1).
func http3Kind(err error) (untaken bool, kind error) {
	if e, ok := errors.AsType[*http3.Error](err); ok {
		switch e.ErrorCode {
		case http3.ErrCodeRequestRejected: // RFC 9114, 4.1.1: may be asked again
			return true, ErrClosed
		case http3.ErrCodeNoError, http3.ErrCodeInternalError, http3.ErrCodeRequestCanceled,
			http3.ErrCodeRequestIncomplete, http3.ErrCodeExcessiveLoad:
			return false, ErrClosed
		}
		return false, ErrProtocol
	}
	if strings.Contains(err.Error(), "graceful shutdown") { // after a GOAWAY; the error has no name
		return true, ErrClosed
	}
	return false, nil
}
