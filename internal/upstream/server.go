package upstream

import (
	"log/slog"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// latencyDecay is after which time an observation of latency has lost
	// 63 % of its weight.
	latencyDecay = 10 * time.Second
	// failureLatency is the least that a failure counts as, so that a server
	// which refuses at once does not look like the fastest.
	failureLatency = time.Second
	// maxEjections bounds how often the time of an ejection doubles:
	// 5s to 160s, after which a repaired server should not be kept waiting.
	maxEjections = 5
)

// outcome is what a try says about its server, for the server's record.
type outcome int

const (
	undecided outcome = iota // it was given up, or never sent
	succeeded
	failed    // after it was sent, or some of it
	unreached // before that: no connection, or no handshake of TLS
)

// server is one address with its connections and its record.
type server struct {
	address
	index     int
	name      string
	hostField string // what Host is set to; "": the client's
	seed      uint64 // of the rendezvous hash
	weight    float64
	token     string // in cookies
	way       *connector
	client    *client           // keeps connections of HTTP/1.1; nil: h2c has none
	speaks    atomic.Uint32     // what it spoke last, by which it is asked
	transport http.RoundTripper // net/http's, for HTTP/2; keeps connections
	single    http.RoundTripper // the same; makes a new one for each request
	distrust  distrust
	options   *Options

	// Guarded by Pool.mu.
	running, streams int
	requests, fails  uint64
	latency          ewma
	breaker          breaker
	consecutive      int           // failures in a row
	ejectedUntil     time.Duration // later than now: ejected
	ejections        int           // in a row, at most maxEjections
	down             bool          // its probes failed
	drained          bool          // the operator wants it to get no requests
	streak           int           // probes in a row that contradict down
	back             time.Duration // since when it gets requests again; 0: it always did
	credit           float64       // of weightedRoundRobin
}

func newServer(i int, a address, o Options, way *connector, log *slog.Logger, started time.Time) *server {
	s := &server{
		distrust: distrust{since: time.Now(), log: log},
		address:  a, index: i, name: a.text, way: way, options: &o,
		seed:    mix(fnv1a(a.text)),
		weight:  1,
		token:   tokenOf(a.text),
		breaker: newBreaker(o.Breaker),
	}
	if i < len(o.Weights) {
		s.weight = float64(o.Weights[i])
	}
	single := newTransport(way, o, s.noteUnsolicited)
	single.DisableKeepAlives = true
	s.transport, s.single = newTransport(way, o, s.noteUnsolicited), single
	if a.scheme != "h2c" {
		s.client = newClient(s, o, started)
	}
	switch o.Host {
	case "client":
	case "upstream":
		s.hostField = a.host
	default:
		s.hostField = o.Host
	}
	return s
}

// change is a change of a server's state that is logged.
type change int

const (
	unchanged change = iota
	ejected
	opened
	closed
)

// observe records a result. probe says that the request was the one that a
// half-open breaker let pass; alone that there is no other server.
func (s *server) observe(now time.Duration, o outcome, probe, alone bool) change {
	forBreaker := o
	if alone && o == failed {
		forBreaker = succeeded // it can be reached, so requests for anything else may pass
	}
	broke := s.breaker.result(now, probe, forBreaker)
	if broke && forBreaker == succeeded {
		s.back = now
	}
	switch o {
	case succeeded:
		s.consecutive = 0
		if last := s.ejectTime(s.ejections - 1); s.ejections > 0 && now > s.ejectedUntil+last {
			s.ejections = 0 // good for as long as it was out
		}
		if broke {
			return closed
		}
	case failed, unreached:
		s.fails++
		s.consecutive++
		switch {
		case broke && forBreaker == succeeded:
			return closed
		case broke:
			return opened
		}
		if !alone && s.consecutive >= s.options.Health.Failures && now >= s.ejectedUntil {
			s.ejectedUntil = now + s.ejectTime(s.ejections)
			s.ejections = min(s.ejections+1, maxEjections)
			s.consecutive = 0
			return ejected
		}
	}
	return unchanged
}

func (s *server) ejectTime(ejections int) time.Duration {
	return s.options.Health.Eject << max(ejections, 0)
}

// ewma is a moving average of latency that jumps up to a peak at once and
// decays with time, not with the number of requests: "peak EWMA", from the load
// balancers of Twitter's Finagle (com.twitter.finagle.loadbalancer.p2c.P2CPeakEwma),
// which learn of a slow server before the average would show it.
type ewma struct {
	nanos float64
	at    time.Duration
}

func (e *ewma) observe(now, latency time.Duration) {
	l := float64(latency)
	if l >= e.nanos {
		e.nanos = l
	} else {
		w := e.weight(now)
		e.nanos = e.nanos*w + l*(1-w)
	}
	e.at = max(e.at, now)
}

// value is the average, decayed until now: a server that has had no requests for a
// long time is tried again.
func (e *ewma) value(now time.Duration) float64 { return e.nanos * e.weight(now) }

func (e *ewma) weight(now time.Duration) float64 {
	if now <= e.at {
		return 1
	}
	return math.Exp(-float64(now-e.at) / float64(latencyDecay))
}
