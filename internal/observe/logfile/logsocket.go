package logfile

// This file sends log lines to a daemon that collects them: by syslog (RFC
// 5424) over a UNIX socket, UDP (RFC 5426) or TCP (RFC 6587, with the length in
// front of each message), or by journald's native protocol.
//
// A connection is made when there is something to send, and again after it failed,
// at most once a second. Lines that cannot be sent are the caller's to count: nothing
// is kept here.

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Severity is that of a message (RFC 5424, 6.2.1; journald's PRIORITY).
type Severity uint8

// The severities in use.
const (
	Error   Severity = 3
	Warning Severity = 4
	Info    Severity = 6
	Debug   Severity = 7
)

// Target is where lines go. [Parse] makes it.
type Target struct {
	network  string // of package net; "" for journald
	address  string
	facility int
}

const (
	// The names of the daemons of this machine.
	journald = "journald"
	local    = "syslog"

	journal = "/run/systemd/journal/socket"
	devLog  = "/dev/log"

	defaultPort    = "514" // RFC 5426, 3.3
	defaultTCPPort = "601" // RFC 3195, as rsyslog and syslog-ng use it for TCP

	daemon = 3 // the facility of system daemons
)

// facilities are their numbers (RFC 5424, table 1) by the names that syslog daemons use.
var facilities = map[string]int{
	"user": 1, "daemon": 3, "auth": 4, "syslog": 5,
	"local0": 16, "local1": 17, "local2": 18, "local3": 19, "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}

// ParseTarget reads a target: journald, syslog (the daemon of this machine, at /dev/log),
// unix:/path, udp://host:514 or tcp://host:601. "?facility=local3" behind it is the
// facility for syslog; the default is daemon.
func ParseTarget(s string) (t Target, err error) {
	s, query, _ := strings.Cut(s, "?")
	t.facility = daemon
	if query != "" {
		values, err := url.ParseQuery(query)
		number, known := facilities[values.Get("facility")]
		if err != nil || !known || len(values) != 1 || s == journald {
			return t, fmt.Errorf("%q: only the facility of syslog can be said here, like ?facility=local3", query)
		}
		t.facility = number
	}
	network, address, hasAddress := strings.Cut(s, ":")
	switch {
	case s == journald:
		t.address = journal
	case s == local:
		t.network, t.address = "unix", devLog
	case network == "unix" && hasAddress && strings.HasPrefix(address, "/"):
		t.network, t.address = "unix", address
	case (network == "udp" || network == "tcp") && strings.HasPrefix(address, "//"):
		t.network = network
		if t.address, err = withPort(strings.TrimPrefix(address, "//"), network); err != nil {
			return t, err
		}
	default:
		return t, fmt.Errorf("%q is nothing that takes log lines: write journald, syslog, unix:/path, udp://host:514 or tcp://host:601", s)
	}
	return t, nil
}

func withPort(address, network string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), defaultPort
		if network == "tcp" {
			port = defaultTCPPort
		}
	}
	_, notIP := netip.ParseAddr(host)
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" || notIP != nil && strings.ContainsAny(host, "/:@ ") {
		return "", fmt.Errorf("%q is not a host and a port: write them like logs.example.org:514", address)
	}
	return net.JoinHostPort(host, port), nil
}

const (
	// redial is how long no connection is tried after one that failed.
	redial = time.Second
	// socketTimeout is how long a connection may take to be made, and to take lines.
	socketTimeout = 5 * time.Second
	// maxMessage is the longest message, in bytes. A longer one is cut.
	maxMessage = 48 << 10
)

// Socket sends to a target. It is for one goroutine.
type Socket struct {
	target  Target
	ident   string
	head    head
	conn    net.Conn
	stream  bool      // messages need their length in front
	failed  time.Time // when the last connection failed
	why     error
	message []byte
	batch   []byte // of a stream
}

// NewSocket makes a connection when there is something to send. ident names the program.
func NewSocket(t Target, ident string) *Socket {
	return &Socket{target: t, ident: ident, head: newHead(t.facility, ident)}
}

// Write sends whole lines, each as a message of severity Info. n is how many bytes of
// them the kernel has taken; over UDP, and in the moment in which the other side
// closes, lines may be lost all the same.
func (c *Socket) Write(lines []byte) (n int, err error) {
	return c.send(lines, Info)
}

// Send sends one message, which may have several lines.
func (c *Socket) Send(severity Severity, message string) error {
	if err := c.connect(); err != nil {
		return err
	}
	return c.check(c.flush(c.append(c.batch[:0], severity, []byte(message), time.Now())))
}

func (c *Socket) send(lines []byte, severity Severity) (n int, err error) {
	if err := c.connect(); err != nil {
		return 0, err
	}
	now := time.Now()
	c.batch = c.batch[:0]
	for rest := lines; len(rest) > 0; {
		line := rest
		if i := indexNewline(rest); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		c.batch = c.append(c.batch, severity, line, now)
		if c.stream && len(c.batch) < maxMessage && len(rest) > 0 {
			continue
		}
		if err := c.check(c.flush(c.batch)); err != nil {
			return n, err
		}
		n, c.batch = len(lines)-len(rest), c.batch[:0]
	}
	return n, nil
}

func indexNewline(b []byte) int {
	for i, c := range b {
		if c == '\n' {
			return i
		}
	}
	return -1
}

// append appends a message as the target wants it.
func (c *Socket) append(b []byte, severity Severity, text []byte, now time.Time) []byte {
	text = text[:min(len(text), maxMessage)]
	if c.target.network == "" {
		return appendJournal(b, severity, c.ident, text)
	}
	if !c.stream {
		return append(c.head.append(b, severity, now), text...)
	}
	c.message = append(c.head.append(c.message[:0], severity, now), text...)
	b = strconv.AppendInt(b, int64(len(c.message)), 10) // RFC 6587, 3.4.1
	return append(append(b, ' '), c.message...)
}

func (c *Socket) flush(b []byte) error {
	c.batch = b
	if err := c.conn.SetWriteDeadline(time.Now().Add(socketTimeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// check drops the connection after an error.
func (c *Socket) check(err error) error {
	if err == nil {
		return nil
	}
	c.drop()
	c.failed, c.why = time.Now(), fmt.Errorf("sending to %s: %w", c.target, err)
	return c.why
}

func (c *Socket) drop() {
	if c.conn != nil {
		_ = c.conn.Close() // there is nobody to tell
		c.conn = nil
	}
}

// connect makes the connection, if there is none.
func (c *Socket) connect() error {
	if c.conn != nil {
		return nil
	}
	if !c.failed.IsZero() && time.Since(c.failed) < redial {
		return c.why
	}
	conn, stream, err := c.target.dial()
	if err != nil {
		c.failed, c.why = time.Now(), fmt.Errorf("%s: %w", c.target, err)
		return c.why
	}
	c.conn, c.stream = conn, stream
	return nil
}

// dial connects; stream says that messages have no bounds of their own.
func (t Target) dial() (conn net.Conn, stream bool, err error) {
	d := net.Dialer{Timeout: socketTimeout}
	switch t.network {
	case "": // sd_journal_sendv's protocol
		conn, err = d.Dial("unixgram", t.address)
	case "unix": // most daemons take datagrams, some a stream
		if conn, err = d.Dial("unixgram", t.address); err != nil {
			var other error
			if conn, other = d.Dial("unix", t.address); other == nil {
				return conn, true, nil
			}
		}
	default:
		conn, err = d.Dial(t.network, t.address)
	}
	return conn, t.network == "tcp", err
}

// String is the target as people write it.
func (t Target) String() string {
	switch t.network {
	case "":
		return journald
	case "unix":
		return "syslog at " + t.address
	}
	return "syslog at " + t.network + "://" + t.address
}

// Close ends the connection.
func (c *Socket) Close() error {
	c.drop()
	return nil
}
