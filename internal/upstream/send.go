package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/upstream/http1"
)

// smallBody is how many bytes a body may have that is read before anything is
// sent, so that one write sends all of the request.
const smallBody = 32 << 10

// large are buffers for bodies: whole small ones behind their header, and
// larger ones piece by piece.
var large = sync.Pool{New: func() any { b := make([]byte, smallBody+http1.BufferSize); return &b }}

// outgoing is a request as it is sent.
type outgoing struct {
	text   []byte  // the header, and a small body that was read
	buffer *[]byte // below text; nil: none of a pool's
	from   *sync.Pool
	small  int64 // what is to be read and appended to text: a small body
	later  int64 // what a sender sends: a length, -1 for chunks; 0: nothing
	expect bool  // the server wants to be asked before
	last   http.Header
}

// write writes down the head of the request.
func (x *Exchange) write() (*outgoing, error) {
	q, s, out := x.request, x.server, &x.out
	*out = outgoing{from: &buffers}
	head := s.head(q)
	if x.place.server == nil {
		head.Prefix = "" // probes have a path of their own
	}
	head.Close, head.Body = s.distrusted(), 0
	if x.upload != nil {
		if head.Body = q.Length; head.Body <= 0 {
			head.Body, head.Trailer, out.last = -1, q.Trailer, q.Trailer
		}
		out.expect = q.Fields.Lists("Expect", "100-continue")
		if head.Body < 0 || head.Body > smallBody || out.expect {
			out.later = head.Body
		} else if out.small = head.Body; out.small > http1.BufferSize/2 {
			out.from = &large
		}
	}
	out.buffer = out.from.Get().(*[]byte)
	var err error
	if out.text, err = head.Append((*out.buffer)[:0]); err != nil {
		out.release()
		return nil, err
	}
	return out, nil
}

// head is the head of a request as it goes out to s.
func (s *server) head(q *Request) http1.Request {
	head := http1.Request{
		Method: q.Method, Prefix: s.prefix, Path: q.Path, Query: q.Query, Ask: q.Asks,
		Host: s.hostFor(q.Host), Fields: q.Fields, Body: q.Length,
	}
	if q.Path == "*" {
		head.Prefix = ""
	}
	return head
}

// hostFor is what a request for a host says in Host.
func (s *server) hostFor(host string) string { return asciiHost(cmp.Or(s.hostField, host, s.host)) }

// release gives the buffer back.
func (o *outgoing) release() {
	if o.buffer != nil {
		o.from.Put(o.buffer)
		o.buffer, o.text = nil, nil
	}
}

// whole reads a small body, once, behind the header.
func (o *outgoing) whole(x *Exchange) error {
	if o.small == 0 {
		return nil
	}
	n := int(o.small)
	o.small = 0
	head := len(o.text)
	if cap(o.text)-head < n {
		o.text = append(make([]byte, 0, head+n), o.text...)
	}
	o.text = o.text[:head+n]
	return x.upload.whole(o.text[head:])
}

// whole reads all of a body into to, and its end.
func (u *upload) whole(to []byte) error {
	u.mu.Lock()
	u.started = true
	u.mu.Unlock()
	n, err := io.ReadFull(u.inner, to)
	if err == nil {
		var more [1]byte
		var m int
		if m, err = u.inner.Read(more[:]); m > 0 {
			err = fmt.Errorf("the body is longer than %d bytes", len(to))
		}
		if err == io.EOF { //nolint:errorlint // io.Reader says that io.EOF is not wrapped
			err = nil
		}
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the body has %d bytes instead of %d", n, len(to))
	}
	u.mu.Lock()
	u.err = err
	u.mu.Unlock()
	_ = u.Close() // never fails
	return err
}

// sender sends a body on a goroutine of its own, so that an answer that comes
// before its end is seen.
type sender struct {
	x      *Exchange
	upload *upload
	wire   *wire
	start  chan struct{} // closed by goAhead; nil: the server need not be asked
	once   sync.Once
	asked  sync.Once
	quit   chan struct{} // closed when there is no use in sending any more
	done   chan struct{} // closed at its end

	last   atomic.Bool // the body was read to its end
	mu     sync.Mutex  // guards limit of the exchange, the wire's until, and:
	ended  bool        // all of the body was sent; see done
	headed bool        // the header of the answer has come
}

// startSending starts a sender for what is left of a request.
func (x *Exchange) startSending(out *outgoing) {
	s := &sender{x: x, upload: x.upload, wire: x.wire, quit: make(chan struct{}), done: make(chan struct{})}
	if out.expect {
		s.start = make(chan struct{})
	}
	x.listen() // a body takes its time
	x.sender = s
	x.upload.onStall(func() {
		x.stuck.Store(true)
		s.wire.close()
	})
	length, trailer := out.later, out.last
	go s.run(length, trailer) // ends with the body, or the connection; nobody waits for a client
}

// goAhead lets a sender begin that waits for it.
func (s *sender) goAhead() {
	if s.start != nil {
		s.asked.Do(func() { close(s.start) })
	}
}

// run sends the body.
func (s *sender) run(length int64, trailer http.Header) {
	defer close(s.done)
	defer func() { _ = s.upload.Close() }() // never fails
	if s.start != nil {
		select {
		case <-s.start:
		case <-time.After(continueTimeout):
		case <-s.quit:
			return
		}
	}
	buffer := large.Get().(*[]byte)
	defer large.Put(buffer)
	whole, err := s.copy(*buffer, length, trailer)
	if err != nil && s.upload.failed() != nil {
		s.wire.close() // the server must not take half a request for a whole one
		return
	}
	// If the server takes no more, it may have answered.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = whole && err == nil
	if !s.headed {
		s.x.limit = s.x.pool.now() + s.x.pool.options.HeaderTimeout
		s.wire.setUntil(s.x.pool.started, s.x.limit)
	}
}

// copy writes the body as it comes. One that is there as a whole writes itself.
func (s *sender) copy(b []byte, length int64, trailer http.Header) (whole bool, err error) {
	if from, ok := s.upload.inner.(io.WriterTo); ok && s.x.request.Whole && length >= 0 {
		return s.copyFrom(from, b, length)
	}
	room := len(b) - http1.ChunkRoom - 2
	for sent := int64(0); ; {
		n, err := s.upload.Read(b[http1.ChunkRoom : http1.ChunkRoom+room])
		if err == io.EOF { //nolint:errorlint // io.Reader says that io.EOF is not wrapped
			s.last.Store(true)
		}
		if sent += int64(n); length >= 0 && sent > length {
			return false, s.upload.fail(fmt.Errorf("the body is longer than %d bytes", length))
		}
		if n > 0 {
			piece := b[http1.ChunkRoom : http1.ChunkRoom+n]
			if length < 0 {
				piece = http1.Chunk(b, n)
			}
			if _, werr := s.wire.net.Write(piece); werr != nil {
				return false, werr
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // io.Reader says that io.EOF is not wrapped
			if length >= 0 {
				if sent < length {
					return false, s.upload.fail(fmt.Errorf("the body has %d bytes instead of %d", sent, length))
				}
				return true, nil
			}
			last, lerr := http1.AppendLastChunk(b[:0], trailer)
			if lerr != nil {
				return false, s.upload.fail(lerr)
			}
			_, lerr = s.wire.net.Write(last)
			return true, lerr
		case err != nil:
			return false, err
		}
	}
}

// copyFrom has a body of a length write itself. b is room for what has to be copied.
func (s *sender) copyFrom(from io.WriterTo, b []byte, length int64) (whole bool, err error) {
	to := &bodyWriter{sender: s, room: b, left: length}
	_, err = from.WriteTo(to)
	switch {
	case to.failed:
		return false, err
	case err != nil:
		return false, s.upload.fail(err)
	case to.left != 0:
		return false, s.upload.fail(fmt.Errorf("the body has %d bytes instead of %d", length-to.left, length))
	}
	return true, nil
}

var errLonger = errors.New("the body is longer than its length")

// bodyWriter is what a body that is there as a whole writes itself to: the connection.
type bodyWriter struct {
	*sender
	room   []byte
	left   int64 // of the body's length
	failed bool  // writing has, not the body
}

// Write implements io.Writer.
func (w *bodyWriter) Write(b []byte) (int, error) {
	n, err := w.count(int64(len(b)), func() (int64, error) {
		n, err := w.wire.net.Write(b)
		return int64(n), err
	})
	return int(n), err
}

// WriteBuffers implements [spool.Buffers].
func (w *bodyWriter) WriteBuffers(b *net.Buffers) (n int64, err error) {
	size := int64(0)
	for _, piece := range *b {
		size += int64(len(piece))
	}
	if before := len(*b) - 1; size == w.left && before > 0 { // the last piece goes by itself: see sender.last
		last := (*b)[before:]
		size = int64(len(last[0]))
		first := (*b)[:before]
		if n, err = w.count(w.left-size, func() (int64, error) { return first.WriteTo(w.wire.net) }); err != nil {
			return n, err
		}
		*b = last
	}
	m, err := w.count(size, func() (int64, error) { return b.WriteTo(w.wire.net) })
	return n + m, err
}

// ReadFrom implements io.ReaderFrom: a file goes by sendfile(2) where there is no TLS.
func (w *bodyWriter) ReadFrom(r io.Reader) (int64, error) {
	part, limited := r.(*io.LimitedReader)
	socket, direct := w.wire.net.(io.ReaderFrom)
	if !limited || !direct {
		return io.CopyBuffer(struct{ io.Writer }{w}, r, w.room)
	}
	return w.count(part.N, func() (int64, error) { return socket.ReadFrom(r) })
}

// lastPiece is how long a write of the end of a body may be that is about to return when the
// server answers. The server of a longer one may have refused the body.
const lastPiece = 64 << 10

// count has write send so many bytes, which the server may take as long for as it may
// make no progress.
func (w *bodyWriter) count(size int64, write func() (int64, error)) (n int64, err error) {
	if size > w.left {
		return 0, errLonger
	}
	if err := w.upload.giveOut(); err != nil {
		return 0, err
	}
	if size == w.left && size <= lastPiece {
		w.last.Store(true)
	}
	n, err = write()
	w.left -= n
	w.failed = err != nil
	return n, err
}

// fail notes that the client's body does not match its Content-Length, or broke off.
func (u *upload) fail(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
	return err
}

// endSending ends a sender that is still at work, and reports whether the body
// was sent as a whole, for which it waits a little if that may be so.
func (x *Exchange) endSending(wait bool) bool {
	s := x.sender
	if s == nil {
		return true
	}
	if wait && s.last.Load() {
		select {
		case <-s.done:
		case <-time.After(lastWrite):
		}
	}
	select {
	case <-s.done:
	default:
		s.once.Do(func() { close(s.quit) })
		s.wire.close()
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
