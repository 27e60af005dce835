// Package meter counts what the hot path does without locks and without
// allocations. It knows no exposition format: internal/ops/admin reads it.
//
// Everything that is counted per request is sharded: a caller passes a number
// that differs between the goroutines on the hot path (a connection's number),
// so that two processors rarely write to the same cache line. Reading adds the
// shards up; it is not a snapshot of one moment across counters, but every
// single figure only ever grows.
package meter

import (
	"sync/atomic"
)

const (
	// shards is how many processors can count without disturbing each other.
	// A power of two. Eight is plenty for the servers that this program is
	// for and keeps the memory of a Traffic below 20 KiB.
	shards    = 8
	shardMask = shards - 1

	// cacheLine is the distance that keeps two words from sharing a line.
	cacheLine = 64
)

// Counter is a sharded counter. The zero value is ready.
type Counter struct {
	shard [shards]struct {
		n atomic.Uint64
		_ [cacheLine - 8]byte
	}
}

// Add counts n more. shard is any number that differs between goroutines on
// the hot path (a connection's number).
func (c *Counter) Add(shard uint32, n uint64) { c.shard[shard&shardMask].n.Add(n) }

// Load is the sum of all that was added.
func (c *Counter) Load() uint64 {
	var sum uint64
	for i := range c.shard {
		sum += c.shard[i].n.Load()
	}
	return sum
}

// Gauge is a number that goes up and down. The zero value is ready. It is not
// sharded: it is meant for what happens per connection or rarer.
type Gauge struct {
	n atomic.Int64
	_ [cacheLine - 8]byte
}

// Add adds n, which may be negative.
func (g *Gauge) Add(n int64) { g.n.Add(n) }

// Set replaces the value.
func (g *Gauge) Set(n int64) { g.n.Store(n) }

// Load is the current value.
func (g *Gauge) Load() int64 { return g.n.Load() }

// Job holds the counters of one job ("static", "redirect", …), for one route or
// for all that no route has.
type Job struct {
	Name        string
	Site, Route string  // empty: of no route
	Fast, Slow  Traffic // what the fast lane answered; what net/http answered
	Through     Traffic // what the job answered without net/http
	// SlowFrom is how long one takes that is kept as a slow one (package slow), in
	// nanoseconds; 0: none is.
	SlowFrom atomic.Int64
}

// Sent counts body bytes by the path they took to the socket.
type Sent struct {
	Sendfile Counter // by the kernel, from the page cache
	Writev   Counter // straight from finished bytes in memory
	Copied   Counter // through a buffer (TLS, net/http's writer, a pipe)
}

// HTTP2Refused counts HTTP/2 connections that the fast lane cut off, by the reason.
type HTTP2Refused struct {
	Malformed Counter // frames or header blocks that break the protocol
	Headers   Counter // header blocks too long or in too many frames
	Idle      Counter // too many frames that ask for nothing
	Resets    Counter // too many streams that were reset
	Stalled   Counter // no window for the connection's answers
	TooMany   Counter // the most streams, of all that waited for their clients
}

// TLS counts handshakes on TCP; a connection over HTTP/3 is one with TLS 1.3.
type TLS struct {
	V12, V13 Counter // that succeeded, by the version
	Resumed  Counter // those of them that continued an earlier session
	Failed   Counter
}

// Tracing counts the requests whose spans were to be sent to a collector.
type Tracing struct {
	Sent     Counter // taken by the collector
	Dropped  Counter // there was no room: the collector was too slow, or down
	Failed   Counter // given up: the collector was down for too long, or refused them
	Rejected Counter // spans, not requests, that the collector took and threw away
}

// Refused counts requests that a gate did not let pass.
type Refused struct {
	Address Counter // the address may not ask
	Rate    Counter // it had asked too often
	Caught  Counter // it had asked for a trap
	Proof   Counter // it had to prove first that it is no crawler
	TooMany Counter // too many streams waited for their clients
}

// HTTP3Refused counts what clients of HTTP/3 were refused, by the reason. Headers
// are requests, the others connections.
type HTTP3Refused struct {
	Headers  Counter // a header that had not come within the header timeout
	Resets   Counter // too many streams that were reset
	Requests Counter // too many requests that were being answered, those whose client had gone among them
	TooMany  Counter // the most streams, of all that waited for their clients
}

// Meters is all that one process counts. Make it with [New]; its fields are
// counted into directly.
type Meters struct {
	Sent       Sent
	LogDropped Counter // access log lines that were not written

	// Clients are all that are connected: Connections, WebSockets, browsers that watch the
	// dashboard.
	Clients Presence

	Connections Gauge   // open client connections
	Accepted    Counter // client connections since the start
	Rejected    Counter // connections closed at once: limits, failed handshakes

	Tracing Tracing

	// The fast lane's table. What it answered is in every [Job]'s Fast.
	LaneEntries Gauge   // answers held
	LaneBytes   Gauge   // bytes held by them
	LaneEvicted Counter // answers given up for want of room
	LaneOffers  Counter // answers offered by the jobs
	LaneVoided  Counter // answers given up because what they were made of changed

	TLS          TLS
	HTTP2Refused HTTP2Refused
	Refused      Refused
	Trapped      Counter // addresses that were caught by a trap

	HTTP3Connections Gauge   // open ones, of Connections
	HTTP3Requests    Counter // requests over HTTP/3
	HTTP3Refused     HTTP3Refused

	Unmirrored      Counter // requests of which a mirror got no copy, as too many were under way
	UpstreamUnasked Counter // connections to upstreams that brought what nobody had asked for
	UpstreamLookups Counter // look-ups of their names that failed while they had addresses
	BufferedMemory  Gauge   // bytes of bodies that proxies have buffered
	BufferedFiles   Gauge   // the same, in temporary files
	BufferedStreams Gauge   // about what streams take that wait for their clients, in bytes
	Streams         Gauge   // open streams of HTTP/2 and HTTP/3

	ConfigReloads        Counter // reloads that took effect
	ConfigReloadFailures Counter // reloads that failed and left the old config serving
	ConfigLoaded         Gauge   // when the config in use took effect, in seconds since 1970

	jobs   registry[Job]
	routes registry[Job]
	caches registry[Cache]

	webSockets registry[WebSocket]
	images     registry[Images]
	plugins    registry[Plugin]
	stores     registry[Store]
}

// New makes an empty set of meters.
func New() *Meters { return &Meters{} }
