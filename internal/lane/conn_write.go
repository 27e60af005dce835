package lane

import (
	"io"
	"sync"

	"millrace/internal/wire/send"
)

// Write implements [net.Conn] for net/http.
func (c *Conn) Write(p []byte) (int, error) {
	if c.state.load().handedOff() {
		return c.nc.Write(p)
	}
	n, err := c.transmit(p, nil)
	c.lane.meters.Sent.Copied.Add(c.shard, uint64(n))
	return int(n), err
}

// maxWrite is the most that one Write of a net.Conn gets, which does not tell of its
// progress: a slow client has the write timeout for each such piece.
const maxWrite = 64 << 10

// transmit writes head and body and returns how many bytes went.
func (c *Conn) transmit(head, body []byte) (total int64, err error) {
	if c.sock != nil {
		total, err = c.sock.Write(head, body)
		c.stopWriteTimeout()
		return total, err
	}
	defer c.writeBy.Store(0)
	for _, b := range [2][]byte{head, body} {
		for len(b) > 0 {
			c.startWriteTimeout()
			n, err := c.nc.Write(b[:min(len(b), maxWrite)])
			total += int64(n)
			if err != nil {
				return total, err
			}
			b = b[n:]
		}
	}
	return total, nil
}

// startWriteTimeout is called when the client takes no more for now. Where the lane
// answers by itself it ends the idle timeout: a slow download may take longer than that.
func (c *Conn) startWriteTimeout() {
	if c.state.load() == stateReading {
		c.setInputDeadline(0)
	}
	c.writeBy.Store(c.deadlineIn(c.lane.settings.Load().Write))
}

// stopWriteTimeout is called when the client has taken everything.
func (c *Conn) stopWriteTimeout() {
	if c.writeBy.Load() != 0 {
		c.writeBy.Store(0)
	}
}

// ReadFrom implements [io.ReaderFrom]: net/http calls it for the body of a file, which
// goes by sendfile(2), over TCP and UNIX sockets alike.
func (c *Conn) ReadFrom(src io.Reader) (int64, error) {
	if c.state.load().handedOff() {
		return io.Copy(struct{ io.Writer }{c.nc}, src)
	}
	if sec, moved, ok := send.SectionOf(src); ok && c.sock != nil {
		n, err := c.sendFile(nil, sec)
		moved(n)
		return n, err
	}
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c}, src, *buf)
}

// sendFile sends head and the section and returns the section's bytes.
func (c *Conn) sendFile(head []byte, sec *send.Section) (int64, error) {
	if c.sock != nil && sec.HasDescriptor() {
		nHead, n, err := c.sock.SendFile(head, sec)
		c.stopWriteTimeout()
		c.lane.meters.Sent.Writev.Add(c.shard, uint64(nHead))
		c.lane.meters.Sent.Sendfile.Add(c.shard, uint64(n))
		return n, err
	}
	if _, err := c.Write(head); err != nil {
		return 0, err
	}
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	want := sec.Remaining()
	n, err := io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{sec}, *buf)
	if err == nil && n < want {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// bufferPool holds the buffers for pipelined answers and copied files.
var bufferPool = sync.Pool{New: func() any { b := make([]byte, maxWrite); return &b }}
