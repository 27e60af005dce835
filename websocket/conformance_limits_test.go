package websocket_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestSizes is section 9: large messages whole, in fragments, and in small
// writes; the largest ones over the plain connection only.
func TestSizes(t *testing.T) {
	type row struct {
		op             byte
		size, fragment int
		chop           int
		plainOnly      bool
	}
	var rows []row
	for _, op := range []byte{opText, opBinary} {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
			rows = append(rows, row{op: op, size: size})
		}
		for _, fragment := range []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10} {
			rows = append(rows, row{op: op, size: max(128<<10, min(512<<10, fragment*8192)), fragment: fragment})
		}
		for _, chop := range []int{64, 128, 256, 512, 1 << 10, 2 << 10, 64 << 10} {
			rows = append(rows, row{op: op, size: max(128<<10, min(512<<10, chop*1024)), chop: chop})
		}
		rows = append(rows,
			row{op: op, size: 4 << 20, fragment: 64, plainOnly: true},
			row{op: op, size: 4 << 20, fragment: 1 << 20, plainOnly: true},
			row{op: op, size: 16 << 20, plainOnly: true})
	}
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		c := f.open(t, nil)
		_ = c.SetDeadline(time.Now().Add(5 * patience))
		for i, r := range rows {
			if !f.has(i, len(rows)) || r.plainOnly && f.name != "plain" {
				continue
			}
			payload := sample(r.size)
			if r.op == opBinary {
				payload = noise(r.size)
			}
			sent := make(chan error, 1)
			go func() { sent <- c.chopped(fragmented(r.op, payload, r.fragment), r.chop) }()
			got, err := c.next()
			if err != nil || got.op != r.op || got.payload != payload {
				t.Fatalf("%+v: %v, error %v", r, got, err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		}
		c.goodbye()
	})
}

// TestManyMessages are sections 9.7 and 9.8: each waits for the echo of the one
// before; and all of them at once.
func TestManyMessages(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		for _, op := range []byte{opText, opBinary} {
			for _, size := range []int{0, 16, 64, 256, 1024, 4096} {
				payload := sample(size)
				c := f.open(t, nil)
				frame := masked(fin|op, payload)
				for range 200 {
					c.write(frame)
					c.want(event{op, payload})
				}
				many := make([]event, 1000)
				for i := range many {
					many[i] = event{op, payload}
				}
				c.exchange(many, func(event) []byte { return frame })
				c.goodbye()
			}
		}
	})
}

// TestFragmentedByItself is section 10.
func TestFragmentedByItself(t *testing.T) {
	var list []ordeal
	for _, size := range []int{1, 125, 126, 1300, 65535} {
		if size == 1 {
			payload := document(4000)
			list = append(list, ordeal{name: "frames of 1 byte", parts: atOnce(fragmented(opText, payload, 1)), want: []event{{opText, payload}}})
			continue
		}
		payload := document(65536)
		list = append(list, ordeal{name: fmt.Sprintf("frames of %d bytes", size), parts: atOnce(fragmented(opText, payload, size)), want: []event{{opText, payload}}})
	}
	ordeals(t, list)
}

// TestMaxMessage refuses what is longer than an operator allows, by its header,
// in one frame or many; what is as long is echoed.
func TestMaxMessage(t *testing.T) {
	o := echoOptions()
	o.MaxMessage = 1000
	most := strings.Repeat("x", 1000)
	good := func(frames ...[]byte) ordeal {
		return ordeal{parts: atOnce(frames...), want: []event{{opText, most}, {opPong, "x"}}}
	}
	bad := func(frames ...[]byte) ordeal {
		return ordeal{parts: atOnce(append([][]byte{masked(fin|opText, "before")}, frames...)...), want: []event{{opText, "before"}}, code: 1009}
	}
	ping := masked(fin|opPing, "x")
	onAll(t, o, func(t *testing.T, f front) {
		for name, o := range map[string]ordeal{
			"as long":                           good(masked(fin|opText, most), ping),
			"as long, in many frames":           good(fragmented(opText, most, 7), ping),
			"as long, compressed":               good(masked(fin|rsv1|opText, deflate(most, 6, 1)), ping),
			"longer":                            bad(masked(fin|opText, most+"x"), ping),
			"longer, by its header":             bad([]byte("\x81\xfe\x03\xe9")[:4], []byte("mask")),
			"much longer":                       bad(masked(fin|opBinary, strings.Repeat(most, 100)), ping),
			"longest there is":                  bad([]byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask")),
			"longer, in many frames":            bad(fragmented(opText, most+"x", 7), ping),
			"longer, in frames, with overflow":  bad(masked(opBinary, most), []byte("\x80\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask")),
			"longer, compressed":                bad(masked(fin|rsv1|opText, deflate(most+"x", 6, 1)), ping),
			"longer, compressed, in many":       bad(fragmented(rsv1|opText, deflate(most+"x", 6, 1), 3), ping),
			"longer, compressed, on the wire":   bad(masked(fin|rsv1|opBinary, deflate(noise(3000), 6, 1)), ping),
			"longer, compressed, many a header": bad(masked(rsv1|opBinary, deflate(noise(900), 6, 1)), masked(opMore, noise(900)), ping),
		} {
			t.Run(name, func(t *testing.T) { o.run(t, f, usualOffer) })
		}
	})
}

// TestBackpressure is a client that sends much before it reads anything: no
// byte is lost, and nobody else waits for it.
func TestBackpressure(t *testing.T) {
	onAll(t, echoOptions(), func(t *testing.T, f front) {
		c, other := f.open(t, nil), f.open(t, nil)
		payload := noise(100_000)
		messages := 100 // 10 MB: more than all sockets on the way hold
		if f.h2 {
			messages = 20 // and than its window is
		}
		sent := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			for i := range messages {
				if i == 3 {
					close(started)
				}
				if _, err := c.Write(masked(fin|opBinary, payload)); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		<-started
		for i := range 100 {
			text := fmt.Sprint("number ", i)
			other.write(masked(fin|opText, text))
			other.want(event{opText, text})
		}
		other.goodbye()
		for range messages {
			c.want(event{opBinary, payload})
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		c.goodbye()
	})
}

// TestSendsBeforeItReads is a client that reads only when it has sent a whole
// message. One that is larger than all buffers on the way ends in good order,
// with a close frame that says why. Over HTTP/2 net/http lets the client send no
// more while an answer waits, so that only a reset is left.
func TestSendsBeforeItReads(t *testing.T) {
	o := echoOptions()
	o.WriteTimeout = time.Second
	onAll(t, o, func(t *testing.T, f front) {
		if strings.Contains(f.name, "proxy") {
			t.Skip("a proxy leaves it to the upstream how large messages may be")
		}
		c := f.open(t, nil)
		message := masked(fin|opBinary, noise(64<<20))
		if s, ok := c.Conn.(*h2stream); ok {
			s.takeNothing()
			if _, err := c.Write(message); err == nil || !strings.Contains(err.Error(), "reset") {
				t.Errorf("sending all before reading: error %v, want a reset", err)
			}
			return
		}
		nc := c.Conn
		if secure, ok := nc.(*tls.Conn); ok {
			nc = secure.NetConn()
		}
		if err := nc.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil { // which may else grow to half of the message
			t.Fatal(err)
		}
		c.write(message)
		c.wantClosed(1009, true)
	})
}
