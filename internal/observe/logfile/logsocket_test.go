package logfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"journald":                      "journald",
		"syslog":                        "syslog at /dev/log",
		"unix:/run/x":                   "syslog at /run/x",
		"udp://10.0.0.1":                "syslog at udp://10.0.0.1:514",
		"tcp://[2001:db8::1]":           "syslog at tcp://[2001:db8::1]:601",
		"tcp://h.example:1514":          "syslog at tcp://h.example:1514",
		"udp://h:514?facility=local3":   "syslog at udp://h:514",
		"":                              "",
		"unix:":                         "",
		"unix:log":                      "",
		"udp:h":                         "",
		"udp://":                        "",
		"udp://h:0":                     "",
		"udp://h/a:5":                   "",
		"http://h":                      "",
		"syslog?facility=x":             "",
		"syslog?facility=user&severity": "",
	} {
		to, err := ParseTarget(in)
		if got := to.String(); want == "" && err == nil || want != "" && got != want {
			t.Errorf("%q is %q, %v; want %q", in, got, err, want)
		}
	}
}

// message is RFC 5424's, as this package writes it.
var syslogMessage = regexp.MustCompile(`(?s)^<(\d+)>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+) millrace (\d+) - - (.*)$`)

func check(t *testing.T, raw string, priority int, text string) {
	t.Helper()
	m := syslogMessage.FindStringSubmatch(raw)
	if m == nil || m[1] != strconv.Itoa(priority) || m[5] != text {
		t.Errorf("got %q, want priority %d and %q", raw, priority, text)
		return
	}
	if at, err := time.Parse(time.RFC3339, m[2]); err != nil || time.Since(at) > time.Minute || time.Until(at) > time.Second {
		t.Errorf("the time is %s", m[2])
	}
}

func target(t *testing.T, s string) *Socket {
	t.Helper()
	to, err := ParseTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	c := NewSocket(to, "millrace")
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDatagrams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, where := range []struct{ network, listen, target string }{
		{"udp", "127.0.0.1:0", "udp://"}, {"unixgram", path, "unix:" + path},
	} {
		l, err := net.ListenPacket(where.network, where.listen)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if where.network == "udp" {
			where.target += l.LocalAddr().String()
		}
		c := target(t, where.target+"?facility=local1")
		if n, err := c.Write([]byte("one\ntwo\n")); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		b := make([]byte, 1000)
		for _, want := range []string{"one", "two"} {
			n, _, err := l.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			check(t, string(b[:n]), 17*8+6, want)
		}
	}
}

// readFrame reads one message of RFC 6587.
func readFrame(r *bufio.Reader) (string, error) {
	size, err := r.ReadString(' ')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(size, " "))
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}

func TestStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := target(t, "tcp://"+l.Addr().String())
	const lines = 3000
	var text []byte
	for i := range lines {
		text = fmt.Appendf(text, "line %d\n", i)
	}
	done := make(chan error, 1)
	go func() {
		n, err := c.Write(text)
		if err == nil && n != len(text) {
			err = fmt.Errorf("%d bytes of %d", n, len(text))
		}
		done <- errors.Join(err, c.Send(Error, "two\nlines"))
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for i := range lines {
		m, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		check(t, m, 3*8+6, fmt.Sprint("line ", i))
	}
	m, err := readFrame(r)
	if err != nil {
		t.Fatal(err)
	}
	check(t, m, 3*8+3, "two\nlines")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A daemon that is started again is found again, and what was lost is said.
func TestComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	c := target(t, "unix:"+path)
	if n, err := c.Write([]byte("lost\n")); n != 0 || err == nil {
		t.Error(n, err)
	}
	l, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n, err := c.Write([]byte("too early\n")); n != 0 || err == nil || !strings.Contains(err.Error(), path) {
		t.Error(n, err)
	}
	c.failed = time.Now().Add(-redial)
	if _, err := c.Write([]byte("there\n")); err != nil {
		t.Error(err)
	}
	b := make([]byte, 100)
	n, _, err := l.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, string(b[:n]), 3*8+6, "there")
}

// fields reads an entry of journald's protocol.
func fields(t *testing.T, b []byte) map[string]string {
	t.Helper()
	m := map[string]string{}
	for len(b) > 0 {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			t.Fatalf("no newline behind %q", b)
		}
		if name, value, plain := bytes.Cut(line, []byte("=")); plain {
			m[string(name)], b = string(value), rest
			continue
		}
		size := binary.LittleEndian.Uint64(rest)
		m[string(line)] = string(rest[8 : 8+size])
		if rest[8+size] != '\n' {
			t.Fatalf("no newline behind a value")
		}
		b = rest[9+size:]
	}
	return m
}

func TestJournald(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewSocket(Target{address: path}, "millrace")
	defer c.Close()
	for _, text := range []string{"GET / 200", "a panic\nwith=a stack\n", strings.Repeat("x", 1<<20)} {
		if err := c.Send(Warning, text); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1<<20)
		n, _, err := l.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		m := fields(t, b[:n])
		if m["MESSAGE"] != text[:min(len(text), maxMessage)] || m["PRIORITY"] != "4" || m["SYSLOG_IDENTIFIER"] != "millrace" || len(m) != 3 {
			t.Errorf("%.200q", m)
		}
	}
}

// What the daemon does not take goes elsewhere, and nobody waits for it.
func TestSender(t *testing.T) {
	var mu sync.Mutex
	var elsewhere []string
	s := NewSender(NewSocket(Target{address: filepath.Join(t.TempDir(), "none")}, "millrace"), func(v Severity, text string, err error) {
		mu.Lock()
		defer mu.Unlock()
		elsewhere = append(elsewhere, fmt.Sprint(v, text, err != nil))
	})
	s.Send(Error, "one")
	s.Close()
	s.Send(Info, "two")
	s.Close()
	if got := strings.Join(elsewhere, ", "); got != "3onetrue, 6twofalse" {
		t.Errorf("elsewhere: %s", got)
	}
}

// A daemon that takes nothing fills the queue: the rest goes elsewhere at once.
func TestSenderDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := NewSocket(Target{network: "udp"}, "millrace")
		c.conn = near
		others := 0
		began := time.Now()
		var s *Sender
		mine := true // until the daemon's patience is over
		s = NewSender(c, func(Severity, string, error) {
			if mine {
				others++
			}
		})
		s.Send(Info, "taken by the goroutine")
		synctest.Wait()
		for range maxQueue + 10 {
			s.Send(Info, "more")
		}
		if others != 10 || !time.Now().Equal(began) {
			t.Errorf("%d went elsewhere after %v, want 10 at once", others, time.Since(began))
		}
		mine = false
		s.Close()
		time.Sleep(time.Hour)
	})
}
