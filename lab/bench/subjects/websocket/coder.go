package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// coderEcho is an echo over github.com/coder/websocket with its default options: each
// message is read whole and written back, until the client closes.
func coderEcho() http.Handler {
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
	// coderQueue is how many messages may wait for a subscriber: as in the
	// library's example of a chat.
	coderQueue = 16
	// coderTimeout is how long a subscriber may take to accept one, as there.
	coderTimeout = 5 * time.Second
)

// coderHub sends to all connections as the library's example of a chat does: a queue
// and a goroutine that writes for each, and one that reads, started by CloseRead.
type coderHub struct {
	mu     sync.Mutex
	queues map[chan []byte]context.CancelFunc
}

func newCoderHub() *coderHub { return &coderHub{queues: map[chan []byte]context.CancelFunc{}} }

// ServeHTTP subscribes and writes until the connection ends.
func (h *coderHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the library has answered
	}
	defer func() { _ = c.CloseNow() }()
	ctx, cancel := context.WithCancel(c.CloseRead(r.Context()))
	defer cancel()
	queue := make(chan []byte, coderQueue)
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
			if err := coderWrite(ctx, c, message); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func coderWrite(ctx context.Context, c *websocket.Conn, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, coderTimeout)
	defer cancel()
	return c.Write(ctx, websocket.MessageText, message)
}

// Publish implements [hub]. Who has no room is cut off.
func (h *coderHub) Publish(data []byte) {
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
