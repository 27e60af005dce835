package cache

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Server is the API. It answers any number of requests at once.
type Server struct {
	listener net.Listener
	server   http.Server
	done     chan struct{}

	requests atomic.Uint64
	version  atomic.Uint64
	delay    atomic.Int64 // added to each object's own
}

// Start starts the API at a free loopback address. Close ends it.
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the API behind the caches: %w", err)
	}
	s := &Server{listener: l, done: make(chan struct{})}
	s.server.Handler = s
	// Ends with the listener, which Close waits for.
	go func() {
		_ = s.server.Serve(l) // says only that it was closed
		close(s.done)
	}()
	return s, nil
}

// Close ends the API and everything that it is still answering.
func (s *Server) Close() {
	_ = s.server.Close() // what is cut off was measured already
	<-s.done
}

// Address is its host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Requests is how many have come so far.
func (s *Server) Requests() uint64 { return s.requests.Load() }

// SetVersion changes the bodies of all objects that are Versioned.
func (s *Server) SetVersion(version uint64) { s.version.Store(version) }

// SetDelay adds a delay to every object's own.
func (s *Server) SetDelay(d time.Duration) { s.delay.Store(int64(d)) }

// ServeHTTP answers with the object that the request describes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	o, err := parse(r.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	version := s.version.Load() // as it is when the request comes
	if !wait(r, o.Delay+time.Duration(s.delay.Load())) {
		return
	}
	body := o.Body(version)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", o.cacheControl())
	if o.Tag != "" {
		h.Set("Surrogate-Key", o.Tag)
	}
	if o.Stream == 0 {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		return
	}
	for i := range pieces {
		if i > 0 && !wait(r, o.Stream/pieces) {
			return
		}
		_, _ = w.Write(body[len(body)*i/pieces : len(body)*(i+1)/pieces])
		_ = http.NewResponseController(w).Flush()
	}
}

// wait waits; false: the client has gone.
func wait(r *http.Request, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}
