// Command wsgws is a server over github.com/lxzan/gws with its default options:
// an echo, whose read loop runs in a goroutine of its own, as its manual shows,
// so that net/http's buffers are given back after the upgrade; or a channel over
// its Broadcaster.
//
//	wsgws -listen 127.0.0.1:PORT [-broadcast] [-cert FILE -key FILE]
package main

import (
	"net/http"
	"os"
	"sync"

	"github.com/lxzan/gws"

	"millrace/bench/subjects/internal/wspeer"
)

func main() { os.Exit(wspeer.Main("wsgws", handler(), newHub())) }

// echo answers each message with itself.
type echo struct{ gws.BuiltinEventHandler }

// OnMessage sends the message back. A failed write ends the read loop by
// itself.
func (echo) OnMessage(c *gws.Conn, m *gws.Message) {
	defer func() { _ = m.Close() }()
	_ = c.WriteMessage(m.Opcode, m.Bytes())
}

// handler echoes.
func handler() http.Handler { return upgrade(gws.NewUpgrader(echo{}, nil)) }

// upgrade upgrades every request. The goroutine it starts ends with its
// connection.
func upgrade(upgrader *gws.Upgrader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r)
		if err != nil {
			return // gws has answered
		}
		go c.ReadLoop()
	})
}

// hub sends to all connections with one Broadcaster for each publication, as
// gws's manual recommends: the frame is made once, and each connection's queue
// writes it.
type hub struct {
	gws.BuiltinEventHandler
	http.Handler
	mu    sync.RWMutex
	conns map[*gws.Conn]struct{}
}

func newHub() *hub {
	h := &hub{conns: map[*gws.Conn]struct{}{}}
	h.Handler = upgrade(gws.NewUpgrader(h, nil))
	return h
}

// OnOpen subscribes.
func (h *hub) OnOpen(c *gws.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[c] = struct{}{}
}

// OnClose ends the subscription.
func (h *hub) OnClose(c *gws.Conn, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// Publish implements [wspeer.Hub].
func (h *hub) Publish(data []byte) {
	b := gws.NewBroadcaster(gws.OpcodeText, data)
	defer func() { _ = b.Close() }()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for c := range h.conns {
		_ = b.Broadcast(c) // of a connection that is gone; OnClose comes
	}
}
