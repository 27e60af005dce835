package wsload

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errLate is what did not come in time.
var errLate = errors.New("it took longer than the limit allows")

// socket is a TCP connection whose descriptor does not block, used for a while
// as if it did.
type socket struct {
	fd    int
	until time.Time
}

// dial connects from one address to another. The kernel chooses the port when
// the connection is made, not when the source is bound: so each source has all
// of its ports for each target (IP_BIND_ADDRESS_NO_PORT, ip(7)).
func dial(from netip.Addr, to netip.AddrPort, until time.Time) (s socket, err error) {
	s = socket{-1, until}
	if s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return s, fmt.Errorf("making a socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(s.fd)
		}
	}()
	if err = unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return s, fmt.Errorf("binding late: %w", err)
	}
	if err = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return s, fmt.Errorf("setting TCP_NODELAY: %w", err)
	}
	if err = unix.Bind(s.fd, &unix.SockaddrInet4{Addr: from.As4()}); err != nil {
		return s, fmt.Errorf("binding %v: %w", from, err)
	}
	err = unix.Connect(s.fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		if err = s.wait(unix.POLLOUT); err == nil {
			var code int
			if code, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
				err = unix.Errno(code)
			}
		}
	}
	if err != nil {
		return s, fmt.Errorf("connecting: %w", err)
	}
	return s, nil
}

// wait waits until the socket is ready for what poll(2) calls events.
func (s socket) wait(events int16) error {
	for {
		left := time.Until(s.until)
		if left <= 0 {
			return errLate
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: events}}, int(left/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

// write writes all of b.
func (s socket) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(s.fd, b)
		switch {
		case err == nil:
			b = b[n:]
		case errors.Is(err, unix.EAGAIN):
			if err := s.wait(unix.POLLOUT); err != nil {
				return err
			}
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	return nil
}

// read reads at least one byte.
func (s socket) read(b []byte) (int, error) {
	for {
		n, err := unix.Read(s.fd, b)
		switch {
		case err == nil && n == 0:
			return 0, errors.New("the server closed the connection")
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			if err := s.wait(unix.POLLIN); err != nil {
				return 0, err
			}
		case !errors.Is(err, unix.EINTR):
			return 0, err
		}
	}
}

// upgrade does the handshake, and subscribes where that is asked for. early is
// what was read beyond.
func (s socket) upgrade(o *Open, buf []byte) (early []byte, err error) {
	request, accept := handshake(o.Address, o.Path)
	if err := s.write([]byte(request)); err != nil {
		return nil, fmt.Errorf("asking for a WebSocket: %w", err)
	}
	early, err = awaitHead(s.read, accept, buf)
	if err != nil || o.Subscribe == "" {
		return early, err
	}
	if err := s.write(masked(nil, opText, []byte(`{"subscribe":"`+o.Subscribe+`"}`))); err != nil {
		return nil, fmt.Errorf("subscribing: %w", err)
	}
	return s.subscribed(early, o.Subscribe, buf)
}

// awaitHead reads an answer's head, and what came right behind it.
func awaitHead(read func([]byte) (int, error), accept string, buf []byte) (early []byte, err error) {
	have := 0
	for have < len(buf) {
		n, err := read(buf[have:])
		if err != nil {
			return nil, fmt.Errorf("awaiting a WebSocket: %w", err)
		}
		have += n
		if end := bytes.Index(buf[:have], []byte("\r\n\r\n")); end >= 0 {
			return append([]byte(nil), buf[end+4:have]...), answered(string(buf[:end]), accept)
		}
	}
	return nil, errors.New("the server's answer has no end")
}

// subscribed reads until a message names the channel: then it has begun.
func (s socket) subscribed(have []byte, channel string, buf []byte) (early []byte, err error) {
	for {
		f, size, err := cut(have)
		if err != nil {
			return nil, err
		}
		if size == 0 {
			n, err := s.read(buf)
			if err != nil {
				return nil, fmt.Errorf("awaiting a subscription: %w", err)
			}
			if have = append(have, buf[:n]...); len(have) > maxFrame {
				return nil, errors.New("the server sends much, but no subscription")
			}
			continue
		}
		have = have[size:]
		switch text := string(f.payload); {
		case f.op == opClose || f.op == opText && strings.Contains(text, `"error"`):
			return nil, fmt.Errorf("subscribing: the server said %.80q", text)
		case f.op == opText && strings.Contains(text, `"`+channel+`"`):
			return have, nil
		}
	}
}
