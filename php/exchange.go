package php

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"millrace/internal/observe/trace"
	"millrace/internal/upstream/fastcgi"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
)

// exchange is a request that php-fpm is asked, from when it has a place there until its
// answer has ended. An event loop begins it (loop.go) and a goroutine goes on with it where
// somebody must wait, or a goroutine does all.
type exchange struct {
	h        *Handler
	target   target
	up       fastcgi.Exchange
	left     atomic.Bool // its place is somebody else's
	received *received   // nil: nothing
	head     head
	step     trace.Span
	cancel   context.CancelFunc // nil: no goroutine has it
	pump     sync.WaitGroup     // reads the answer
	pumps    bool               // there is one
	loop     onLoop
}

// received is what has come of an answer: all of it, or its beginning. It is read ahead, so that
// a short answer goes out at once and with its length.
type received struct {
	n    int
	text [64 << 10]byte
}

var (
	exchanges = sync.Pool{New: func() any { return new(exchange) }}
	rooms     = sync.Pool{New: func() any { return new(received) }} // apart, since most wait without
)

// begin makes the exchange of a request that has a place.
func (h *Handler) begin(t target) *exchange {
	x := exchanges.Get().(*exchange)
	x.h, x.target = h, t
	return x
}

// leave gives the place back.
func (x *exchange) leave() {
	if x.left.CompareAndSwap(false, true) {
		<-x.h.places
	}
}

// end ends the exchange, wherever it is. Nobody may use it any more.
func (x *exchange) end() {
	if x.pumps { // who writes to the client has panicked
		x.cancel()
		x.pump.Wait()
	}
	_ = x.up.Close() // there is none
	x.leave()
	if x.cancel != nil {
		x.cancel() // not before: the connection may be kept
	}
	if x.received != nil {
		x.received.n = 0
		rooms.Put(x.received)
	}
	clear(x.head.fields)
	clear(x.loop.lines)
	*x = exchange{head: head{fields: x.head.fields[:0]}, loop: onLoop{lines: x.loop.lines[:0]}}
	exchanges.Put(x)
}

// room is where the next of the answer goes to, of which there may be none.
func (x *exchange) room() []byte {
	if x.received == nil {
		x.received = rooms.Get().(*received)
	}
	return x.received.text[x.received.n:]
}

// ahead reads what has come, and reports whether that is all.
func (x *exchange) ahead() (whole bool, err error) {
	for room := x.room(); len(room) > 0; room = x.room() {
		n, ok, err := x.up.TryRead(room)
		if !ok {
			return false, nil
		}
		if x.received.n += n; err != nil {
			return errors.Is(err, io.EOF), err //nolint:wrapcheck // told by the caller
		}
	}
	return false, nil
}

// readHead waits for the head, and returns how many bytes it has.
func (x *exchange) readHead() (n int, err error) {
	for room := x.room(); ; room = x.room() {
		if n, err = x.head.read(x.received.text[:x.received.n]); n > 0 || err != nil {
			return n, err
		}
		n, err = x.up.Read(room)
		x.received.n += n
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("%w: they do not end", errHead)
		}
		if err != nil {
			return 0, err //nolint:wrapcheck // told by the caller
		}
	}
}

// answer sends the client the script's answer.
func (x *exchange) answer(w http.ResponseWriter, r *http.Request) {
	n, err := x.readHead()
	x.step.End(x.target.script, err)
	if err != nil {
		x.fail(w, r, err)
		return
	}
	whole, err := x.ahead()
	body := x.head.body(x.received.text[n:x.received.n])
	if err != nil && !whole && len(body) == 0 && x.head.length != 0 && !x.head.bodiless(r.Method) {
		x.fail(w, r, err)
		return
	}
	maps.Copy(w.Header(), x.head.fields.Header())
	send.NoGuess(w.Header())
	length := x.head.framed(r.Method, body, whole)
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	send.PassOn(w)
	w.WriteHeader(x.head.status)
	if x.head.bodiless(r.Method) {
		if !whole || r.Method == http.MethodHead && length < 0 { // HTTP/3 would say that it is 0
			_ = send.Flush(w)
		}
		if !whole {
			_, _ = io.Copy(io.Discard, &x.up) // the script may still do something
		}
		return
	}
	sent, err := x.send(w, body, whole)
	if err == nil && length >= 0 && sent < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		if r.Context().Err() == nil {
			x.h.errors.Warn("php: the answer ended too early", "script", x.target.script, "err", err)
		}
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

// send sends the body: what has come at once, the rest as fast as the client takes it.
// php-fpm's worker is free as soon as it has written everything, however slow the
// client is.
func (x *exchange) send(w http.ResponseWriter, first []byte, whole bool) (int64, error) {
	if whole {
		x.leave()
		n, err := w.Write(first)
		return int64(n), err //nolint:wrapcheck // told by the caller
	}
	rest := io.Reader(&x.up)
	if x.head.length >= 0 {
		rest = io.LimitReader(rest, x.head.length-int64(len(first)))
	}
	q := x.h.room.NewQueue(spoolMemory, spoolFile)
	x.pumps = true
	x.pump.Go(func() { // ends with the answer, or with its context
		_ = q.Fill(rest, true) // Drain tells
		x.leave()
	})
	n, err := w.Write(first)
	sent := int64(n)
	if err == nil {
		more, readErr, writeErr := q.Drain(w, func() error { return send.Flush(w) })
		sent, err = sent+more, errors.Join(readErr, writeErr)
	}
	if err != nil {
		x.cancel()
	}
	_ = q.Close() // of a file that nobody needs any more
	x.pump.Wait()
	x.pumps = false
	return sent, err
}

// fail answers a request for which php-fpm gave no answer.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	_ = x.up.Close() // there is none
	x.leave()
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	status, hint := http.StatusBadGateway, "look into php-fpm's log"
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		status, hint = http.StatusGatewayTimeout, "php.timeout is "+x.h.options.Timeout.String()
	case errors.Is(err, fastcgi.ErrConnect):
		hint = "is php-fpm running, and may this user write to its socket (listen.owner)?"
	}
	x.h.errors.Error("php: no answer", "script", x.target.script, "err", err, "hint", hint)
	pages.Error(w, r, status, "The application does not answer.")
}
