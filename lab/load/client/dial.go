package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// connect opens a TCP or UNIX connection and, where the target wants it, does
// the TLS handshake for the protocol named ("" without ALPN).
func (t *target) connect(ctx context.Context, alpn string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}}
	if t.local != nil && t.network == "tcp" {
		if a := t.local(); a != nil {
			d.LocalAddr = &net.TCPAddr{IP: addrIP(a), Port: addrPort(a)}
			d.Control = shareSourcePorts
		}
	}
	var conn net.Conn
	err := t.within(func() (err error) {
		conn, err = d.DialContext(ctx, t.network, t.address)
		return err
	})
	if err != nil {
		return nil, t.connectError(err)
	}
	if !t.secure {
		return conn, nil
	}
	config := t.tls
	if alpn != "" {
		config = config.Clone()
		config.NextProtos = []string{alpn}
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, t.connectError(err)
	}
	return secured, nil
}

// addrIP is the IP address of a local address, whichever kind it is.
func addrIP(a net.Addr) net.IP {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP
	case *net.UDPAddr:
		return a.IP
	case *net.IPAddr:
		return a.IP
	}
	return nil
}

func addrPort(a net.Addr) int {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.Port
	case *net.UDPAddr:
		return a.Port
	}
	return 0
}

// connectError says why there is no connection, and what to do about it where
// we know. The name of the target stands in it once.
func (t *target) connectError(err error) error {
	if errors.Is(err, ErrConnect) {
		return err
	}
	says := func(format string, args ...any) error {
		return &failure{text: ErrConnect.Error() + " to " + t.address + ": " + fmt.Sprintf(format, args...), kind: ErrConnect, cause: err}
	}
	if why := certificateTrouble(err); why != "" {
		return says("%s; to accept any certificate, use --insecure", why)
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return says("it does not speak TLS there: use http: or ws:")
	}
	if strings.HasSuffix(err.Error(), "tls: no application protocol") { // an alert, RFC 7301, 3.2; crypto/tls exports no type for it
		return says("it speaks TLS but not this protocol over it")
	}
	step := ""
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && op.Err != nil {
		err = op.Err // which does not name the address again
	} else if t.secure {
		step = "TLS handshake: "
	}
	if isTimeout(err) {
		return says("%sno answer within %v", step, t.timeout)
	}
	return says("%s%v", step, err)
}

// A failure is an error of one of our kinds in words of our own, with what it
// came from for errors.Is and errors.As.
type failure struct {
	text        string
	kind, cause error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return []error{f.kind, f.cause} }

// certificateTrouble says what is wrong with a certificate, or nothing if that
// is not the trouble.
func certificateTrouble(err error) string {
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if e.Cert != nil && e.Cert.Issuer.String() == e.Cert.Subject.String() {
			return "its certificate is self-signed"
		}
		return "its certificate is signed by an authority that this machine does not trust"
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return "its certificate is not valid: " + e.Error()
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate is not valid: " + e.Err.Error()
	}
	return ""
}

func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// classify wraps what went wrong between a request and its answer.
func classify(ctx context.Context, doing string, err error) error {
	for _, known := range []error{ErrConnect, ErrClosed, ErrTimeout, ErrProtocol} {
		if errors.Is(err, known) {
			return err
		}
	}
	if ended := ctx.Err(); ended != nil {
		kind := ErrClosed
		if errors.Is(ended, context.DeadlineExceeded) {
			kind = ErrTimeout
		}
		return fmt.Errorf("%w: %s: %w", kind, doing, ended)
	}
	if isTimeout(err) {
		return fmt.Errorf("%w: %s: %w", ErrTimeout, doing, err)
	}
	if gone(err) {
		return fmt.Errorf("%w: %s: %w", ErrClosed, doing, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrProtocol, doing, err)
}

// gone reports an error of the connection itself, not of what came over it.
func gone(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" // a TLS alert
}
