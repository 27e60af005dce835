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
	Requests uint64        // answered with any status, completely: the sum of Status
	Bytes    uint64        // received, heads included
	Body     uint64        // bytes of bodies
	Status   map[int]uint64
	Errors   Errors

	// Latency is per answered request: from the intended send time in an open
	// loop (so that a stalled target is charged for what waited, "coordinated
	// omission"), from the write in a closed one. Service is from the write in
	// both. Answers that are Errors.Unexpected are in neither.
	Latency Histogram
	Service Histogram
	// Connect is how long connections took to open (with TLS and upgrade), all
	// of the run: most open before the window does.
	Connect Histogram

	// InFlight is the mean over time of the number of requests between their
	// write and the end of their answer. It is not worked out from the
	// histograms, so Little's law can be held against it.
	InFlight float64
	// Rest is the time that requests were in flight within the window and that Service
	// does not say: of those that were lost, not right, or under way at its end. With
	// it the law holds exactly: InFlight × Took is the sum of Service and Rest.
	Rest time.Duration
	// Varied counts the answers with another status or length than their path's first:
	// a fact about the target, and no error unless Config.Alike is set.
	Varied uint64
	// Non2xx counts those answers whose status is none of 200 to 299, where none was
	// expected; the 101 of a WebSocket is not among them.
	Non2xx     uint64
	Unanswered uint64 // on their way when the window closed: neither answers nor errors
	// Late counts the sends of an open loop that were more than LateAfter
	// behind the moment at which they could have been made: the time they were
	// due, or the time a connection came free if that was later. So it counts
	// what the generator was too slow for; what waited because all connections
	// were busy is the target's doing, and in Latency.
	Late uint64
	// Dropped counts what was due in the window of an open loop and never
	// sent: it waited for a connection until the window closed, or for longer
	// than Config.Timeout.
	Dropped uint64

	// CPU is that of the generator's threads, user and system: for "epoll" of
	// its loops, for "goroutines" of the whole process.
	CPU          time.Duration
	CPUUser      time.Duration
	Instructions uint64 // user, of the generator's threads; 0 where there are no counters

	// Interval is the mean time between the requests of one connection (or
	// stream) of a closed loop, and Holes are the stretches without any answer
	// that are far longer. Both are empty in open loops, whose latency counts
	// what waited.
	Interval time.Duration
	Holes    []Hole

	Steps   []StepResult // of a scenario, in their order
	Answers []Answer     // what each path answered, by path in the order of Config.Paths
	Ticks   []Tick
}

// LateAfter is how far behind its time a send may be before it counts as late.
const LateAfter = time.Millisecond

// Errors counts what went wrong in the window. None of them is in a histogram,
// and none but Unexpected in Result.Requests.
type Errors struct {
	Connect    uint64 `json:"connect"`         // refused, unreachable, handshake failed; those before the window too
	Closed     uint64 `json:"closed"`          // the target closed in mid-answer, or reset
	Timeout    uint64 `json:"timeout"`         // no answer within Config.Timeout
	Protocol   uint64 `json:"protocol"`        // the answer is not what the protocol allows
	Unexpected uint64 `json:"unexpected"`      // not what Config.Expect, Alike or a step says
	First      string `json:"first,omitempty"` // the first error, in words
}

// Sum is how many there were.
func (e *Errors) Sum() uint64 { return e.Connect + e.Closed + e.Timeout + e.Protocol + e.Unexpected }

// Failed is how many of all requests that ended were not answered, or not as expected,
// or with a status other than 2xx where none was expected.
func (r *Result) Failed() (failed, all uint64) {
	lost := r.Errors.Closed + r.Errors.Timeout + r.Errors.Protocol
	return r.Non2xx + r.Errors.Unexpected + lost, r.Requests + lost
}

// An Answer is the first one a path gave, for comparing arms.
type Answer struct {
	Path   string
	Status int
	Length int64  // of the body
	Hash   uint64 // FNV-1a of the body; of a body longer than 16 MB, its first 16 MB
	Head   http.Header
	Bytes  int  // head and body on the wire; 0 where the protocol hides it
	Varies bool // a later first answer had another body: it is never the same for long
}

// A StepResult is how one step of a scenario did. Latency is from the write.
type StepResult struct {
	Name             string
	Requests, Failed uint64
	Latency          Histogram
}

// A Tick is what happened since the one before.
type Tick struct {
	At       time.Duration // since the window opened; negative during warm-up
	Length   time.Duration // of the tick
	Requests uint64        // answered
	Bytes    uint64        // of answers, heads included
	Errors   Errors
	Rate     float64 // requests/s
	Mean     time.Duration
	P50      time.Duration
	P90      time.Duration
	P99      time.Duration
	Max      time.Duration
	CPU      time.Duration // of the generator
	Open     int           // connections
}
