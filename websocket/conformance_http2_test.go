package websocket_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millrace/websocket"
)

// overHTTP2 are the conformance tests that make no handshake of their own.
const overHTTP2 = "^(TestH2.*|TestFraming|TestBadLengths|TestPingPong|TestReservedBits|TestOpcodes|TestFragments|TestSeveralInOne|" +
	"TestTextFailsFast|TestCompressedText|TestBinaryIsNoText|TestClosing|TestManyMessages|TestFragmentedByItself|TestMaxMessage|" +
	"TestBomb|TestCompressedForms|TestCompressionOffers|TestBackpressure|TestSendsBeforeItReads)$"

// TestHTTP2 runs them over HTTP/2 (RFC 8441), with those of HTTP/2 itself, in a
// process that is started with the variable that net/http wants to see.
func TestHTTP2(t *testing.T) {
	if extended() {
		t.Skip("this process has the variable already")
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", overHTTP2, "-test.v")
	cmd.Env = append(os.Environ(), "GODEBUG=http2xconnect=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		var text []string
		for line := range strings.SplitSeq(string(out), "\n") {
			if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") {
				text = append(text, line)
			}
		}
		t.Fatalf("%v\n%s", err, strings.Join(text, "\n"))
	}
	for _, name := range []string{"TestH2Handshake", "TestFraming/h2", "TestClosing/h2,_proxy"} {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s has not run", name)
		}
	}
}

// skipUnlessExtended is for tests that only that process can run.
func skipUnlessExtended(t *testing.T) {
	if !extended() {
		t.Skip("TestHTTP2 runs this in a process of its own")
	}
}

// bothH2 runs a test with an echo, and with a proxy in front of one.
func bothH2(t *testing.T, o websocket.Options, f func(t *testing.T, f front)) {
	skipUnlessExtended(t)
	onAll(t, o, f)
}

// TestH2Handshake are the requests that RFC 8441, 4 and 5, allows, and others.
func TestH2Handshake(t *testing.T) {
	o := echoOptions()
	o.Subprotocols = []string{"chat"}
	connect := func(protocol string, more ...string) []string {
		return append([]string{":method: CONNECT", ":protocol: " + protocol, ":scheme: https", ":path: /echo", ":authority: echo.example"}, more...)
	}
	bothH2(t, o, func(t *testing.T, f front) {
		h := f.dialH2(t)
		if !h.extended {
			t.Fatal("no SETTINGS_ENABLE_CONNECT_PROTOCOL")
		}
		for _, c := range []struct {
			name   string
			fields []string
			status string
		}{
			{"usual", nil, "200"},
			{"with an origin of its own", []string{"origin: https://elsewhere.example"}, "403"},
			{"a subprotocol", []string{"sec-websocket-protocol: other, chat"}, "200"},
			{"an extension", []string{"sec-websocket-extensions: permessage-deflate"}, "200"},
			{"WebSocket in other letters", connect("WebSocket", "sec-websocket-version: 13"), "200"},
			{"no version", connect("websocket"), "426"},
			{"version 8", connect("websocket", "sec-websocket-version: 8"), "426"},
			{"another protocol", connect("connect-udp", "sec-websocket-version: 13"), "426"},
			{"GET", []string{":method: GET", ":scheme: https", ":path: /echo", ":authority: echo.example", "sec-websocket-version: 13"}, "426"},
		} {
			if c.name == "GET" && strings.Contains(f.name, "proxy") || c.name == "another protocol" && strings.Contains(f.name, "proxy") {
				continue // what is not a WebSocket is for the upstream to say
			}
			s := h.open(false, c.fields...)
			if s.status() != c.status {
				t.Errorf("%s: %s", c.name, s.status())
				continue
			}
			for _, forbidden := range []string{"connection", "upgrade", "sec-websocket-accept", "transfer-encoding"} {
				if s.values(forbidden) != nil {
					t.Errorf("%s: the answer has %q", c.name, forbidden)
				}
			}
			if v := s.values("sec-websocket-version"); (v != nil) != (c.status == "426") {
				t.Errorf("%s: the answer has the version %q", c.name, v)
			}
			if c.status != "200" {
				continue
			}
			if v := s.values("sec-websocket-protocol"); (c.name == "a subprotocol") != (len(v) == 1 && v[0] == "chat") {
				t.Errorf("%s: the subprotocol %q", c.name, v)
			}
			cl := s.client()
			if cl.inflates != (c.name == "an extension") {
				t.Errorf("%s: the extensions %q", c.name, s.values("sec-websocket-extensions"))
			}
			cl.write(masked(fin|opText, "Hello"))
			cl.want(event{opText, "Hello"})
			cl.goodbye()
		}
	})
}

// TestH2End is how streams end: with END_STREAM behind the close frames, not
// with a reset, whoever was first.
func TestH2End(t *testing.T) {
	bothH2(t, echoOptions(), func(t *testing.T, f front) {
		h := f.dialH2(t)
		for name, frames := range map[string][]byte{
			"the client closes": masked(fin|opClose, closing(1000, "")),
			"the server closes": masked(fin|opText, "\xff"),
		} {
			s := h.open(false)
			c := s.client()
			c.write(frames)
			if e, err := c.next(); err != nil || e.op != opClose {
				t.Fatalf("%s: %v, error %v", name, e, err)
			}
			if e, err := c.next(); !errors.Is(err, io.EOF) {
				t.Fatalf("%s: %v, error %v", name, e, err)
			}
			s.mu.Lock()
			if s.reset && s.code != http2.ErrCodeNo {
				t.Errorf("%s: the stream is reset: %v", name, s.code)
			}
			s.mu.Unlock()
		}
		// END_STREAM without a close frame is the end of the connection.
		s := h.open(false)
		s.CloseWrite()
		c := s.client()
		for {
			if _, err := c.next(); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("behind the client's END_STREAM: %v", err)
				}
				break
			}
		}
	})
}

// TestH2EndTogether has the client end its direction right behind its close
// frame: it is answered all the same.
func TestH2EndTogether(t *testing.T) {
	skipUnlessExtended(t)
	f := allFronts(t, echoOptions())[0]
	s := f.dialH2(t).open(false)
	c := s.client()
	s.writing(func() error {
		return s.fr.WriteData(s.id, true, join(masked(fin|opText, "last"), masked(fin|opClose, closing(1000, ""))))
	})
	c.want(event{opText, "last"})
	c.wantClosed(1000, false)
}

// TestH2Reset gives streams up in the middle; the others of the connection
// go on, and nothing of the ones is kept.
func TestH2Reset(t *testing.T) {
	bothH2(t, echoOptions(), func(t *testing.T, f front) {
		h := f.dialH2(t)
		other := h.open(false).client()
		for i := range 20 {
			s := h.open(i%2 == 0)
			c := s.client()
			c.write(masked(opText, "the beginning"))
			if i%2 == 0 {
				c.write(masked(opMore, sample(200_000))[:100_000]) // and it waits for a window
			} else {
				c.beginning()
			}
			s.Reset(http2.ErrCodeCancel)
			text := fmt.Sprint("number ", i)
			other.write(masked(fin|opText, text))
			other.want(event{opText, text})
		}
		other.goodbye()
	})
}

// TestH2Streams has many streams on one connection, each with its own order.
func TestH2Streams(t *testing.T) {
	bothH2(t, echoOptions(), func(t *testing.T, f front) {
		h := f.dialH2(t)
		var clients []*client
		for range 40 {
			clients = append(clients, h.open(false, usualOffer).client())
		}
		for round := range 5 {
			for i, c := range clients {
				c.write(join(masked(fin|opText, fmt.Sprint(i, " ", round)), masked(fin|opBinary, noise(i*100))))
			}
			for i, c := range clients {
				c.want(event{opText, fmt.Sprint(i, " ", round)})
				c.want(event{opBinary, noise(i * 100)})
			}
		}
		for _, c := range clients {
			c.goodbye()
		}
	})
}

// TestH2Window has a client that gives one stream no window: what is echoed
// there waits, the client's own sending stops, and no other stream waits for it.
func TestH2Window(t *testing.T) {
	bothH2(t, echoOptions(), func(t *testing.T, f front) {
		h := f.dialH2(t)
		slow := h.open(true)
		c := slow.client()
		const messages = 60
		payload := noise(50_000)
		sent := make(chan error, 1)
		go func() {
			for range messages {
				if _, err := c.Write(masked(fin|opBinary, payload)); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		// Its window is full.
		h.await("the window to be full", func() bool { return slow.got == 65535 })
		other := h.open(false).client()
		for i := range 50 {
			text := fmt.Sprint("number ", i)
			other.write(masked(fin|opText, text))
			other.want(event{opText, text})
		}
		other.goodbye()
		h.mu.Lock()
		if slow.got != 65535 {
			t.Errorf("%d bytes came through a window of 65535", slow.got)
		}
		slow.stingy = false
		h.mu.Unlock()
		slow.give(1 << 20)
		for range messages {
			c.want(event{opBinary, payload})
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		c.goodbye()
	})
}

// TestH2Leaving ends the server while streams are open, one of which has no
// window for the news: that is cut, and nobody waits for it for long.
func TestH2Leaving(t *testing.T) {
	skipUnlessExtended(t)
	fronts := allFronts(t, echoOptions())
	for i := len(fronts) - 1; i >= 0; i-- {
		f := fronts[i]
		h := f.dialH2(t)
		good := h.open(false).client()
		stuck := h.open(true)
		_ = stuck.SetDeadline(time.Now().Add(time.Second))
		_, _ = stuck.Write(masked(fin|opBinary, noise(200_000)))
		h.await("the window to be full", func() bool { return stuck.got == 65535 })
		closed := make(chan struct{})
		go func() {
			f.handler.Close()
			close(closed)
		}()
		e, err := good.next()
		if err != nil || e.op != opClose || e.payload[:2] != closing(1012, "") || !strings.HasPrefix(e.payload[2:], "reconnect in ") {
			t.Errorf("%s: %v, error %v", f.name, e, err)
		}
		good.write(masked(fin|opClose, closing(1012, "")))
		good.wantEnd()
		<-closed
		h.await("the end of the stream without a window", func() bool { return stuck.reset || stuck.ended })
		if s := h.open(false); s.status() != "503" {
			t.Errorf("%s: afterwards %s", f.name, s.status())
		}
	}
}

// TestH2Goes ends connections with open streams, one of them stuck: their
// handlers end.
func TestH2Goes(t *testing.T) {
	skipUnlessExtended(t)
	before := runtime.NumGoroutine()
	fronts := allFronts(t, echoOptions())
	for _, f := range fronts {
		h := f.dialH2(t)
		c := h.open(false).client()
		c.write(masked(fin|opText, "Hello"))
		c.want(event{opText, "Hello"})
		stuck := h.open(true)
		_ = stuck.SetDeadline(time.Now().Add(time.Second))
		_, _ = stuck.Write(masked(fin|opBinary, noise(200_000)))
		h.nc.Close()
		<-h.done
	}
	for _, f := range fronts {
		f.handler.Close()
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before+20; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
