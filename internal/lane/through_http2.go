package lane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/wire/h2"
	"millrace/internal/wire/lean"
)

// stream is a request over HTTP/2 for which a worker calls the handler. Its connection stays
// on its loop, which goes on with the others. The worker writes frames to the client itself
// (see [h2.Stream]); it waits where the client takes no more. stream is also the parent of
// the request's context.
type stream struct {
	context.Context
	h        *h2Host
	out      *h2.Stream
	exchange *lean.Exchange
	source   requestSource
	block    []byte // a header block that was not sent yet
	deadline *time.Timer
}

// streamKey is the context key of the *stream of a request.
type streamKey struct{}

// Value implements [context.Context].
func (x *stream) Value(key any) any {
	switch key.(type) {
	case streamKey:
		return x
	case sourceKey:
		return &x.source
	case trace.Key:
		return x.source.info.traceValue()
	}
	if key == http.LocalAddrContextKey {
		return x.h.LocalAddr()
	}
	return x.Context.Value(key)
}

// serve calls the handler.
func (x *stream) serve() {
	defer discard(&x.source.info.started)
	defer x.out.Reset() // if the handler has called runtime.Goexit
	state := x.h.ConnectionState()
	x.exchange.Secure(&state)
	x.out.OnCancel(x.exchange.Begin(x, x.h.peer.String()))
	x.exchange.Serve(x.h.lane.through, x)
	if x.deadline != nil {
		x.deadline.Stop()
	}
}

// Read implements [lean.Link]: there is no body.
func (*stream) Read([]byte) (int, error) { return 0, io.EOF }

// Head implements [lean.FrameLink].
func (x *stream) Head(text []byte, interim bool) {
	x.block = appendBlock(make([]byte, 0, len(text)), text)
	if interim {
		_ = x.send(nil, nil) // the next one gets the error again
	}
}

// Send implements [lean.Link].
func (x *stream) Send(head, body []byte) error { return x.send(head, body) }

func (x *stream) send(head, body []byte) error {
	block := x.block
	x.block = nil
	if block != nil || len(head) > 0 {
		if err := x.out.Send(block, head, false); err != nil {
			return err
		}
	}
	if len(body) == 0 {
		return nil
	}
	return x.out.Send(nil, body, false)
}

// End implements [lean.FrameLink].
func (x *stream) End(body, trailers []byte) error {
	block := x.block
	x.block = nil
	if len(trailers) == 0 {
		return x.out.Send(block, body, true)
	}
	if block != nil || len(body) > 0 {
		if err := x.out.Send(block, body, false); err != nil {
			return err
		}
	}
	return x.out.Send(appendFields(nil, trailers), nil, true)
}

// Reset implements [lean.FrameLink].
func (x *stream) Reset() { x.out.Reset() }

// ReadFrom implements [io.ReaderFrom]. While the client takes nothing it holds no buffer.
func (x *stream) ReadFrom(src io.Reader) (n int64, err error) {
	for err == nil {
		var m int
		m, err = x.sendNext(src, x.out.Await())
		n += int64(m)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// sendNext sends the next bytes of a reader, most at most.
func (x *stream) sendNext(src io.Reader, most int) (n int, err error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	n, err = src.Read((*buf)[:min(most, len(*buf))])
	if n > 0 {
		if sent := x.send(nil, (*buf)[:n]); sent != nil {
			return 0, sent
		}
	}
	return n, err
}

// Hijack implements [lean.Link].
func (*stream) Hijack() (net.Conn, error) { return nil, http.ErrNotSupported }

// Switch implements [lean.Link].
func (*stream) Switch([]byte) (fd int, early []byte, ok bool) { return 0, nil, false }

// SetReadDeadline implements [lean.Link].
func (*stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [lean.Link]. At the deadline the stream is reset, as by net/http.
func (x *stream) SetWriteDeadline(t time.Time) error {
	if x.deadline != nil {
		x.deadline.Stop()
	}
	if !t.IsZero() {
		x.deadline = time.AfterFunc(time.Until(t), x.out.Reset)
	}
	return nil
}
