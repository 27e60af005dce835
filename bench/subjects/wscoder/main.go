// Command wscoder is a server over github.com/coder/websocket with its default
// options: an echo, in which each message is read whole and written back; or a
// channel.
//
//	wscoder -listen 127.0.0.1:PORT [-broadcast] [-cert FILE -key FILE]
package main

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/coder/websocket"

	"millrace/bench/subjects/internal/wspeer"
)

func main() { os.Exit(wspeer.Main("wscoder", handler(), newHub())) }

// handler echoes until the client closes.
func handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // the library has answered
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	})
}

const (
	// queueLength is how many messages may wait for a subscriber: as in the
	// library's example of a chat.
	queueLength = 16
	// writeTimeout is how long a subscriber may take to accept one, as there.
	writeTimeout = 5 * time.Second
)

// hub sends to all connections as the library's example of a chat does: a queue
// and a goroutine that writes for each, and one that reads, started by CloseRead.
type hub struct {
	mu     sync.Mutex
	queues map[chan []byte]context.CancelFunc
}

func newHub() *hub { return &hub{queues: map[chan []byte]context.CancelFunc{}} }

// ServeHTTP subscribes and writes until the connection ends.
func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the library has answered
	}
	defer func() { _ = c.CloseNow() }()
	ctx, cancel := context.WithCancel(c.CloseRead(r.Context()))
	defer cancel()
	queue := make(chan []byte, queueLength)
	h.mu.Lock()
	h.queues[queue] = cancel
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.queues, queue)
	}()
	for {
		select {
		case message := <-queue:
			if err := write(ctx, c, message); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func write(ctx context.Context, c *websocket.Conn, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.Write(ctx, websocket.MessageText, message)
}

// Publish implements [wspeer.Hub]. Who has no room is cut off.
func (h *hub) Publish(data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for queue, cancel := range h.queues {
		select {
		case queue <- data:
		default:
			cancel()
		}
	}
}
