package main

import (
	"net/http"
	"sync"

	"github.com/lxzan/gws"
)

// gwsEchoHandler answers each message with itself.
type gwsEchoHandler struct{ gws.BuiltinEventHandler }

// OnMessage sends the message back. A failed write ends the read loop by
// itself.
func (gwsEchoHandler) OnMessage(c *gws.Conn, m *gws.Message) {
	defer func() { _ = m.Close() }()
	_ = c.WriteMessage(m.Opcode, m.Bytes())
}

// gwsEcho is an echo over github.com/lxzan/gws with its default options. The read
// loop runs in a goroutine of its own, as the manual shows, so that net/http's buffers
// are given back after the upgrade.
func gwsEcho() http.Handler { return gwsUpgrade(gws.NewUpgrader(gwsEchoHandler{}, nil)) }

// gwsUpgrade upgrades every request. The goroutine it starts ends with its
// connection.
func gwsUpgrade(upgrader *gws.Upgrader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r)
		if err != nil {
			return // gws has answered
		}
		go c.ReadLoop()
	})
}

// gwsHub sends to all connections with one Broadcaster for each publication, as
// gws's manual recommends: the frame is made once, and each connection's queue
// writes it.
type gwsHub struct {
	gws.BuiltinEventHandler
	http.Handler
	mu    sync.RWMutex
	conns map[*gws.Conn]struct{}
}

func newGWSHub() *gwsHub {
	h := &gwsHub{conns: map[*gws.Conn]struct{}{}}
	h.Handler = gwsUpgrade(gws.NewUpgrader(h, nil))
	return h
}

// OnOpen subscribes.
func (h *gwsHub) OnOpen(c *gws.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[c] = struct{}{}
}

// OnClose ends the subscription.
func (h *gwsHub) OnClose(c *gws.Conn, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
}

// Publish implements [hub].
func (h *gwsHub) Publish(data []byte) {
	b := gws.NewBroadcaster(gws.OpcodeText, data)
	defer func() { _ = b.Close() }()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for c := range h.conns {
		_ = b.Broadcast(c) // of a connection that is gone; OnClose comes
	}
}
