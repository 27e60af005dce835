package websocket_test

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// The conformance tests hold the server against RFC 6455 and RFC 7692 from
// outside, over plain connections, TLS, and through the proxy. They follow the
// sections of the suite that the field measures servers with, so that a fault
// that one finds is easily looked for in the other: 1 framing, 2 pings and
// pongs, 3 reserved bits, 4 opcodes, 5 fragmentation, 6 UTF-8, 7 closing, 9
// sizes, 10 what is fragmented by itself, 12 and 13 compression.

// part is what a client sends, and for what it waits before it goes on.
type part struct {
	send  []byte
	chop  int // bytes a write; 0: all at once
	await int // events that must have come, of all of the case's
	bytes int // bytes of messages under way that must have come
}

// ordeal is one case. The server's answer is want, and then: with code 0 it is
// the client that closes (unless it has: with closed), else the server does,
// with that code.
type ordeal struct {
	name   string
	parts  []part
	want   []event
	code   int
	closed bool // the client's parts have a close frame, which is answered with code
}

// atOnce is what most cases need: all of it is sent, and then read.
func atOnce(frames ...[]byte) []part { return []part{{send: join(frames...)}} }

// both is what is sent at once and byte for byte, which must be the same.
func both(o ordeal) []ordeal {
	bytewise := o
	bytewise.name += ", byte by byte"
	bytewise.parts = nil
	for _, p := range o.parts {
		p.chop = 1
		bytewise.parts = append(bytewise.parts, p)
	}
	return []ordeal{o, bytewise}
}

func (o ordeal) run(t testing.TB, f front, fields ...string) {
	t.Helper()
	c := f.open(t, nil, fields...)
	defer c.Close()
	here := 0 // events that have come
	for _, p := range o.parts {
		sent := make(chan error, 1)
		go func() { sent <- c.chopped(p.send, p.chop) }()
		for here < p.await {
			c.want(o.want[here])
			here++
		}
		for len(c.message) < p.bytes {
			c.beginning()
		}
		if err := <-sent; err != nil {
			t.Fatalf("sending: %v", err)
		}
	}
	for ; here < len(o.want); here++ {
		c.want(o.want[here])
	}
	switch {
	case o.closed:
		c.wantClosed(o.code, false)
	case o.code != 0:
		c.wantClosed(o.code, true)
	default:
		c.write(masked(fin|opClose, closing(1000, "done")))
		c.wantClosed(1000, false)
	}
}

// beginning reads one frame of a message that is under way.
func (c *client) beginning() {
	c.T.Helper()
	first, payload, err := c.frame()
	if err != nil || first&0x8 != 0 || first&fin != 0 {
		c.T.Fatalf("instead of a message's beginning: frame %#x %q, error %v", first, payload, err)
	}
	if first&0xf != opMore {
		c.op = first & 0xf
	}
	c.message = append(c.message, payload...)
}

// ordeals runs cases over all ways.
func ordeals(t *testing.T, list []ordeal) {
	t.Helper()
	ordealsWith(t, list)
}

// ordealsWith is ordeals with more fields in the handshake.
func ordealsWith(t *testing.T, list []ordeal, fields ...string) {
	t.Helper()
	names := map[string]bool{}
	for i := range list {
		if names[list[i].name] {
			t.Errorf("two cases %q", list[i].name)
		}
		names[list[i].name] = true
	}
	var ran atomic.Int64
	t.Cleanup(func() { t.Logf("%d cases, %d runs", len(list), ran.Load()) })
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for i, o := range list {
			if !f.has(i, len(list)) {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", i, o.name), func(t *testing.T) {
				ran.Add(1)
				o.run(t, f, fields...)
			})
		}
	})
}
