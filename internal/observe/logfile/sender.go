package logfile

import (
	"sync"
	"time"
)

const (
	// maxQueue is how many messages may wait for their daemon.
	maxQueue = 1024
	// lastWords is how long Close waits for them to be sent.
	lastWords = time.Second
)

// Sender sends messages that must not be lost, and must not be waited for: what the
// target does not take goes elsewhere.
type Sender struct {
	conn      *Socket
	otherwise func(Severity, string, error)
	queue     chan message
	done      chan struct{}

	mu     sync.RWMutex // for writing, by Close
	closed bool
}

type message struct {
	severity Severity
	text     string
}

// NewSender starts the goroutine that sends, which ends with Close. otherwise gets
// what the target does not take, with the reason, from that goroutine or from Send.
func NewSender(c *Socket, otherwise func(Severity, string, error)) *Sender {
	s := &Sender{conn: c, otherwise: otherwise, queue: make(chan message, maxQueue), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Sender) run() {
	defer close(s.done)
	for m := range s.queue {
		if err := s.conn.Send(m.severity, m.text); err != nil {
			s.otherwise(m.severity, m.text, err)
		}
	}
	_ = s.conn.Close() // never fails
}

// Send has a message sent. It does not wait.
func (s *Sender) Send(severity Severity, text string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.closed {
		select {
		case s.queue <- message{severity, text}:
			return
		default:
		}
	}
	s.otherwise(severity, text, nil)
}

// Close sends what waits, for a moment at the most.
func (s *Sender) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-time.After(lastWords):
	}
}
