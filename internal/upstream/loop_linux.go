package upstream

import (
	"bytes"
	"errors"
	"net"
	"os"
	"syscall"
	"unsafe"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/send"
)

// lineOf takes an idle connection from Go's poller; nil: that cannot be done, and
// it is as it was.
func lineOf(w *wire) *line {
	if w.raw == nil || w.below != nil {
		return nil
	}
	fd, ok := send.Detach(w.base)
	if !ok {
		return nil
	}
	_ = w.base.Close() // the descriptor of its own: the connection lives on
	return newLine(fd, w)
}

func (l *line) close() { _ = syscall.Close(l.fd) }

// isIdle reports whether nothing has come on the line that its loop could know of: it was made
// this moment, or its loop has watched it all the time. What comes later is indistinguishable
// from an answer, also behind a look.
func (l *line) isIdle() bool {
	return l.dialed.justNow() || l.dialed == nil && l.watch != nil && !l.watch.Stirred(l.fd, l.serial)
}

// look is [wire.look] for a line; err is why it is gone.
func (l *line) look() (found state, err error) { return peekAt(l.fd, l.uses) }

// conn gives the line to Go's poller.
func (l *line) conn() (net.Conn, error) {
	f := os.NewFile(uintptr(l.fd), "connection")
	defer f.Close()
	nc, err := net.FileConn(f) // which has a descriptor of its own
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return nc, nil
}

// Send sends q with its body, of which the text is made in room, if all of it can be
// sent at once on a connection that is quiet. Otherwise no server has seen a whole
// request, and it waits for a new connection to the same one, see Waits and Connects. If
// nobody makes one any more, Send reports false, and the request is one for a goroutine; so
// it does if it cannot wait, or q cannot be sent at all, and then the exchange has ended.
func (x *Exchange) Send(q *Request, body, room []byte) bool {
	head := x.server.head(q)
	text, err := head.Append(room[:0])
	if err != nil {
		x.Cancel()
		return false
	}
	text = append(text, body...)
	for x.line != nil {
		l := x.line
		found, err, n := noData, error(nil), 0
		if !l.isIdle() {
			found, err = l.look()
		}
		if found == noData {
			n, err = retried(func() (int, error) { return rawWrite(uintptr(l.fd), text) })
			if n == len(text) {
				if x.asked = x.place.since; x.waited || l.dialed != nil {
					x.asked = x.pool.now()
				}
				l.begin(x.asked)
				l.registerSuspect(q.OnSuspect)
				x.step = sent
				return true
			}
		}
		switch connects := x.step == connecting; {
		case connects && n <= 0 && errors.Is(err, syscall.EAGAIN):
			l.dialed.asked = true
			return true
		case connects && n <= 0 && found != unsolicited:
			return x.refused(err)
		case found == unsolicited:
			l.reportUnsolicited(x.server)
			err = errEarly
		case found == gone:
			err = errClosed
		}
		l.newcomer.end()
		l.close()
		x.line, x.step = nil, placed
		if n > 0 || found == noData && (err == nil || errors.Is(err, syscall.EAGAIN)) {
			break // it is too long for a loop
		}
		if l.uses == 1 && x.waited {
			x.lost = err // it was made for this request
			break
		}
		if found == unsolicited {
			break
		}
		if x.takeLine(x.pool.now()); x.line == nil { // the server has ended it, as it may
			x.dial()
		}
	}
	return !x.waited && x.connectLater()
}

// Take reads what has come into a buffer that is free after the next call on the
// loop. With Whole, a has the answer's header and body is in that buffer.
func (x *Exchange) Take(buf []byte, method string, a *Answer) (body []byte, found Taken) {
	t := &x.taken
	all, found := x.read(buf)
	if found != Whole {
		return nil, found
	}
	size, s := x.scan(unsafe.String(unsafe.SliceData(all), len(all)), method, a)
	whole := int64(size) + t.body
	switch {
	case s == http1.Other, s == http1.Plain && whole > mostTaken, s == http1.Partial && len(all) >= int(x.pool.options.HeaderBytes):
		x.keep(all)
		return nil, Other
	case s == http1.Partial || whole > int64(len(all)):
		x.keep(all)
		if len(all) == mostTaken {
			return nil, Other
		}
		return nil, Wait
	case size > int(x.pool.options.HeaderBytes):
		x.keep(all)
		return nil, Other
	}
	if x.pool.repeats(method, a.Status) {
		x.keep(all)
		return nil, Other
	}
	t.all, t.head, t.more, t.full = all, size, whole < int64(len(all)), len(all) == mostTaken
	return all[size:whole], Whole
}

// read reads what has come, behind what came before. With Whole there is more than that.
func (x *Exchange) read(buf []byte) (all []byte, found Taken) {
	t := &x.taken
	before := len(t.got)
	if t.buffer != nil {
		buf = (*t.buffer)[:mostTaken]
	}
	buf = buf[:min(len(buf), mostTaken)]
	n, err := retried(func() (int, error) { return rawRead(uintptr(x.line.fd), buf[before:]) })
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return nil, Wait
	case err != nil || n <= 0:
		return nil, Other
	}
	x.line.newcomer.gotAnswer()
	x.step = answered
	return buf[:before+n], Whole
}

// TakeUpgrade is Take for the answer to q, which asks for another protocol. With Whole the
// server agrees, and a has the header, in memory of its own: the next call must be Switch,
// or Hold where the caller does not agree.
func (x *Exchange) TakeUpgrade(buf []byte, q *Request, a *Answer) Taken {
	all, found := x.read(buf)
	if found != Whole {
		return found
	}
	head := http1.Head{Fields: a.Fields[:0]}
	size, s := http1.ScanSwitched(string(all), q.Method, &head)
	switch {
	case s == http1.Partial && len(all) < min(mostTaken, int(x.pool.options.HeaderBytes)):
		x.keep(all)
		return Wait
	case s != http1.Plain, size > int(x.pool.options.HeaderBytes), switched(q.Fields, head.Fields) != nil:
		x.keep(all)
		return Other
	}
	*a = Answer{Status: head.Status, Major: 1, Minor: head.Minor, Fields: head.Fields, Length: head.Length}
	x.pool.stick(a, x.what, x.server, x.secure)
	x.taken.all, x.taken.head = all, size
	return Whole
}

// Switch ends the exchange behind an answer that TakeUpgrade has found. The descriptor is the
// caller's, and the Tunnel, which has no Conn, stands for the stream. It reports false where
// all streams are taken: Hold is next then.
func (x *Exchange) Switch() (fd int, t *Tunnel, ok bool) {
	p, l := x.pool, x.line
	if !p.stream(x.place) {
		return 0, nil, false
	}
	now := p.now()
	p.recordAnswer(x.place, now, false)
	x.count(now)
	if l.watch != nil {
		l.watch.End(l.fd)
	}
	t = &Tunnel{pool: p, server: x.server}
	if early := x.taken.all[x.taken.head:]; len(early) > 0 {
		t.Early = bytes.Clone(early)
	}
	x.Release()
	x.line, x.place, x.step = nil, place{}, ended
	return l.fd, t, true
}

// scan reads the head of a plain answer into a, which has no status otherwise; see [http1.Scan].
func (x *Exchange) scan(text, method string, a *Answer) (size int, s http1.Scanned) {
	head := http1.Head{Fields: a.Fields[:0]}
	size, s = http1.Scan(text, method, &head)
	x.taken.body = head.Body()
	if *a = (Answer{Fields: head.Fields}); s != http1.Plain {
		return size, s
	}
	a.Status, a.Major, a.Minor, a.Length = head.Status, 1, head.Minor, head.Length
	x.pool.stick(a, x.what, x.server, x.secure)
	return size, s
}

// keep holds what came until there is more, or somebody else takes it.
func (x *Exchange) keep(all []byte) {
	t := &x.taken
	if t.buffer == nil {
		t.buffer = takenPool.Get().(*[]byte)
		copy(*t.buffer, all)
	}
	t.got = (*t.buffer)[:len(all)]
}
