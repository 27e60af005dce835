// Package load sends requests to one target and times the answers.
//
// HTTP/1.1 without TLS, over TCP and UNIX sockets, runs on epoll loops of its
// own (Linux), one per thread, with prebuilt request bytes; everything else
// (TLS, HTTP/2, HTTP/3, WebSocket) runs a goroutine per connection and costs
// more, which the result says (see [Result].CPU).
//
// A load is a [Config], [Run] carries it out, and a [Result] is what it found.
// Inside, in the order of a request's life: arrivals.go says when it is due, a
// loop (loop_linux.go) finds a connection for it, the connection (conn_linux.go)
// sends it and reads the answer (head.go, answer.go), a tally counts it, and
// run.go adds up what was counted while the window was open. slow.go and
// stream.go do the same with goroutines.
package load

import (
	"net/http"
	"time"
)

// Protocol is how to speak to the target.
type Protocol string

// The protocols. Auto is HTTP/1.1 for http:, https: and unix:, WebSocket for
// ws: and wss:.
const (
	Auto      Protocol = ""
	HTTP1     Protocol = "http1"
	HTTP2     Protocol = "http2" // https: with ALPN, http: with prior knowledge
	HTTP3     Protocol = "http3" // https: only
	WebSocket Protocol = "websocket"
)

// Arrival is when requests are sent.
type Arrival string

// The arrivals. Closed sends a connection's next request when its answer is
// there; the others are open loops, which send by the clock whatever the
// target does.
const (
	Closed   Arrival = ""
	Constant Arrival = "constant"
	Poisson  Arrival = "poisson"
	Ramp     Arrival = "ramp" // from Rate to RampTo, linearly
)

// Config is one load. Its zero values are good but for the URL.
type Config struct {
	// URL is the target: http://host:port/path?query, https:, ws:, wss:, or
	// unix:/path/of/socket (then Paths say what to ask for; "/" without).
	URL string
	// Paths are origin-form targets, asked for in turn by each connection,
	// which begin at different ones. Empty: the path of the URL.
	Paths []string
	// Header is sent with each request. Host in it replaces the URL's.
	Header http.Header
	// Body makes each request a POST with these bytes; nil: a GET. HTTP/1.1
	// without TLS only. The caller leaves them alone as long as the load runs.
	Body []byte
	// Unique asks for another URL each time, so that no cache has the answer: a
	// parameter "n" with a number of its own is added to each path. HTTP/1.1
	// without TLS only.
	Unique bool
	// Protocol is how to speak; Auto goes by the URL.
	Protocol Protocol

	Connections int // open at once; 0: 50
	Threads     int // epoll loops; 0: one, or as many as it takes for more than 10,000 connections
	Streams     int // requests in flight on one HTTP/2 or HTTP/3 connection; 0: 1
	Sources     int // source addresses 127.0.0.2… for targets on 127.0.0.1; 0: as many as the connections need

	Arrival Arrival
	Rate    float64 // requests/s over all connections, for open loops
	RampTo  float64 // requests/s at the end of a Ramp

	Warmup   time.Duration // load before the window in which is measured
	Duration time.Duration // of the window; 0: 10 s
	Requests uint64        // ends the window early, when so many are answered; no more than these are then asked; 0: no such end
	Timeout  time.Duration // an answer that takes longer is an error, and its connection is opened anew; 0: 10 s

	// Varies says that answers to one path may differ in status and length:
	// those that do are answers like any other, and not Errors.Changed.
	Varies   bool
	Insecure bool   // accept any certificate
	Message  []byte // of WebSocket: sent, and awaited back; nil: "Hello, echod!\n"

	// Window is called when the window opens (true), with the load running,
	// and when it closes (false), before connections close: the moments to
	// read the target's counters.
	Window func(open bool)
	// Progress is called some four times a second while the load runs.
	Progress func(Tick)
}
