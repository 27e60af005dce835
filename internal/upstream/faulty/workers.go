package faulty

import (
	"net"
	"sync"
)

// Workers is a listener whose server has few workers: each serves one connection
// until it is closed, and while all do the next ones wait in the listen queue.
type Workers struct {
	net.Listener
	free chan struct{}
}

// NewWorkers lets n connections of ln be served at a time.
func NewWorkers(ln net.Listener, n int) *Workers {
	w := &Workers{Listener: ln, free: make(chan struct{}, n)}
	for range n {
		w.free <- struct{}{}
	}
	return w
}

// Accept implements [net.Listener].
func (w *Workers) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	<-w.free
	return &served{Conn: c, done: func() { w.free <- struct{}{} }}, nil
}

// served is a connection that has a worker.
type served struct {
	net.Conn
	once sync.Once
	done func()
}

// Close implements [net.Conn].
func (c *served) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.done)
	return err
}
