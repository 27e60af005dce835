// Package load sends requests to one target and times the answers.
//
// HTTP/1.1 without TLS, over TCP and UNIX sockets, runs on epoll loops of its
// own (Linux), one per thread, with prebuilt request bytes; everything else
// (TLS, HTTP/2, HTTP/3, WebSocket) runs a goroutine per connection and costs
// more, which the result says (see [Result].CPU).
//
// A load is a [Config], [Run] carries it out, and a [Result] is what it found.
// Inside, in the order of a request's life: arrivals.go says when it is due, a
// loop (loop_linux.go) finds a connection for it, a step (step.go) writes it with
// what the connection's visitor knows (visitor.go), the connection (conn_linux.go)
// sends it and reads the answer (head.go, answer.go), the step says whether that is
// right, a tally counts it, and run.go adds up what was counted while the window was
// open. slow.go and stream.go do the same with goroutines.
package load

import (
	"crypto/tls"
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
)

// A Stage leads to a rate in a time.
type Stage struct {
	Rate   float64 // requests/s at its end
	Length time.Duration
}

// Config is one load. Its zero values are good but for the URL.
type Config struct {
	// URL is the target: http://host:port/path?query, https:, ws:, wss:, or
	// unix:/path/of/socket (then Paths say what to ask for; "/" without).
	URL string
	// Paths are origin-form targets, asked for in turn by each connection,
	// which begin at different ones. Empty: the path of the URL.
	Paths []string
	// Request is what is the same for each of the Paths: method, header, body.
	Request Step
	// Steps replace Paths and Request: each connection goes through them from the
	// first to the last, again and again, each time as a new visitor. After an answer
	// that is not right it begins anew.
	Steps []Step
	// Header is sent with each request. Host in it replaces the URL's.
	Header http.Header
	// Data are values for requests: another row for each, or for each time that a
	// connection goes through the Steps.
	Data *Data
	// Expect says what a right answer is, as in [Step]. Without, all are right
	// that are complete.
	Expect []string
	// Alike expects answers of one path to have the status and the length of the
	// path's first one.
	Alike bool
	// Cookies has each connection keep the cookies that it is given, as long as it is
	// the same visitor.
	Cookies bool
	// Unique asks for another URL each time, so that no cache has the answer: a
	// parameter "n" with a number of its own is added to each path.
	Unique bool
	// OneShot opens a connection for each request, which says Connection: close in
	// HTTP/1.1.
	OneShot bool
	// ConnectTo is the host:port to connect to; empty: that of the URL, from which
	// Host and the name in TLS come in any case.
	ConnectTo string
	// TLS has certificates of the client, the authorities to trust, and the name of
	// the server, if that is not the URL's host. nil: the system's.
	TLS *tls.Config
	// Protocol is how to speak; Auto goes by the URL.
	Protocol Protocol

	Connections int // open at once; 0: 50
	Threads     int // epoll loops; 0: one, or as many as it takes for more than 10,000 connections
	Streams     int // requests in flight on one HTTP/2 or HTTP/3 connection; 0: 1
	Sources     int // source addresses 127.0.0.2… for targets on 127.0.0.1; 0: as many as the connections need

	Arrival Arrival
	Rate    float64 // requests/s over all connections, for open loops
	// Stages change the rate of an open loop, beginning with the window: each
	// leads linearly from the rate before it to its own.
	Stages []Stage

	Warmup   time.Duration // load before the window in which is measured
	Duration time.Duration // of the window; 0: 10 s
	Requests uint64        // sent in the window, which ends when all of them have; 0: no such end
	Timeout  time.Duration // an answer that takes longer is an error, and its connection is opened anew; 0: 10 s

	Insecure bool   // accept any certificate
	Message  []byte // of WebSocket: sent, and awaited back; nil: "Hello, echod!\n"

	// Window is called when the window opens (true), with the load running,
	// and when it closes (false), before connections close: the moments to
	// read the target's counters.
	Window func(open bool)
	// Progress is called some four times a second while the load runs.
	Progress func(Tick)
}
