// Package meter counts what the hot path does without locks and without
// allocations. It knows no exposition format: internal/admin reads it.
package meter

import "time"

// Stub: real implementation follows with the same API.

// Counter is a sharded counter; the zero value is ready. shard is any number
// that differs between goroutines on the hot path (a connection's number).
type Counter struct{ _ int }

func (c *Counter) Add(shard uint32, n uint64) {}
func (c *Counter) Load() uint64               { return 0 }

// Histogram of durations, log-linear, sharded; the zero value is ready.
type Histogram struct{ _ int }

func (h *Histogram) Observe(shard uint32, d time.Duration) {}

// Traffic is what one job answered in one lane.
type Traffic struct{ _ int }

// Observe counts one answer: its status code, the body bytes and how long it took.
func (t *Traffic) Observe(shard uint32, code int, bytes int64, d time.Duration) {}

// Job holds the counters of one job ("static", "redirect", …).
type Job struct {
	Name       string
	Fast, Slow Traffic
}

// Sent counts body bytes by the path they took to the socket.
type Sent struct {
	Sendfile Counter // by the kernel, from the page cache
	Writev   Counter // straight from finished bytes in memory
	Copied   Counter // through a buffer (TLS, net/http's writer, a pipe)
}

// Meters is all that one process counts.
type Meters struct {
	Sent        Sent
	LogDropped  Counter
	Connections Gauge // open client connections
}

func New() *Meters                     { return &Meters{} }
func (m *Meters) Job(name string) *Job { return &Job{Name: name} }

// Gauge is a number that goes up and down.
type Gauge struct{ _ int }

func (g *Gauge) Add(n int64) {}
