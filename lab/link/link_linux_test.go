package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// open makes a link, or skips where there can be none.
func open(t *testing.T) *Link {
	t.Helper()
	l, err := Open(1)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// listen answers each connection with what it sends, in the link's network.
func listen(t *testing.T, l *Link) (port uint16) {
	t.Helper()
	var ln net.Listener
	err := l.Within(func() (err error) {
		ln, err = net.Listen("tcp4", Near+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection, which the test closes
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).AddrPort().Port()
}

func dial(t *testing.T, l *Link, port uint16) net.Conn {
	t.Helper()
	var c net.Conn
	err := l.Within(func() (err error) {
		c, err = net.DialTimeout("tcp4", net.JoinHostPort(Far, fmt.Sprint(port)), 20*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Bytes arrive whole, whatever the link loses, and not before their time.
func TestLink(t *testing.T) {
	l := open(t)
	port := listen(t, l)
	if l.TCP() != "reno" {
		t.Errorf("TCP's rate comes from %q", l.TCP())
	}
	for _, now := range []Conditions{{}, {Delay: 20 * time.Millisecond}, {Loss: 0.1, Delay: time.Millisecond}} {
		l.Set(now)
		before := l.Counts()
		began := time.Now()
		c := dial(t, l, port)
		text := bytes.Repeat([]byte("millrace"), 20_000)
		sent := make(chan error, 1)
		go func() { // ends with the connection
			_, err := c.Write(text)
			sent <- err
		}()
		got := make([]byte, len(text))
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%+v: %v", now, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if least := 4 * now.Delay; time.Since(began) < least { // the handshake and an echo
			t.Errorf("%+v: %v is less than two round trips", now, time.Since(began))
		}
		after := l.Counts()
		lost, all := after.Lost-before.Lost, after.Lost+after.Delivered-before.Lost-before.Delivered
		if share := float64(lost) / float64(all); now.Loss == 0 && lost > 0 || now.Loss > 0 && (share < now.Loss/3 || share > now.Loss*3) {
			t.Errorf("%+v: %d of %d packets were lost", now, lost, all)
		}
	}
}

// The network is its own: it has none of the machine's addresses, and the machine
// has none of its.
func TestAlone(t *testing.T) {
	l := open(t)
	var inside string
	err := l.Within(func() error {
		addrs, err := net.InterfaceAddrs()
		for _, a := range addrs {
			inside += a.String() + " "
		}
		return err
	})
	if err != nil || !strings.Contains(inside, Near) {
		t.Errorf("inside: %s, %v", inside, err)
	}
	outside, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range outside {
		if strings.HasPrefix(a.String(), Near) {
			t.Errorf("the machine has %s", a)
		}
	}
	if out, err := l.Command("cat", "/proc/net/dev").Output(); err == nil && !strings.Contains(string(out), "link:") {
		t.Errorf("a command sees\n%s", out)
	}
}

// What is not IPv4 is no packet.
func TestExchange(t *testing.T) {
	for _, bad := range [][]byte{nil, {0x45}, make([]byte, 40), bytes.Repeat([]byte{0x60}, 40)} {
		if exchange(bad) {
			t.Errorf("%x was exchanged", bad)
		}
	}
	packet := append([]byte{0x45}, make([]byte, 23)...)
	copy(packet[12:], []byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	if !exchange(packet) || !bytes.Equal(packet[12:], []byte{5, 6, 7, 8, 1, 2, 3, 4, 9, 0, 0, 0}) {
		t.Errorf("%x", packet[12:])
	}
}
