// Package faulty is a server that misbehaves as told, for tests: every
// connection plays a script of bytes, pauses, resets and hangs, below any HTTP
// library that would be too well-mannered. Scenarios lists the ways in which
// upstreams go wrong, by name.
package faulty

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Script is what one connection does, step by step; then it is closed. It
// stops at the first step that fails, as when the other side has gone.
type Script []Step

// Step is one act on a connection.
type Step func(*Conn) error

// Conn is the connection that a script plays on.
type Conn struct {
	net.Conn
	// Requests are the heads that were read on this connection.
	Requests []*http.Request

	reader *bufio.Reader
	done   <-chan struct{} // closed when the server closes
	count  func()
}

// errEnd ends a script early, and is not its fault.
var errEnd = errors.New("end of script")

// Request waits for a request and reads it, body and all.
func Request() Step {
	head := Head()
	return func(c *Conn) error {
		if err := head(c); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, c.Requests[len(c.Requests)-1].Body)
		return err
	}
}

// Head waits for a request and reads its head only.
func Head() Step {
	return func(c *Conn) error {
		r, err := http.ReadRequest(c.reader)
		if err != nil {
			return err
		}
		c.Requests = append(c.Requests, r)
		c.count()
		return nil
	}
}

// Send writes the text. Lines of a head are the caller's to end in \r\n.
func Send(text string) Step {
	return func(c *Conn) error {
		_, err := io.WriteString(c, text)
		return err
	}
}

// Flood writes the text over and over, at most so many bytes.
func Flood(text string, most int64) Step {
	return func(c *Conn) error {
		chunk := strings.Repeat(text, 1+(32<<10)/len(text))
		for sent := int64(0); sent < most; sent += int64(len(chunk)) {
			if _, err := io.WriteString(c, chunk); err != nil {
				return err
			}
		}
		return nil
	}
}

// Trickle writes the text byte by byte, with a pause after each.
func Trickle(text string, every time.Duration) Step {
	return func(c *Conn) error {
		for i := range len(text) {
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				return err
			}
			if err := Pause(every)(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// Pause does nothing for a while.
func Pause(d time.Duration) Step {
	return func(c *Conn) error {
		select {
		case <-time.After(d):
			return nil
		case <-c.done:
			return errEnd
		}
	}
}

// Hang says nothing more until the other side closes, or the server.
func Hang() Step {
	return func(c *Conn) error {
		_, err := io.Copy(io.Discard, c.reader)
		return errors.Join(errEnd, err)
	}
}

// Unresponsive neither reads nor writes until the server closes.
func Unresponsive() Step {
	return func(c *Conn) error {
		<-c.done
		return errEnd
	}
}

// Reset ends the connection with RST instead of FIN, where it is TCP.
func Reset() Step {
	return func(c *Conn) error {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			if err := tcp.SetLinger(0); err != nil {
				return err
			}
		}
		return errors.Join(errEnd, c.Close())
	}
}

// Loop plays the steps again and again while they succeed.
func Loop(steps ...Step) Step {
	return func(c *Conn) error {
		for {
			for _, step := range steps {
				if err := step(c); err != nil {
					return err
				}
			}
		}
	}
}

// Forward joins the connection to a real server, and resets it after so many
// bytes of answers; 0: never.
func Forward(network, address string, most int64) Step {
	return func(c *Conn) error {
		back, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer back.Close()
		var both sync.WaitGroup
		both.Go(func() { // ends when either side closes, and is waited for below
			_, _ = io.Copy(back, c.reader) // either end may break: that is what this is for
			back.Close()
		})
		defer both.Wait()
		if most > 0 {
			_, _ = io.CopyN(c, back, most)
			return Reset()(c)
		}
		_, _ = io.Copy(c, back)
		return errors.Join(errEnd, c.Close())
	}
}

// OK is a plain good answer with this body.
func OK(body string) Step {
	return Send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
}

// Good answers every request well.
func Good(body string) Script { return Script{Loop(Request(), OK(body))} }

// Output is what a scenario's script writes to a client that makes one request; empty
// where that is long, or comes with pauses.
func (s Scenario) Output() string {
	var said strings.Builder
	asked := false
	over := make(chan struct{})
	close(over)
	Play(fakeConn{written: &said, asked: &asked}, s.Script, over)
	return said.String()
}

// fakeConn is a connection on which one request came, and nothing after it.
type fakeConn struct {
	net.Conn
	written *strings.Builder
	asked   *bool
}

// Read implements io.Reader.
func (p fakeConn) Read(b []byte) (int, error) {
	if *p.asked {
		return 0, io.EOF
	}
	*p.asked = true
	return copy(b, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"), nil
}

// Write implements io.Writer, and takes no flood.
func (p fakeConn) Write(b []byte) (int, error) {
	if len(b)+p.written.Len() > 4<<10 {
		return 0, errEnd
	}
	return p.written.Write(b)
}

// Close implements io.Closer.
func (fakeConn) Close() error { return nil }

// Play plays a script on a connection, which it closes at the end, and returns
// the connection as it was left. It stops early when done is closed and the
// connection with it.
func Play(nc net.Conn, s Script, done <-chan struct{}) *Conn {
	return play(nc, s, done, func() {})
}

func play(nc net.Conn, s Script, done <-chan struct{}, count func()) *Conn {
	c := &Conn{Conn: nc, reader: bufio.NewReader(nc), done: done, count: count}
	defer nc.Close()
	for _, step := range s {
		if err := step(c); err != nil {
			break
		}
	}
	return c
}

// Server listens, and plays a script on every connection.
type Server struct {
	// Addr is host:port, URL the same as http://.
	Addr, URL string

	listener net.Listener
	done     chan struct{}
	running  sync.WaitGroup

	mu       sync.Mutex
	scripts  []Script
	next     int
	open     map[net.Conn]bool
	requests int
	conns    int
}

// Start listens on a free port of the loopback interface. The first connection
// plays the first script, the last script is for all that follow.
func Start(scripts ...Script) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faulty: %w", err)
	}
	s := &Server{
		Addr: l.Addr().String(), URL: "http://" + l.Addr().String(),
		listener: l, done: make(chan struct{}), scripts: scripts, open: map[net.Conn]bool{},
	}
	s.running.Go(s.accept) // ends with the listener; Close waits
	return s, nil
}

func (s *Server) accept() {
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.open == nil {
			s.mu.Unlock()
			nc.Close()
			return
		}
		var script Script
		if len(s.scripts) > 0 {
			script = s.scripts[min(s.next, len(s.scripts)-1)]
		}
		s.next++
		s.conns++
		s.open[nc] = true
		s.mu.Unlock()
		s.running.Go(func() { // ends with its connection; Close waits
			play(nc, script, s.done, s.count)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.open, nc)
		})
	}
}

func (s *Server) count() {
	s.mu.Lock()
	s.requests++
	s.mu.Unlock()
}

// Set changes the scripts for connections from now on, and cuts those that are open.
func (s *Server) Set(scripts ...Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts, s.next = scripts, 0
	for nc := range s.open {
		nc.Close()
	}
}

// Requests is how many requests came.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Connections is how many were accepted.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Close cuts all connections and waits for their scripts.
func (s *Server) Close() {
	s.mu.Lock()
	if s.open == nil {
		s.mu.Unlock()
		return
	}
	close(s.done)
	s.listener.Close()
	for nc := range s.open {
		nc.Close()
	}
	s.open = nil
	s.mu.Unlock()
	s.running.Wait()
}
