//go:build linux

package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
)

// What an attack may cost the server, whatever it sends.
const (
	abuseMemory = 32 << 20 // bytes that the process grows by
	abuseCPU    = 2 * time.Second
	abuseLeft   = 4 << 20 // bytes that are still held afterwards
	// enoughAbuse is more frames than any limit lets pass.
	enoughAbuse = 2_000_000
)

// flood is what a client sends over and over, until it is cut off for a reason.
type flood struct {
	reason string
	send   func(h *hostile, i uint32) error
}

func floods() map[string]flood {
	return map[string]flood{
		"hot rapid reset": {"resets", func(h *hostile, i uint32) error {
			return errors.Join(h.open(2*i+1, h.hot), h.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}},
		"cold rapid reset": {"resets", func(h *hostile, i uint32) error {
			return errors.Join(h.open(2*i+1, h.cold), h.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}},
		"resets that the server is made to send": {"resets", func(h *hostile, i uint32) error {
			return errors.Join(h.open(2*i+1, h.cold), h.WriteRawFrame(http2.FrameWindowUpdate, 0, 2*i+1, make([]byte, 4)))
		}},
		"resets for windows too large, of finished answers": {"resets", func(h *hostile, i uint32) error {
			return errors.Join(h.open(2*i+1, h.hot), h.WriteWindowUpdate(2*i+1, 1<<31-1))
		}},
		"CONTINUATION frames": {"headers", func(h *hostile, i uint32) error {
			if i == 0 {
				return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.hot})
			}
			return h.WriteContinuation(1, false, nil)
		}},
		"CONTINUATION bytes": {"headers", func(h *hostile, i uint32) error {
			if i == 0 {
				return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.hot})
			}
			return h.WriteContinuation(1, false, bytes.Repeat(literals("a", "b"), 3000))
		}},
		"PING":              {"idle_frames", func(h *hostile, _ uint32) error { return h.WritePing(false, [8]byte{}) }},
		"PING acknowledged": {"idle_frames", func(h *hostile, _ uint32) error { return h.WritePing(true, [8]byte{}) }},
		"SETTINGS":          {"idle_frames", func(h *hostile, _ uint32) error { return h.WriteSettings() }},
		"SETTINGS, cold": {"idle_frames", func(h *hostile, i uint32) error {
			if i == 0 {
				return h.open(1, h.cold)
			}
			return h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000 + i%2})
		}},
		"empty DATA": {"idle_frames", func(h *hostile, i uint32) error {
			if i == 0 {
				return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: asking("/echo"), EndHeaders: true})
			}
			return h.WriteData(1, false, nil)
		}},
		"WINDOW_UPDATE": {"idle_frames", func(h *hostile, _ uint32) error { return h.WriteWindowUpdate(0, 1) }},
		"WINDOW_UPDATE of a stream": {"idle_frames", func(h *hostile, i uint32) error {
			if i == 0 {
				return h.open(1, asking("/download"))
			}
			return h.WriteWindowUpdate(1, 1)
		}},
		"PRIORITY": {"idle_frames", func(h *hostile, i uint32) error {
			return h.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 3})
		}},
		"PRIORITY, cold": {"idle_frames", func(h *hostile, i uint32) error {
			if i == 0 {
				return h.open(1, h.cold)
			}
			return h.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 3})
		}},
		"PRIORITY_UPDATE": {"idle_frames", func(h *hostile, i uint32) error {
			return h.WriteRawFrame(0x10, 0, 0, append([]byte{0, 0, byte(i), 1}, "u=0"...))
		}},
		"unknown frames": {"idle_frames", func(h *hostile, _ uint32) error { return h.WriteRawFrame(0x77, 0, 0, nil) }},
	}
}

// Each flood ends its connection, and no other: the client is told
// ENHANCE_YOUR_CALM or cut off before it has sent enoughAbuse frames, it is
// counted, and the server needs no more than abuseMemory and abuseCPU.
func TestHTTP2Abuse(t *testing.T) {
	v := startVictim(t, Options{})
	all := floods()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			v.tb = t
			v.watch()
			bystander := v.bystander()
			h := speakHTTP2(t, v.addr, v.clientTLS("h2"))
			told := make(chan http2.ErrCode, 1)
			go func() { told <- h.end() }() // ends with the connection
			var err error
			sent := uint32(0)
			for ; sent < enoughAbuse && err == nil; sent++ {
				err = all[name].send(h, sent)
			}
			if err == nil {
				t.Fatalf("%d times, and the connection is still open", sent)
			}
			if why := <-told; why != http2.ErrCodeEnhanceYourCalm && why != http2.ErrCodeNo { // a reset may overtake it
				t.Errorf("the client is told %v", why)
			}
			t.Logf("cut after %d", sent)
			v.judge(t, map[string]uint64{all[name].reason: 1}, bystander)
		})
	}
}

// judge waits for the end of an attack, and looks what it has cost, how it was
// counted, and whether others were served all the time.
func (v *victim) judge(t *testing.T, refused map[string]uint64, bystander func() int) {
	t.Helper()
	var now victimCounts
	servertest.Eventually(t, "the connections are over, and counted", func() bool {
		now = v.look(withoutMemory)
		for reason, n := range refused {
			if now.Refused[reason] < v.counts.Refused[reason]+n {
				return false
			}
		}
		return now.Connections <= v.counts.Connections+1 // the bystander
	})
	for reason, n := range now.Refused {
		if n != v.counts.Refused[reason]+refused[reason] {
			t.Errorf("%d more counted as %s, want %d", n-v.counts.Refused[reason], reason, refused[reason])
		}
	}
	others, spent := bystander(), v.spent()
	left := int64(0)
	servertest.Eventually(t, "its memory is free", func() bool {
		time.Sleep(20 * time.Millisecond) // a look costs that much
		left = v.look(withMemory).Held - v.counts.Held
		return left <= abuseLeft
	})
	t.Logf("%.1f MiB, %v of CPU; afterwards %+d KiB; %d requests of others", float64(spent.rss)/(1<<20), spent.cpu, left>>10, others)
	if raced() {
		return
	}
	if spent.rss > abuseMemory {
		t.Errorf("the server has grown by %d bytes, %d are allowed", spent.rss, abuseMemory)
	}
	if spent.cpu > abuseCPU {
		t.Errorf("%v of CPU, %v are allowed", spent.cpu, abuseCPU)
	}
}

// A header block of 16 KiB that refers to 4 KB in the table with every byte is
// 50 MiB. No more than header_bytes of it are kept, and its connection ends.
func TestHPACKBomb(t *testing.T) {
	const bombs = 100
	v := startVictim(t, Options{})
	v.watch()
	bystander := v.bystander()
	for range bombs {
		h := speakHTTP2(t, v.addr, v.clientTLS("h2"))
		var b bytes.Buffer
		enc := hpack.NewEncoder(&b)
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "GET"},
			{Name: ":scheme", Value: "https"},
			{Name: ":path", Value: "/slow", Sensitive: true},
			{Name: ":authority", Value: "a.example", Sensitive: true},
			{Name: "x", Value: strings.Repeat("bomb", 1000)},
		} {
			_ = enc.WriteField(f) // to memory
		}
		block := append(b.Bytes(), bytes.Repeat([]byte{0x80 | 62}, 16<<10-b.Len())...)
		if err := errors.Join(h.open(1, block), h.out.Flush()); err != nil {
			t.Fatal(err)
		}
		if why := h.end(); why != http2.ErrCodeEnhanceYourCalm {
			t.Fatalf("the client is told %v", why)
		}
		_ = h.nc.Close()
	}
	v.judge(t, map[string]uint64{"headers": bombs}, bystander)
}

// Clients that are silent in the wrong place: all of their connections end by a
// timeout, and cost no more than memory says.
func TestHTTP2Silence(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	large := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}
	for _, c := range []struct {
		name    string
		clients int
		refused map[string]uint64
		speak   func(h *hostile) error
		reads   bool
	}{
		{"asks for hot answers and never reads", 4, nil, func(h *hostile) error {
			_ = h.WriteSettings(large)
			_ = h.WriteWindowUpdate(0, 1<<31-1-65535)
			for i := uint32(0); ; i++ { // until it blocks, and is cut
				if err := h.open(2*i+1, asking(pathBig)); err != nil {
					return nil
				}
			}
		}, false},
		{"asks for cold answers and never reads", 2, nil, func(h *hostile) error {
			_ = h.WriteSettings(large)
			_ = h.WriteWindowUpdate(0, 1<<31-1-65535)
			for i := range uint32(200) {
				if err := h.open(2*i+1, asking("/download")); err != nil {
					return err
				}
			}
			return h.out.Flush()
		}, false},
		{"gives streams no window", 2, nil, func(h *hostile) error {
			_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize})
			for i := range uint32(200) {
				if err := h.open(2*i+1, asking("/download")); err != nil {
					return err
				}
			}
			return h.out.Flush()
		}, true},
		{"gives the connection no window", 2, map[string]uint64{"stalled": 2}, func(h *hostile) error {
			_ = h.WriteSettings(large)
			for i := range uint32(200) {
				if err := h.open(2*i+1, asking("/download")); err != nil {
					return err
				}
			}
			return h.out.Flush()
		}, true},
		{"half a frame", 50, nil, func(h *hostile) error {
			_, _ = h.out.Write([]byte{0, 0, 100, 1, 5, 0})
			return h.out.Flush()
		}, true},
		{"half a DATA frame", 50, nil, func(h *hostile) error {
			_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: asking("/echo"), EndHeaders: true})
			_, _ = h.out.Write([]byte{0, 0, 100, 0, 0, 0, 0, 0, 1, 'x'})
			return h.out.Flush()
		}, true},
		{"half a header block", 50, nil, func(h *hostile) error {
			_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.hot})
			return h.out.Flush()
		}, true},
		{"half a header block, cold", 50, nil, func(h *hostile) error {
			_ = h.open(1, h.cold)
			_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: h.hot})
			return h.out.Flush()
		}, true},
		{"leaves without close_notify", 50, nil, func(h *hostile) error {
			_ = h.open(1, asking("/download"))
			err := h.out.Flush()
			_ = h.nc.(*tls.Conn).NetConn().Close() // and in the middle
			return err
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := startVictim(t, Options{
				HeaderTimeout: limit, BodyTimeout: limit, WriteTimeout: limit, IdleTimeout: limit, HandshakeTimeout: patience,
			})
			v.watch()
			bystander := v.bystander()
			ended := make(chan error, c.clients)
			for range c.clients {
				h := speakHTTP2(t, v.addr, v.clientTLS("h2"))
				go func() { // ends with the connection
					err := c.speak(h)
					if c.reads {
						h.end()
					}
					ended <- err
				}()
			}
			for range c.clients {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			v.judge(t, c.refused, bystander)
		})
	}
}

// Clients that stop within the preface are all gone after header_timeout.
func TestHalfPrefaces(t *testing.T) {
	t.Parallel()
	const clients, limit = 500, 5 * time.Second
	v := startVictim(t, Options{HeaderTimeout: limit, HandshakeTimeout: 2 * patience})
	v.watch()
	bystander := v.bystander()
	var all []net.Conn
	for range clients {
		nc, err := tls.Dial("tcp", v.addr, v.clientTLS("h2"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		if _, err := io.WriteString(nc, http2.ClientPreface[:12]); err != nil {
			t.Fatal(err)
		}
		all = append(all, nc)
	}
	since := time.Now()
	for _, nc := range all {
		_ = nc.SetDeadline(since.Add(limit + patience))
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, errTimeout(err)) {
			t.Fatal("not closed")
		}
	}
	t.Logf("gone after %v", time.Since(since))
	v.judge(t, nil, bystander)
}

// errTimeout is err if it is a timeout.
func errTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return errors.New("none")
}

// Whoever speaks something else than HTTP/2 after agreeing on it is told, and
// counted; whoever agrees on nothing that is spoken here gets no connection.
func TestWrongProtocols(t *testing.T) {
	v := startVictim(t, Options{})
	for _, hello := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n",
		strings.Repeat("\x00", len(http2.ClientPreface)),
	} {
		v.watch()
		nc, err := tls.Dial("tcp", v.addr, v.clientTLS("h2"))
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(nc, hello); err != nil {
			t.Fatal(err)
		}
		h := &hostile{nc: nc, Framer: http2.NewFramer(nc, nc)}
		if why := h.end(); why != http2.ErrCodeProtocol && why != http2.ErrCodeNo { // a reset may overtake it
			t.Errorf("%q is told %v", hello, why)
		}
		_ = nc.Close()
		v.judge(t, map[string]uint64{"malformed": 1}, v.bystander())
	}
	v.watch()
	if nc, err := tls.Dial("tcp", v.addr, v.clientTLS("spdy/3")); err == nil {
		t.Errorf("agreed on %q", nc.ConnectionState().NegotiatedProtocol)
		_ = nc.Close()
	}
	servertest.Eventually(t, "the handshake is counted as rejected", func() bool { return v.look(withoutMemory).Rejected-v.counts.Rejected == 1 })
	v.judge(t, nil, v.bystander())
}

// TestHTTP2Scheme: nobody gets to the sites of plain HTTP over TLS.
func TestHTTP2Scheme(t *testing.T) {
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	m := meter.New()
	r := start(t, plan{meters: m, plain: everyHost(1, says("plain"), m.Job("test")), secure: everyHost(2, says("secure"), m.Job("test"))})
	h := r.http2(t)
	for i, c := range [][2]string{{"https", "secure"}, {"http", "421"}} {
		if err := h.open(uint32(2*i+1), literals(":method", "GET", ":scheme", c[0], ":authority", "a.example", ":path", "/a")); err != nil {
			t.Fatal(err)
		}
		if status, body := h.answer(t, uint32(2*i+1)); status+body != "200"+c[1] && status != c[1] {
			t.Errorf("%s: %s %q", c[0], status, body)
		}
	}
}
