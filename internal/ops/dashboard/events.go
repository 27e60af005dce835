package dashboard

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	// maxWatchers is how many browsers may watch at once: the listener has 64
	// connections, of which some must stay for scrapers and commands.
	maxWatchers = 32
	// eventTimeout is how long a watcher may take to take an event.
	eventTimeout = 10 * time.Second
)

// watchers are those who get an event each second. What is sent is made once for all.
type watchers struct {
	mu     sync.Mutex
	all    map[chan []byte]bool
	sent   map[string]string // the panels as they were sent last
	closed bool
}

func (ws *watchers) init() { ws.all = map[chan []byte]bool{} }

func (ws *watchers) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.all) > 0
}

// join adds a watcher, or returns nil where there is no room.
func (ws *watchers) join() chan []byte {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed || len(ws.all) >= maxWatchers {
		return nil
	}
	c := make(chan []byte, 1)
	ws.all[c] = true
	ws.sent = nil // the new one needs all of it
	return c
}

func (ws *watchers) leave(c chan []byte) {
	ws.mu.Lock()
	delete(ws.all, c)
	ws.mu.Unlock()
}

func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for c := range ws.all {
		close(c)
	}
	clear(ws.all)
}

// send tells all of them which panels have changed. One that has not taken the last
// event yet is cut off: it comes back by itself, and then gets everything.
func (ws *watchers) send(panels map[string]string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	changed := map[string]string{}
	for id, html := range panels {
		if ws.sent == nil || ws.sent[id] != html {
			changed[id] = html
		}
	}
	ws.sent = panels
	event := bytes.NewBufferString("data: ")
	enc := json.NewEncoder(event) // which ends a line, and escapes those within
	enc.SetEscapeHTML(false)
	if enc.Encode(changed) != nil {
		return
	}
	event.WriteByte('\n')
	for c := range ws.all {
		select {
		case c <- event.Bytes():
		default:
			delete(ws.all, c)
			close(c)
		}
	}
}

// events answers with the changes, once a second (WHATWG HTML, 9.2).
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	c := d.watchers.join()
	if c == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many browsers watch already: reload the page now and then instead.", http.StatusServiceUnavailable)
		return
	}
	defer d.watchers.leave(c)
	d.source.Meters.Clients.Add(1) // Run goes on as long
	defer d.source.Meters.Clients.Add(-1)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	send := func(b []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(eventTimeout)) // fails only on a test's writer
		_, err := w.Write(b)
		return err == nil && rc.Flush() == nil
	}
	if !send([]byte("retry: 2000\n\n")) {
		return
	}
	for {
		select {
		case event, ok := <-c:
			if !ok || !send(event) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
