package spool

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Queue holds one body between a side that sends and one that takes: first the part in
// memory, then the part in a file, in order. One goroutine fills it and another takes
// from it.
type Queue struct {
	room     *Room
	most     int64 // in memory
	mostDisk int64
	late     func() // see OnLate
	size     int64  // what Fill has read

	mu     sync.Mutex
	moved  sync.Cond // something came, went or ended
	pieces []piece
	memory int64 // of pieces
	file   *os.File
	from   int64 // of the file: the first byte that nobody took
	to     int64 // its length
	broken bool  // the file cannot be written
	closed bool
	err    error // what comes after the last byte

	lent   *[]byte // what next gave last; it counts for the room
	unread []byte  // of it, for Read
	small  []byte  // what is read back of a file where memory is short; nil: it never was
}

// piece is a part of the body in memory.
type piece struct {
	space *[]byte
	n     int
}

// NewQueue returns an empty one that takes at most so many bytes of memory and
// of disk.
func (r *Room) NewQueue(memory, disk int64) *Queue {
	q := &Queue{room: r, most: memory, mostDisk: disk}
	q.moved.L = &q.mu
	return q
}

// Size is how many bytes Fill has read. It must have returned.
func (q *Queue) Size() int64 { return q.size }

// OnLate sets what Fill calls, once, if it waits and the side that takes is so far
// behind that no memory is left.
func (q *Queue) OnLate(f func()) { q.late = f }

// pause waits until n more bytes may go to a file; see spillRate.
func (q *Queue) pause(n int) {
	q.mu.Unlock()
	if q.late != nil {
		q.late()
		q.late = nil
	}
	time.Sleep(q.room.pace(n))
	q.mu.Lock()
}

// put takes in n bytes of a space, and returns a space for the next ones.
func (q *Queue) put(space *[]byte, n int, wait bool) (*[]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	paused := false
	for {
		if q.closed {
			return space, ErrClosed
		}
		if q.from == q.to { // nothing on disk, which would come first
			if last := len(q.pieces) - 1; last >= 0 && q.pieces[last].n+n <= chunk {
				p := &q.pieces[last]
				p.n += copy((*p.space)[p.n:], (*space)[:n])
				q.moved.Broadcast()
				return space, nil
			}
			if q.admit(wait) {
				return q.push(space, n), nil
			}
		}
		if wait && !paused {
			q.pause(n)
			paused = true
			continue
		}
		err := q.toFile((*space)[:n])
		if err == nil {
			q.moved.Broadcast()
			return space, nil
		}
		q.room.full(err)
		switch {
		case !wait:
			return space, ErrFull
		case q.empty(): // else several that wait for what the others hold would wait for ever
			q.room.memory.Add(chunk)
			return q.push(space, n), nil
		}
		q.moved.Wait()
	}
}

// push appends a piece, and returns a space for the next one.
func (q *Queue) push(space *[]byte, n int) *[]byte {
	q.memory += chunk
	q.pieces = append(q.pieces, piece{space, n})
	q.moved.Broadcast()
	return q.room.Space()
}

// admit reserves memory for a piece. A queue whose filler may wait gets it from half of
// what there is: clients that read slowly leave uploads theirs.
func (q *Queue) admit(wait bool) bool {
	most, first := q.room.limits.Load().memory, wait && len(q.pieces) == 0
	if wait {
		most /= 2
	}
	return (first || q.memory+chunk <= q.most) && take(&q.room.memory, chunk, most)
}

// empty reports whether who takes from the queue has nothing, and waits.
func (q *Queue) empty() bool { return len(q.pieces) == 0 && q.lent == nil && q.from == q.to }

// toFile writes to the temporary file what memory has no room for.
func (q *Queue) toFile(b []byte) error {
	n := int64(len(b))
	if q.broken || q.to+n > q.mostDisk || !take(&q.room.disk, n, q.room.limits.Load().disk) {
		return ErrFull
	}
	if q.file == nil {
		f, err := q.room.file()
		if err != nil {
			q.broken = true
			q.room.disk.Add(-n)
			return err
		}
		q.file = f
	}
	if _, err := q.file.WriteAt(b, q.to); err != nil {
		q.broken = true
		q.room.disk.Add(-n)
		return err
	}
	q.to += n
	return nil
}

// end says what comes after the last byte: io.EOF or why there is no more.
func (q *Queue) end(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	q.moved.Broadcast()
}

// next returns more of the body, until the next call of next or Close. Where nothing
// is there yet it waits, or returns nil.
func (q *Queue) next(wait bool) (b []byte, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release()
	for len(q.pieces) == 0 && q.from == q.to {
		switch {
		case q.closed:
			return nil, ErrClosed
		case q.err != nil:
			return nil, q.err
		case !wait:
			return nil, nil
		}
		q.moved.Wait()
	}
	if len(q.pieces) > 0 {
		p := q.pieces[0]
		q.pieces = q.pieces[1:]
		q.memory -= chunk
		q.lent, b = p.space, (*p.space)[:p.n]
	} else if b, err = q.fromFile(); err != nil {
		return nil, err
	}
	q.moved.Broadcast()
	return b, nil
}

// Drain writes what is there and what comes, to the body's end. flush is called before
// it waits. readErr says why the body broke off, writeErr why it could not be written.
func (q *Queue) Drain(w io.Writer, flush func() error) (n int64, readErr, writeErr error) {
	for {
		b, err := q.next(false)
		if b == nil && err == nil {
			if err := flush(); err != nil {
				return n, nil, err
			}
			b, err = q.next(true)
		}
		if err == io.EOF { //nolint:errorlint // a wrapped one is not the body's end
			return n, nil, nil
		}
		if err != nil {
			return n, err, nil
		}
		m, err := w.Write(b)
		if n += int64(m); err != nil {
			return n, nil, err
		}
	}
}

// fromFile reads a piece from the file, which is written from its beginning again when
// all of it was read.
func (q *Queue) fromFile() ([]byte, error) {
	// Where memory is short, a client that takes nothing must not hold much of it.
	size := int64(small)
	if take(&q.room.memory, chunk, q.room.limits.Load().memory/2) {
		q.lent, size = q.room.Space(), chunk
	} else if q.lent = &q.small; q.small == nil {
		q.small = make([]byte, small)
	}
	b := (*q.lent)[:min(size, q.to-q.from)]
	if n, err := q.file.ReadAt(b, q.from); n < len(b) {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if q.from += int64(len(b)); q.from == q.to {
		if err := q.file.Truncate(0); err != nil {
			return nil, err
		}
		q.room.disk.Add(-q.to)
		q.from, q.to = 0, 0
	}
	return b, nil
}

// release gives back what next gave last, for which put may be waiting.
func (q *Queue) release() {
	if q.lent == nil {
		return
	}
	if q.lent != &q.small {
		q.room.Free(q.lent)
		q.room.memory.Add(-chunk)
	}
	q.lent = nil
	q.moved.Broadcast()
}

// Read implements io.Reader.
func (q *Queue) Read(to []byte) (int, error) {
	for len(q.unread) == 0 {
		b, err := q.next(true)
		if err != nil {
			return 0, err
		}
		q.unread = b
	}
	n := copy(to, q.unread)
	q.unread = q.unread[n:]
	return n, nil
}

// batch is how many pieces WriteTo gives a writer at once.
const batch = 4

// Buffers is a writer that takes several pieces in one call, as a socket does.
type Buffers interface {
	WriteBuffers(b *net.Buffers) (int64, error)
}

// WriteTo implements io.WriterTo for a body of which all has come. What was written is
// freed.
func (q *Queue) WriteTo(w io.Writer) (n int64, err error) {
	r := Reader{q: q, frees: true}
	return r.WriteTo(w)
}

// Reader reads a whole body without removing it from the queue.
type Reader struct {
	q     *Queue
	piece int
	off   int   // in it
	at    int64 // in the file
	frees bool  // what WriteTo has written
	some  [batch][]byte
}

// Reader returns a reader from the beginning. The queue must be full, and nobody
// may take from it: several readers may read at once.
func (q *Queue) Reader() *Reader { return &Reader{q: q} }

// Read implements io.Reader.
func (r *Reader) Read(to []byte) (int, error) {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return 0, ErrClosed
	case len(to) == 0:
		return 0, nil
	case r.piece < len(q.pieces):
		p := q.pieces[r.piece]
		n := copy(to, (*p.space)[r.off:p.n])
		if r.off += n; r.off == p.n {
			r.piece, r.off = r.piece+1, 0
		}
		return n, nil
	case q.from+r.at < q.to:
		n, err := q.file.ReadAt(to[:min(int64(len(to)), q.to-q.from-r.at)], q.from+r.at)
		if r.at += int64(n); n > 0 {
			return n, nil
		}
		return 0, err
	}
	return 0, q.err
}

// WriteTo implements io.WriterTo: w gets what is in memory without a copy, several pieces at
// once if it is a [Buffers], and what is in the file by its ReadFrom, if it has one. Only
// one WriteTo of a queue may run.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	for {
		some, err := r.next()
		if err != nil {
			return n, err
		}
		if len(some) == 0 {
			break
		}
		count := len(some)
		var m int64
		if b, ok := w.(Buffers); ok {
			m, err = b.WriteBuffers(&some)
		} else {
			m, err = some.WriteTo(w)
		}
		if n += m; err != nil {
			return n, err
		}
		r.passed(count)
	}
	m, err := r.writeFile(w)
	if n += m; err == nil && r.q.err != io.EOF { //nolint:errorlint // a wrapped one is not the body's end
		err = r.q.err
	}
	return n, err
}

// next returns what comes next of the pieces in memory; empty: there are no more.
func (r *Reader) next() (net.Buffers, error) {
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	some := net.Buffers(r.some[:0])
	for i, p := range q.pieces[r.piece:min(len(q.pieces), r.piece+batch)] {
		off := 0
		if i == 0 {
			off = r.off
		}
		some = append(some, (*p.space)[off:p.n])
	}
	return some, nil
}

// passed goes on behind pieces that were written.
func (r *Reader) passed(count int) {
	r.off = 0
	if !r.frees {
		r.piece += count
		return
	}
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.pieces[:count] {
		q.room.Free(p.space)
	}
	q.room.memory.Add(-int64(count) * chunk)
	q.memory -= int64(count) * chunk
	q.pieces = q.pieces[count:]
}

// writeFile writes what is left in the file.
func (r *Reader) writeFile(w io.Writer) (n int64, err error) {
	q := r.q
	left := q.to - q.from - r.at
	if left == 0 {
		return 0, nil
	}
	if _, err := q.file.Seek(q.from+r.at, io.SeekStart); err != nil {
		return 0, err
	}
	for left > 0 {
		m, err := io.Copy(w, io.LimitReader(q.file, min(left, batch*chunk)))
		n, left = n+m, left-m
		if r.at += m; err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.ErrUnexpectedEOF
		}
	}
	return n, nil
}

// Close gives memory and disk back. Fill returns ErrClosed. Close must not be called
// while Drain or Read runs.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	q.moved.Broadcast()
	q.release()
	for _, p := range q.pieces {
		q.room.Free(p.space)
	}
	q.room.memory.Add(-q.memory)
	q.room.disk.Add(-q.to)
	q.pieces, q.memory, q.unread, q.from, q.to = nil, 0, nil, 0, 0
	if q.file == nil {
		return nil
	}
	return q.file.Close()
}
