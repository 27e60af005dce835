// Package upstream is the way to the servers behind this one: an
// http.RoundTripper over one or several of them, with connection pools,
// balancing, health, retries within a budget, a circuit breaker and a bounded
// queue that keeps a slow server from being run over.
package upstream

import (
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Options of an upstream. The zero value but To is a good default.
type Options struct {
	// To are the addresses: http://host:port, https://…, h2c://… for HTTP/2
	// without TLS, unix:/path. A path is put before the request's. Required.
	To []string `yaml:"to"`
	// Balance is round_robin, least_connections, two_choices (power of two with
	// moving averages of latency) or hash (of the cache key or the URL). Default two_choices.
	Balance string `yaml:"balance"`
	// … (H5 completes: health, retries, breaker, concurrency, timeouts, tls)
	// Host is the Host header: "client" passes the client's on, "upstream" is the address's,
	// anything else is sent as it is. Default upstream.
	Host string `yaml:"host"`
	// Concurrency is the most requests at once to each address; 0: 256.
	Concurrency int `yaml:"concurrency"`
	// Queue is how many more may wait, each at most QueueTimeout. Default 1024, 5s.
	Queue        int           `yaml:"queue"`
	QueueTimeout time.Duration `yaml:"queue_timeout"`
	// ConnectTimeout, HeaderTimeout (from the request's end to the response's
	// header) and BodyTimeout (a body without progress). Default 3s, 30s, 30s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	HeaderTimeout  time.Duration `yaml:"header_timeout"`
	BodyTimeout    time.Duration `yaml:"body_timeout"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { panic("not built") }

// The errors, possibly wrapped; Status says what a client gets to see.
var (
	ErrUnreachable = errors.New("the upstream cannot be reached")
	ErrTimeout     = errors.New("the upstream is too slow")
	ErrBusy        = errors.New("too many requests wait for the upstream")
	ErrUnhealthy   = errors.New("no upstream is healthy")
	ErrProtocol    = errors.New("the upstream breaks the protocol")
)

// Status is the status for an error of RoundTrip: 502, 503 or 504.
func Status(err error) int { panic("not built") }

// Pool is the http.RoundTripper. It must be closed.
type Pool struct{}

// New starts the health checks, if any; no request is made before the first.
func New(o Options, errorLog *slog.Logger) (*Pool, error) { panic("not built") }

// RoundTrip sends r, of which the URL's path and query, the header and body count;
// scheme and host are chosen here, and r.Host by Options.Host.
// The response's body ends with an error wrapping ErrTimeout or ErrProtocol when it is not whole.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) { panic("not built") }

// Server is one address, as it is now.
type Server struct {
	Address         string
	Healthy         bool
	Open            bool // circuit breaker open: no requests now
	Running         int
	Latency         time.Duration // moving average to the header
	Requests, Fails uint64
}

// Servers lists the addresses in their order.
func (p *Pool) Servers() []Server { panic("not built") }

// Waiting is how many requests are queued.
func (p *Pool) Waiting() int { panic("not built") }

// Retried counts repeated tries.
func (p *Pool) Retried() uint64 { panic("not built") }

// Close ends the health checks and idle connections; running requests go on.
func (p *Pool) Close() error { panic("not built") }
