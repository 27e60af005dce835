package load

import (
	"net/http"
	"time"
)

// A Result is what one load found in its window.
type Result struct {
	Protocol Protocol
	Path     string        // "epoll" or "goroutines": which of the two generators ran
	Took     time.Duration // of the window
	Requests uint64        // answered with any status, completely
	Bytes    uint64        // received, heads included
	Body     uint64        // bytes of bodies
	Status   map[int]uint64
	Errors   Errors

	// Latency is per answered request: from the intended send time in an open
	// loop (so that a stalled target is charged for what waited, "coordinated
	// omission"), from the write in a closed one. Service is from the write in
	// both.
	Latency Histogram
	Service Histogram
	// Connect is how long connections took to open (with TLS and upgrade).
	Connect Histogram

	InFlight float64 // mean number of requests that were on their way
	Late     uint64  // open loop: sends more than LateAfter behind their time
	Dropped  uint64  // open loop: due in the window and never sent

	CPU          time.Duration // of the generator's threads, user and system
	CPUUser      time.Duration
	Instructions uint64 // user, of the generator's threads; 0 where there are no counters

	Answers []Answer // what each path answered, by path in the order of Config.Paths
	Ticks   []Tick
}

// LateAfter is how far behind its time a send may be before it counts as late.
const LateAfter = time.Millisecond

// Errors counts what was not answered. None of them is in a histogram.
type Errors struct {
	Connect  uint64 `json:"connect"`         // refused, unreachable, handshake failed
	Closed   uint64 `json:"closed"`          // the target closed in mid-answer, or reset
	Timeout  uint64 `json:"timeout"`         // no answer within Config.Timeout
	Protocol uint64 `json:"protocol"`        // the answer is not what the protocol allows
	Changed  uint64 `json:"changed"`         // another status or length than this path's first answer
	First    string `json:"first,omitempty"` // the first error, in words
}

// Sum is how many there were.
func (e *Errors) Sum() uint64 { return e.Connect + e.Closed + e.Timeout + e.Protocol + e.Changed }

// An Answer is the first one a path gave, for comparing arms.
type Answer struct {
	Path   string
	Status int
	Length int64  // of the body
	Hash   uint64 // FNV-1a of the body; of a body longer than 16 MB, its first 16 MB
	Head   http.Header
	Bytes  int // head and body on the wire; 0 where the protocol hides it
}
