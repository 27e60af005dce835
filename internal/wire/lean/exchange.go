package lean

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// fewFields is how many header fields have their place in the exchange.
const fewFields = 12

// Exchange is one request and its answer. All that lives as long as the request
// is in one piece of memory.
type Exchange struct {
	method, target, host string
	length               int64 // of the body
	url                  url.URL
	header               http.Header
	values               [fewFields]string
	body                 body
	response             Response
	request              *http.Request
	cancel               context.CancelFunc
}

// Length is how many bytes of body follow the head.
func (x *Exchange) Length() int64 { return x.length }

// Method is the request's.
func (x *Exchange) Method() string { return x.method }

// Begin makes the request, with ctx below its context. It returns what ends
// that context: when the client is gone, or the connection is cut.
func (x *Exchange) Begin(ctx context.Context, remote string) context.CancelFunc {
	ctx, x.cancel = context.WithCancel(ctx)
	r := new(http.Request).WithContext(ctx)
	r.Method, r.URL, r.Header, r.Host = x.method, &x.url, x.header, x.host
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.RequestURI, r.RemoteAddr = x.target, remote
	r.ContentLength, r.Body = x.length, http.NoBody
	x.request = r
	return x.cancel
}

// plainRequest is a request without an answer.
type plainRequest struct {
	url    url.URL
	values [fewFields]string
}

// Request is the head as a request of net/http without a body, from a client; nil
// if its target is none.
func (h *Head) Request(ctx context.Context, client string) *http.Request {
	a := new(plainRequest)
	if !h.locate(&a.url) {
		return nil
	}
	r := new(http.Request).WithContext(ctx)
	r.Method, r.URL, r.Header, r.Host = h.Method, &a.url, h.header(a.values[:]), h.Host
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.RequestURI, r.RemoteAddr, r.Body = h.Target, client, http.NoBody
	return r
}

// Outcome says what becomes of the connection after an answer.
type Outcome uint8

// The outcomes.
const (
	Keep     Outcome = iota // the next request may come
	Close                   // it must be closed
	Linger                  // the same, after a moment in which the client may read
	Hijacked                // it is somebody else's
)

// Serve answers the request, after Begin.
func (x *Exchange) Serve(s *Server, l Link) (o Outcome) {
	w := &x.response
	w.x, w.server, w.link = x, s, l
	w.header, w.length = http.Header{}, -1
	if x.length > 0 {
		x.body = body{link: l, failed: x.cancel, remaining: x.length}
		x.request.Body = &x.body
	}
	defer x.cancel()
	finished := false
	defer func() {
		if finished {
			return
		}
		// The handler has panicked, and all that it is to be told is in the log:
		// what was sent is not whole.
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // a sentinel that is never wrapped
			s.Log("http: panic serving %v: %v", x.request.RemoteAddr, cause)
		}
		if o = Close; w.hijacked {
			o = Hijacked
			return
		}
		w.abandon()
	}()
	s.Handler.ServeHTTP(w, x.request)
	finished = true
	x.cancel()
	if w.hijacked {
		return Hijacked
	}
	return w.finish()
}

// AwaitLinger is how long a connection with the outcome Linger stays open for the
// client to read.
func AwaitLinger() { time.Sleep(lingerTime) }
