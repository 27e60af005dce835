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

// conn is one connection. We accept its streams ourselves, and not http3.Server,
// which waits for the header of a request for as long as the client likes.
type conn struct {
	listener  *Listener
	quic      *quic.Conn
	streams   atomic.Int32  // of requests: those being answered, and those whose header is on its way
	requests  atomic.Int32  // being answered
	since     atomic.Int64  // Unix nanoseconds: when there was a request last
	roomFreed chan struct{} // a token: there may be room for a header
	resets    h2.ResetCount
	cut       atomic.Bool // for what the client does
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

// refuse ends the connection of a client that does too much of something.
func (c *conn) refuse(why *meter.Counter) {
	if c.cut.CompareAndSwap(false, true) {
		why.Add(0, 1)
		c.close(http3.ErrCodeExcessiveLoad)
	}
}

// serve answers what comes over the connection, until it has ended and all of its
// requests have been answered.
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

// begin notes that a stream was opened, whose header is waited for.
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

// roomForHeader waits while there are too many requests of which only a part has
// come. It returns false when the connection has ended.
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

// signalRoom tells roomForHeader to look again.
func (c *conn) signalRoom() {
	select {
	case c.roomFreed <- struct{}{}:
	default:
	}
}

// answer serves one request, for whose header its client has the header timeout.
func (c *conn) answer(raw *http3.RawServerConn, str *quic.Stream) {
	refused := c.listener.host.Refused
	limits := c.listener.host.Limits()
	late := time.Now().Add(limits.HeaderTimeout)
	_ = str.SetReadDeadline(late) // until settle
	if no := refusalOf(str, c.listener.http.MaxHeaderBytes); no.Status != 0 {
		writeRefusal(str, no, limits.WriteTimeout)
	} else {
		raw.HandleRequestStream(str)
	}
	end, ok := errors.AsType[*quic.StreamError](context.Cause(str.Context()))
	if !ok || !end.Remote && end.ErrorCode != quic.StreamErrorCode(http3.ErrCodeRequestIncomplete) {
		return
	}
	now := time.Now()
	if !end.Remote && !now.Before(late) {
		refused.Headers.Add(0, 1)
	}
	if c.resets.Many(now) { // of whole requests, and of parts
		c.refuse(&refused.Resets)
	}
}
