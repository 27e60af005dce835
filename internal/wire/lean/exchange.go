package lean

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"
)

// Exchange is a request and its answer. What lives as long as the request is allocated at
// once.
type Exchange struct {
	method, target, host string
	proto                string
	major, minor         int
	length               int64 // of the body
	url                  url.URL
	header               http.Header
	values               [fewFields]string
	body                 body
	response             Response
	request              *http.Request
	cancel               context.CancelFunc
	tls                  *tls.ConnectionState
}

// Secure says that the request has come over TLS. Call it before Begin.
func (x *Exchange) Secure(state *tls.ConnectionState) { x.tls = state }

// Length returns the length of the request's body.
func (x *Exchange) Length() int64 { return x.length }

// Method returns the request's method.
func (x *Exchange) Method() string { return x.method }

// Begin makes the request; ctx is the parent of its context. It returns the function that
// cancels that: call it when the client is gone, or the connection is cut.
func (x *Exchange) Begin(ctx context.Context, remote string) context.CancelFunc {
	ctx, x.cancel = context.WithCancel(ctx)
	r := new(http.Request).WithContext(ctx)
	r.Method, r.URL, r.Header, r.Host = x.method, &x.url, x.header, x.host
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.TLS = x.proto, x.major, x.minor, x.tls
	r.RequestURI, r.RemoteAddr = x.target, remote
	r.ContentLength, r.Body = x.length, http.NoBody
	x.request = r
	return x.cancel
}

// Outcome says what to do with the connection after an answer.
type Outcome uint8

// The outcomes.
const (
	Keep     Outcome = iota // the next request may come
	Close                   // close it
	Linger                  // close its sending side, call AwaitLinger, then close it
	Hijacked                // the handler has it
)

// Serve calls the handler for the request and ends the answer. Call it after Begin. Over HTTP/2
// the link is a [FrameLink], and the outcome means nothing.
func (x *Exchange) Serve(s *Server, l Link) (o Outcome) {
	w := &x.response
	w.x, w.server, w.link = x, s, l
	w.header, w.length, w.bodyBytes = http.Header{}, -1, bodyBufBytes
	if f, ok := l.(FrameLink); ok {
		w.frames, w.bodyBytes = f, frameBodyBytes
	}
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
		// The handler has panicked. The answer is not complete, so the connection
		// must be closed.
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

// AwaitLinger waits for as long as a connection with the outcome Linger stays open, so that
// the client can read the answer.
func AwaitLinger() { time.Sleep(lingerTime) }
