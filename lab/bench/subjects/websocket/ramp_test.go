package main

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// server accepts upgrades and hands each connection to talk, in a goroutine
// that ends when the client closes.
func server(t *testing.T, talk func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + acceptGUID))
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
					base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
				talk(c, r)
			}()
		}
	}()
	return l.Addr().String()
}

// unmasked reads one frame of the client.
func unmasked(r io.Reader) (op byte, payload []byte) {
	head := make([]byte, 6)
	if _, err := io.ReadFull(r, head); err != nil {
		return opClose, nil
	}
	payload = make([]byte, head[1]&0x7f)
	io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= head[2+i%4]
	}
	return head[0] & 0x0f, payload
}

func rampTo(t *testing.T, address string, n int) rampReport {
	t.Helper()
	c, err := newRamp(rampConfig{Address: address, Connections: n, Sources: 1, FirstSource: 2, Busy: 4, Timeout: 5 * time.Second, Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c.Open()
	c.Echo()
	return c.Close()
}

func TestRampSucceeds(t *testing.T) {
	address := server(t, func(c net.Conn, r *bufio.Reader) {
		_, message := unmasked(r)
		// In two frames, the second a continuation.
		c.Write(append([]byte{opText, 5}, message[:5]...))
		c.Write(append([]byte{0x80, byte(len(message) - 5)}, message[5:]...))
		unmasked(r)
	})
	rep := rampTo(t, address, 10)
	if rep.Succeeded != 10 || rep.Failed != 0 || rep.Unclean != 0 || rep.First != "" {
		t.Fatalf("%+v", rep)
	}
	for name, h := range map[string][][2]int64{"connect": rep.Connect, "upgrade": rep.Upgrade, "echo": rep.Echo} {
		total := int64(0)
		for _, bucket := range h {
			total += bucket[1]
		}
		if total != 10 {
			t.Errorf("the histogram of %s has %d entries, want 10", name, total)
		}
	}
}

// TestRampAnswersPings: a server may ask whether we are there, and goes away if
// it is not told.
func TestRampAnswersPings(t *testing.T) {
	address := server(t, func(c net.Conn, r *bufio.Reader) {
		op, message := unmasked(r)
		c.Write([]byte{0x80 | opPing, 2, 'h', 'i'})
		if pong, said := unmasked(r); pong != opPong || string(said) != "hi" {
			return
		}
		c.Write(append([]byte{0x80 | op, byte(len(message))}, message...))
		unmasked(r)
	})
	if rep := rampTo(t, address, 3); rep.Succeeded != 3 || rep.First != "" {
		t.Errorf("%+v", rep)
	}
}

func TestRampFailures(t *testing.T) {
	for name, c := range map[string]struct {
		talk  func(c net.Conn, r *bufio.Reader)
		first string
	}{
		"another message": {func(c net.Conn, r *bufio.Reader) {
			_, message := unmasked(r)
			message[0] ^= 1
			c.Write(append([]byte{0x80 | opText, byte(len(message))}, message...))
			unmasked(r)
		}, errUnexpected.Error()},
		"closes":        {func(net.Conn, *bufio.Reader) {}, "echoing: "},
		"close frame":   {func(c net.Conn, r *bufio.Reader) { unmasked(r); c.Write([]byte{0x88, 0}) }, "opcode 8"},
		"a giant frame": {func(c net.Conn, r *bufio.Reader) { unmasked(r); c.Write([]byte{0x81, 127, 1, 0, 0, 0, 0, 0, 0, 0}) }, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			rep := rampTo(t, server(t, c.talk), 3)
			if rep.FailedEcho != 3 || rep.Failed != 3 || rep.Succeeded != 0 || !strings.Contains(rep.First, c.first) {
				t.Fatalf("%+v", rep)
			}
		})
	}
}

func TestRampUpgradeRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	if rep := rampTo(t, l.Addr().String(), 2); rep.FailedUpgrade != 2 || !strings.Contains(rep.First, "404") {
		t.Errorf("a server without WebSockets: %+v", rep)
	}
	s.Close()
	if rep := rampTo(t, l.Addr().String(), 2); rep.FailedConnect != 2 {
		t.Errorf("no server: %+v", rep)
	}
}

// TestLimit has connections left when the time for all of them is over: they
// have failed, and nobody waits for them.
func TestLimit(t *testing.T) {
	silent := func(c net.Conn, _ *bufio.Reader) { io.Copy(io.Discard, c) }
	c, err := newRamp(rampConfig{
		Address: server(t, silent), Connections: 6, Sources: 1, FirstSource: 2, Busy: 2,
		Timeout: 50 * time.Millisecond, Limit: 75 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Open()
	c.Echo()
	if rep := c.Close(); rep.Failed != 6 || rep.Succeeded != 0 {
		t.Errorf("%+v", rep)
	}
	c, err = newRamp(rampConfig{Address: "127.0.0.1:9", Connections: 3, Sources: 1, FirstSource: 2, Busy: 1, Timeout: time.Second, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.Open()
	if rep := c.Close(); rep.FailedConnect != 3 || rep.First != errLimit.Error() {
		t.Errorf("%+v", rep)
	}
}

func TestNewRefuses(t *testing.T) {
	good := rampConfig{Connections: 1, Sources: 1, FirstSource: 2, Busy: 1, Timeout: time.Second, Limit: time.Second}
	if _, err := newRamp(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*rampConfig){
		"none":             func(c *rampConfig) { c.Connections = 0 },
		"too many":         func(c *rampConfig) { c.Connections = maxConnections + 1 },
		"nobody busy":      func(c *rampConfig) { c.Busy = 0 },
		"first source":     func(c *rampConfig) { c.FirstSource = 1 },
		"too many sources": func(c *rampConfig) { c.Sources = 254 },
		"no time":          func(c *rampConfig) { c.Timeout = 0 },
		"no limit":         func(c *rampConfig) { c.Limit = 0 },
	} {
		c := good
		spoil(&c)
		if _, err := newRamp(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestFloor(t *testing.T) {
	for in, want := range map[int64]int64{1: 1, 63: 63, 64: 64, 65: 64, 1000: 992, 123456789: 123456789 >> 21 << 21} {
		if got := floor(in); got != want {
			t.Errorf("floor(%d) = %d, want %d", in, got, want)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0x81, 2, 'h', 'i'})
	f.Add([]byte{0x81, 126, 0, 3, 'a', 'b', 'c'})
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'x'})
	f.Add([]byte{0x82, 127, 255, 255, 255, 255, 0, 0, 0, 1, 'x'})
	f.Add([]byte{0x81, 0x82, 1, 2, 3, 4, 'h', 'i'})
	f.Fuzz(func(t *testing.T, in []byte) {
		op, payload, err := readFrame(bytes.NewReader(in))
		if err != nil {
			return
		}
		if len(payload) > maxFrame || op > 15 || !bytes.Contains(in, payload) {
			t.Fatalf("frame %d %q of %q", op, payload, in)
		}
	})
}

func TestReadFrameCutShort(t *testing.T) {
	whole := []byte{0x81, 126, 0, 3, 'a', 'b', 'c'}
	for n := range whole {
		if _, _, err := readFrame(bytes.NewReader(whole[:n])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
