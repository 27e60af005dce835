package wsload

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// bufferSize is what is read at once from a connection.
	bufferSize = 64 << 10
	// eventCount is how many connections one call tells about.
	eventCount = 512
	// patience is how long the next answer, delivery or end is waited for when
	// nothing more is sent.
	patience = 5 * time.Second
	// nap is how long the thread sleeps at most where something else may end
	// what it waits for.
	nap = 20 * time.Millisecond
)

// Client holds connections. All its methods but Wake must be called by one
// goroutine, which should be locked to its thread.
type Client struct {
	began  time.Time // of its clock
	epoll  int
	wake   int // an eventfd
	conns  []conn
	open   int
	state  State
	buf    []byte
	events [eventCount]unix.EpollEvent
	held   *held // instead of conns: over TLS
	// patience is the constant, but in tests.
	patience time.Duration

	mu     sync.Mutex // guards opened
	opened []opened

	echoing   *echoing
	receiving *receiving
}

// conn is one WebSocket.
type conn struct {
	fd       int
	rest     []byte // a frame that has not come whole
	part     []byte // a message of which frames are missing
	awaiting bool   // an echo
	sent     int64  // ns, by the client's clock
	send     []byte // a frame
	want     []byte // the frame of its echo
	next     uint64 // the publication that is due
}

// opened is a connection on its way to the thread.
type opened struct {
	index int
	fd    int
	early []byte
	err   error
}

// New makes a client with nothing open. Free gives back what it holds.
func New() (*Client, error) {
	c := &Client{began: time.Now(), buf: make([]byte, bufferSize), patience: patience}
	var err error
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	if c.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(c.epoll)
		return nil, fmt.Errorf("making an eventfd: %w", err)
	}
	if err := c.watch(c.wake, waker); err != nil {
		return nil, errors.Join(err, c.Free())
	}
	return c, nil
}

// waker is the index of the eventfd among the connections.
const waker = -1

func (c *Client) watch(fd, index int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(index)}
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watching a connection: %w", err)
	}
	return nil
}

// Free closes everything, without a word to the server.
func (c *Client) Free() error {
	if c.held != nil {
		c.held.close()
	}
	for i := range c.conns {
		c.drop(&c.conns[i])
	}
	return errors.Join(unix.Close(c.wake), unix.Close(c.epoll))
}

// Wake ends a Turn that waits. Any goroutine may call it.
func (c *Client) Wake() {
	one := [8]byte{1}
	_, _ = unix.Write(c.wake, one[:]) // fails where it is awake already
}

// now is the client's clock, in ns.
func (c *Client) now() int64 { return int64(time.Since(c.began)) }

// Turn reads what has come, at most once from each of some connections. Where
// nothing has, it waits until something does, for at most the given time;
// below zero: for however long.
func (c *Client) Turn(wait time.Duration) error {
	// Without the scheduler's knowledge, since it does not block.
	n, _, code := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(c.epoll), uintptr(unsafe.Pointer(&c.events[0])), eventCount, 0, 0, 0)
	count := int(n)
	if code != 0 || count == 0 {
		milliseconds := -1
		if wait >= 0 {
			milliseconds = int((wait + time.Millisecond - 1) / time.Millisecond)
		}
		var err error
		count, err = unix.EpollWait(c.epoll, c.events[:], milliseconds)
		if errors.Is(err, unix.EINTR) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for connections: %w", err)
		}
	}
	for _, e := range c.events[:count] {
		if e.Fd == waker {
			var drained [8]byte
			_, _ = unix.Read(c.wake, drained[:])
			continue
		}
		if k := &c.conns[e.Fd]; k.fd >= 0 {
			c.readable(k)
		}
	}
	return nil
}

// readable reads once. What comes beyond the buffer makes it readable again.
func (c *Client) readable(k *conn) {
	n, _, code := syscall.RawSyscall(unix.SYS_READ, uintptr(k.fd), uintptr(unsafe.Pointer(&c.buf[0])), bufferSize)
	switch {
	case code == unix.EAGAIN || code == unix.EINTR:
		return
	case code != 0:
		c.lose(k, code)
		return
	case n == 0:
		c.lose(k, errEnded)
		return
	}
	data := c.buf[:n]
	if k.awaiting && len(k.rest) == 0 && bytes.Equal(data, k.want) {
		c.echoed(k)
		return
	}
	if err := c.take(k, data); err != nil {
		c.lose(k, err)
	}
}

var errEnded = errors.New("the server closed the connection")

// take handles the frames in data, and keeps what has not come whole.
func (c *Client) take(k *conn, data []byte) error {
	if len(k.rest) > 0 {
		k.rest = append(k.rest, data...)
		data = k.rest
	}
	for {
		f, size, err := cut(data)
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if err := c.frame(k, f); err != nil {
			return err
		}
		data = data[size:]
	}
	if len(data) == 0 {
		k.rest = nil
		return nil
	}
	k.rest = append([]byte(nil), data...) // of its own: data may lie in it
	return nil
}

// frame handles one frame.
func (c *Client) frame(k *conn, f frame) error {
	switch f.op {
	case opPing:
		return write(k.fd, masked(nil, opPong, f.payload))
	case opPong:
		return nil
	case opClose:
		return fmt.Errorf("the server closed with %.60q", f.payload)
	case opText, opBinary, opContinuation:
	default:
		return fmt.Errorf("the server sent the opcode %d", f.op)
	}
	message := f.payload
	if !f.fin || len(k.part) > 0 {
		if k.part = append(k.part, f.payload...); len(k.part) > maxFrame {
			return errors.New("a message is too long")
		}
		if !f.fin {
			return nil
		}
		message, k.part = k.part, nil
	}
	switch {
	case c.receiving != nil:
		c.received(k, message)
	case k.awaiting && bytes.HasSuffix(k.want, message) && len(message) == c.echoing.order.Size:
		c.echoed(k)
	case k.awaiting:
		return fmt.Errorf("what came back is not what was sent: %.40q", message)
	}
	return nil
}

// write writes a small frame, for which there is room where one message at a
// time is under way.
func write(fd int, frame []byte) error {
	n, _, code := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))), uintptr(len(frame)))
	if code != 0 {
		return code
	}
	if int(n) != len(frame) {
		return errors.New("the server does not read")
	}
	return nil
}

// lose is told that a connection cannot be used any more.
func (c *Client) lose(k *conn, err error) {
	c.drop(k)
	c.state.Dropped++
	c.because(err)
	if k.awaiting {
		k.awaiting = false
		c.echoing.failed(err)
	}
}

// because keeps the first reason.
func (c *Client) because(err error) {
	if c.state.First == "" {
		c.state.First = err.Error()
	}
}

// drop closes a connection.
func (c *Client) drop(k *conn) {
	if k.fd < 0 {
		return
	}
	_ = unix.Close(k.fd)
	k.fd = -1
	c.open--
}

// Close says goodbye on all connections and waits for the server to close them.
func (c *Client) Close() State {
	start := c.now()
	if c.held != nil {
		c.state.Open = c.held.close()
		c.held = nil
	}
	before := c.state
	for i := range c.conns {
		if k := &c.conns[i]; k.fd >= 0 {
			if err := write(k.fd, masked(nil, opClose, []byte("\x03\xe8"))); err != nil {
				c.drop(k)
				before.Unclean++
			}
		}
	}
	latest, left := start, c.open // when one was closed last
	for c.open > 0 && c.now()-latest < int64(c.patience) {
		if err := c.Turn(nap); err != nil {
			break
		}
		if c.open < left {
			latest, left = c.now(), c.open
		}
	}
	for i := range c.conns {
		if k := &c.conns[i]; k.fd >= 0 {
			c.drop(k)
			before.Unclean++
		}
	}
	before.Took = time.Duration(c.now() - start)
	before.Open = 0
	c.conns, c.state = nil, State{}
	return before
}

// State is what became of the connections.
func (c *Client) State() State {
	s := c.state
	s.Open = c.open
	if c.held != nil {
		s.Open = c.held.state(&s)
	}
	return s
}
