package lane

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/epoll"
	"millrace/internal/wire/send"
)

// outWait bounds how long the loop waits in out. Whatever the loop must handle ends the
// wait.
const outWait = int64(time.Second)

// inputKey is the key of loop.in within out.
const inputKey = -1

// sendWaiting is poll while there are pending answers. It waits in a thread: clients mostly
// take more within microseconds, and waiting in Go's poller would cost several times as
// much. That poller does not watch out, so that not every byte which a client takes wakes
// it.
func (lp *loop) sendWaiting() {
	n, err := lp.out.Wait(lp.writable[:], outWait)
	if err != nil {
		return
	}
	for i := range n {
		if event := &lp.writable[i]; event.Key() == inputKey {
			lp.poll()
		} else {
			lp.serve(event)
		}
	}
}

// sendPending goes on with an answer that the client did not take at once. It returns true
// if all of it is sent and the next request may be served. Otherwise epoll tells of room,
// or the connection was closed, or it has left the loop: with a file that must be read from
// the disk, or that sendfile(2) cannot send.
func (lp *loop) sendPending(c *Conn) bool {
	r := c.reading.pending
	sent, state := c.push(r)
	if state == pushWaits {
		if sent > 0 || !r.awaitsClient {
			c.startWriteTimeout()
		}
		if err := lp.watchWritable(c, r); err != nil {
			lp.fail(c, r, err)
		}
		return false
	}
	err := lp.watchReadable(c, r)
	c.stopWriteTimeout()
	switch state {
	case pushCold:
		c.leave()
		return false
	case pushFailed:
		err = unix.EPIPE
	}
	if err != nil {
		lp.fail(c, r, err)
		return false
	}
	if c.endPending(nil) != nil {
		_ = c.Close()
		return false
	}
	return true
}

// fail closes a connection whose answer cannot be sent, or that epoll cannot watch.
func (lp *loop) fail(c *Conn, r *pendingWrite, err error) {
	if r.awaitsClient {
		r.awaitsClient = false
		lp.sending--
	}
	_ = c.endPending(err)
	_ = c.Close() // then epoll forgets it
}

// watchWritable moves a connection to out, where epoll tells once of room. Requests wait in
// the socket meanwhile.
func (lp *loop) watchWritable(c *Conn, r *pendingWrite) error {
	const room = epoll.Out | epoll.OneShot
	if r.awaitsClient {
		return lp.out.Change(c.fd, room, int32(c.fd), c.shard)
	}
	r.awaitsClient = true
	lp.sending++
	_ = lp.in.Remove(c.fd)
	return lp.out.Add(c.fd, room, int32(c.fd), c.shard)
}

// watchReadable moves a connection back to in, if it is in out.
func (lp *loop) watchReadable(c *Conn, r *pendingWrite) error {
	if !r.awaitsClient {
		return nil
	}
	r.awaitsClient = false
	lp.sending--
	_ = lp.out.Remove(c.fd)
	return lp.watch(c.fd, c.shard)
}

// pushed says how much of an answer was sent.
type pushed uint8

const (
	pushDone   pushed = iota // all of it
	pushWaits                // some; the client takes no more, or other connections are next
	pushCold                 // some; a goroutine must read the file from the disk, or copy it
	pushFailed               // sending has failed
)

// push sends as much of r as the client takes now, at most bytesPerEvent of a file.
func (c *Conn) push(r *pendingWrite) (sent int, state pushed) {
	if r.file.of != nil {
		if f, from := r.fileFrom(); !f.InMemory(from, r.leftForEvent()) {
			return 0, pushCold
		}
	}
	if c.wire != nil {
		return c.pushTLS(r)
	}
	if len(r.head)+len(r.body) > 0 {
		var err error
		if sent, err = c.pushBytes(r); err != nil {
			return sent, pushFailed
		}
		if len(r.head)+len(r.body) > 0 {
			return sent, pushWaits
		}
	}
	if r.file.of == nil {
		return sent, pushDone
	}
	f, from := r.fileFrom()
	n, err := send.TryFile(uintptr(c.fd), f, from, r.leftForEvent())
	r.sent += n
	sent += int(n)
	c.lane.meters.Sent.Sendfile.Add(c.shard, uint64(n))
	switch {
	case r.sent == r.file.size:
		return sent, pushDone
	case errors.Is(err, send.ErrNeedsBlocking):
		return sent, pushCold
	case err != nil:
		return sent, pushFailed
	}
	return sent, pushWaits
}

// leftForEvent returns how much of the file may be sent for this event.
func (r *pendingWrite) leftForEvent() int64 { return min(r.file.size-r.sent, bytesPerEvent) }

// pushBytes sends as much of the header and of a body in memory as the client takes now.
func (c *Conn) pushBytes(r *pendingWrite) (n int, err error) {
	switch {
	case r.file.of != nil:
		n, err = send.TryHead(uintptr(c.fd), r.head)
	case len(r.head) > 0:
		n, err = send.TryWrite(uintptr(c.fd), r.head, r.body)
	default:
		n, err = send.TryWrite(uintptr(c.fd), r.body, nil)
	}
	c.lane.meters.Sent.Writev.Add(c.shard, uint64(n))
	skip := min(n, len(r.head))
	r.head, r.body = r.head[skip:], r.body[n-skip:]
	return n, err
}
