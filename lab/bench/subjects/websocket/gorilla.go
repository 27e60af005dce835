package main

import (
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
)

// gorillaEcho is an echo over github.com/gorilla/websocket with its default options:
// each message is read whole and written back, until the client closes.
func gorillaEcho() http.Handler {
	upgrader := &websocket.Upgrader{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the library has answered
		}
		defer func() { _ = c.Close() }()
		for {
			kind, message, err := c.ReadMessage()
			if err != nil {
				return
			}
			if err := c.WriteMessage(kind, message); err != nil {
				return
			}
		}
	})
}

// gorillaQueue is how many messages may wait for a subscriber: as in the
// library's example of a chat.
const gorillaQueue = 256

// gorillaHub sends to all connections as the library's example of a chat does, a queue
// and a goroutine that writes for each beside the one that reads, but with a
// message that is prepared once.
type gorillaHub struct {
	upgrader websocket.Upgrader
	mu       sync.Mutex
	queues   map[chan *websocket.PreparedMessage]struct{}
}

func newGorillaHub() *gorillaHub {
	return &gorillaHub{queues: map[chan *websocket.PreparedMessage]struct{}{}}
}

// ServeHTTP subscribes and reads until the connection ends.
func (h *gorillaHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := h.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the library has answered
	}
	queue := make(chan *websocket.PreparedMessage, gorillaQueue)
	h.mu.Lock()
	h.queues[queue] = struct{}{}
	h.mu.Unlock()
	go gorillaWrite(c, queue) // ends when leave closes the queue, or with its connection
	defer h.leave(queue)
	defer func() { _ = c.Close() }()
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			return
		}
	}
}

// leave ends a subscription; it may have ended.
func (h *gorillaHub) leave(queue chan *websocket.PreparedMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.queues[queue]; ok {
		delete(h.queues, queue)
		close(queue)
	}
}

func gorillaWrite(c *websocket.Conn, queue chan *websocket.PreparedMessage) {
	defer func() { _ = c.Close() }() // so that its reader ends, too
	for message := range queue {
		if err := c.WritePreparedMessage(message); err != nil {
			return
		}
	}
}

// Publish implements [hub]. Who has no room is cut off.
func (h *gorillaHub) Publish(data []byte) {
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, data)
	if err != nil {
		return // it has a type that is known
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for queue := range h.queues {
		select {
		case queue <- message:
		default:
			delete(h.queues, queue)
			close(queue)
		}
	}
}
