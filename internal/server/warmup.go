package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"millrace/internal/lane"
)

const (
	// warmUpWorkers is how many requests run at once: some may go to upstreams.
	warmUpWorkers = 16
	// warmUpRounds is how often each request is made: the first starts work in the
	// background, such as compressing a file, whose result the second one gets.
	warmUpRounds = 2
	// discardRoom is how many bytes of a body are read: as many as the lane keeps in
	// memory.
	discardRoom = 1 << 20
)

// Cool and Hottest are ResetRecent and HotRequests of the lane.
func (s *Server) Cool() { s.lane.ResetRecent() }

// Hottest lists the requests that come most often: see [lane.Lane.Hottest].
func (s *Server) Hottest(answers, bytes int) []lane.HotRequest {
	return s.lane.HotRequests(answers, bytes)
}

// WarmUp makes requests that clients are expected to make, so that the fast lane has the
// answers before they come. It returns when all are answered, or when ctx ends; done is
// closed when the last of the requests has ended. These requests are not logged, counted
// or limited.
func (s *Server) WarmUp(ctx context.Context, list []lane.HotRequest) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() { // ends with the list, or with ctx and what was asked by then
		defer close(ended)
		for range warmUpRounds {
			s.warmUpAll(ctx, list)
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return ended
}

// warmUpAll makes each request once.
func (s *Server) warmUpAll(ctx context.Context, list []lane.HotRequest) {
	next := make(chan *lane.HotRequest)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(next)
	for range min(warmUpWorkers, len(list)) {
		all.Go(func() { // ends with next
			for a := range next {
				s.warmUpOne(ctx, a)
			}
		})
	}
	for i := range list {
		select {
		case next <- &list[i]:
		case <-ctx.Done():
			return
		}
	}
}

// warmUpOne makes one request. Its errors are dropped: a client that makes the same
// request will get them.
func (s *Server) warmUpOne(ctx context.Context, a *lane.HotRequest) {
	target, err := url.ParseRequestURI(a.Target)
	if err != nil {
		return
	}
	scope := &s.plain
	r := &http.Request{
		Method: http.MethodGet, URL: target, RequestURI: a.Target, Host: a.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, RemoteAddr: "127.0.0.1:0",
	}
	if a.Secure {
		scope, r.TLS = &s.secure, &tls.ConnectionState{ServerName: a.Host, HandshakeComplete: true}
	}
	r.Header = a.Header()
	within := s.lane.WithHTTP3(ctx, scope, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	defer func() { _ = recover() }() // of a job that cuts its connection; the cause is logged
	s.ServeHTTP(&discardWriter{http.Header{}, discardRoom}, r.WithContext(within))
}

// discardWriter is the ResponseWriter of WarmUp's requests: it drops the answer.
type discardWriter struct {
	header http.Header
	room   int // how many bytes of the body may still come
}

// Header implements [http.ResponseWriter].
func (a *discardWriter) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *discardWriter) WriteHeader(int) {}

// Write implements [io.Writer]. It fails once room is used up, which ends large answers.
func (a *discardWriter) Write(p []byte) (int, error) {
	if a.room -= len(p); a.room < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// Flush implements [http.Flusher].
func (a *discardWriter) Flush() {}

// SetWriteDeadline implements what [http.ResponseController] looks for.
func (a *discardWriter) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline is likewise.
func (a *discardWriter) SetReadDeadline(time.Time) error { return nil }
