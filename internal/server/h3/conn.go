package h3

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"millrace/internal/observe/meter"
	"millrace/internal/wire/h2"
	"millrace/internal/wire/stall"
)

// conn is one connection. It accepts the streams itself, since http3.Server waits for the
// header of a request without a timeout.
type conn struct {
	listener  *Listener
	quic      *quic.Conn
	streams   atomic.Int32  // requests that are being answered, or whose header is coming
	requests  atomic.Int32  // requests that are being answered
	since     atomic.Int64  // when the last request ended, in Unix nanoseconds
	roomFreed chan struct{} // a token: roomForHeader should check again
	resets    h2.ResetCount
	cut       atomic.Bool // it was closed for exceeding a limit
	handlers  stall.Handlers
	kept      *stall.Kept
}

// Client implements [stall.Conn].
func (c *conn) Client() netip.Addr { return c.listener.host.Client(c.quic.RemoteAddr()) }

// Streams implements [stall.Conn].
func (c *conn) Streams(now time.Time) stall.Count {
	if c.cut.Load() {
		return stall.Count{}
	}
	n := c.handlers.Streams(now)
	n.Kept = c.kept.Streams()
	return n
}

// Evict implements [stall.Conn].
func (c *conn) Evict() { c.refuse(&c.listener.host.Refused.TooMany) }

func (c *conn) close(code http3.ErrCode) {
	_ = c.quic.CloseWithError(quic.ApplicationErrorCode(code), "") // it never fails
}

// refuse closes the connection of a client that exceeds a limit, and counts it.
func (c *conn) refuse(why *meter.Counter) {
	if c.cut.CompareAndSwap(false, true) {
		why.Add(0, 1)
		c.close(http3.ErrCodeExcessiveLoad)
	}
}

// serve serves the connection until it has ended and all of its requests are answered.
func (c *conn) serve() {
	raw, err := c.listener.http.NewRawServerConn(c.quic)
	if err != nil {
		return // it has gone already
	}
	ctx := c.quic.Context()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { // ends with the connection, as what it starts does
		for {
			str, err := c.quic.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			all.Go(func() { raw.HandleUnidirectionalStream(str) })
		}
	})
	for c.roomForHeader(ctx) {
		str, err := c.quic.AcceptStream(ctx)
		if err != nil {
			return
		}
		if c.listener.drains() {
			c.reject(str)
			continue
		}
		if b := c.listener.host.Budget; b.Pressed() && c.handlers.Streams(time.Now()).Waiting > stall.Few {
			b.Refuse()
			c.reject(str)
			continue
		}
		c.begin()
		all.Go(func() {
			defer c.end(str)
			c.answer(raw, str)
		})
	}
}

// begin notes that a stream was opened. Until its header is complete it waits for the
// client.
func (c *conn) begin() {
	c.streams.Add(1)
	c.handlers.Begin()
	c.handlers.Wait()
	c.listener.host.Budget.Add(1)
}

// end notes that nobody answers it any more.
func (c *conn) end(str *quic.Stream) {
	stall.Keep(c.kept, str)
	c.listener.host.Budget.Add(-1)
	c.handlers.Go()
	c.handlers.End()
	c.streams.Add(-1)
	c.signalRoom()
}

// reject has the client send a request elsewhere: nothing of it was read (RFC
// 9114, 8.1). quic-go has no way to say so before it comes (GOAWAY).
func (c *conn) reject(str *quic.Stream) {
	stall.Keep(c.kept, str)
	str.ReleaseStreamCredit()
	str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
	str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
}

// roomForHeader waits while too many requests are incomplete. It returns false when the
// connection has ended.
func (c *conn) roomForHeader(ctx context.Context) bool {
	for c.streams.Load()-c.requests.Load() >= mostHeaders {
		select {
		case <-c.roomFreed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// signalRoom has roomForHeader check again.
func (c *conn) signalRoom() {
	select {
	case c.roomFreed <- struct{}{}:
	default:
	}
}

// answer serves one request. Its header must come within the header timeout.
func (c *conn) answer(raw *http3.RawServerConn, str *quic.Stream) {
	refused := c.listener.host.Refused
	limits := c.listener.host.Limits()
	deadline := time.Now().Add(limits.HeaderTimeout)
	_ = str.SetReadDeadline(deadline) // until settle
	if no, form := refusalOf(str, c.listener.http.MaxHeaderBytes); no.Status != 0 {
		writeRefusal(str, no, form, limits.WriteTimeout)
	} else {
		raw.HandleRequestStream(str)
	}
	end, ok := errors.AsType[*quic.StreamError](context.Cause(str.Context()))
	if !ok || !end.Remote && end.ErrorCode != quic.StreamErrorCode(http3.ErrCodeRequestIncomplete) {
		return
	}
	now := time.Now()
	if !end.Remote && !now.Before(deadline) {
		refused.Headers.Add(0, 1)
	}
	if c.resets.Many(now) { // of complete requests, and of incomplete ones
		c.refuse(&refused.Resets)
	}
}
