// Package queue decides when a conversion runs: never more at once than there
// are workers and memory for, those that a client waits for first, each only
// once however many ask, and none at all when too many wait. It learns what a
// conversion costs on this machine.
package queue

import (
	"context"
	"errors"
	"time"
)

// The errors of jobs that did not run.
var (
	ErrFull   = errors.New("too many conversions wait")
	ErrTooBig = errors.New("the conversion needs more memory than there is a budget for")
	ErrClosed = errors.New("the queue is closed")
)

// Options of a Queue. Zero values are the defaults.
type Options struct {
	Workers int   // conversions at once; default the number of CPUs
	Memory  int64 // predicted bytes at once; default 512 MiB
	Depth   int   // jobs that wait; default 1000
	// Idle is how long nothing urgent must have happened before Idle jobs
	// run. Default 5 s.
	Idle time.Duration
}

// Priority of a job.
type Priority uint8

// Priorities: a client waits; nobody waits, but a visitor has asked for it;
// improvements that are made when there is nothing else to do.
const (
	Urgent Priority = iota
	Behind
	Idle
)

// Class is what jobs of a like cost share, such as "jpeg>webp fast tools".
type Class string

// Job is one conversion.
type Job struct {
	Key        string // the same key is the same work
	Class      Class
	Megapixels float64
	Memory     int64 // predicted bytes at the peak
	Priority   Priority
	// Run does it. It returns the wall time that counts for the prediction
	// (0: none), and must end soon after ctx. urgent says whether a client
	// waits by now.
	Run func(ctx context.Context, urgent bool) (cost time.Duration, err error)
}

// Queue runs jobs.
type Queue struct{}

// New starts the workers, which Close waits for.
func New(o Options) *Queue { panic("not built") }

// Ticket is one caller's share in a job.
type Ticket struct{}

// Done is closed when the job has ended.
func (t *Ticket) Done() <-chan struct{} { panic("not built") }

// Err is the job's error, valid after Done.
func (t *Ticket) Err() error { panic("not built") }

// Submit adds a job, or joins the one with its key: which becomes more urgent
// if this one is. ErrFull, ErrTooBig or ErrClosed when it will not run. A full
// queue gives up an Idle job for a Behind one, and that for an Urgent one; the
// ticket of what was given up ends with ErrFull.
func (q *Queue) Submit(j Job) (*Ticket, error) { panic("not built") }

// Predict is how long it would take from now until such a job has ended: what
// runs and what waits before it, and its own cost. ok is false while nothing is
// known of its class.
func (q *Queue) Predict(j Job) (d time.Duration, ok bool) { panic("not built") }

// Cost is what is known of a class: milliseconds per megapixel, and of how many
// jobs. The newest count most.
func (q *Queue) Cost(c Class) (ms float64, jobs int) { panic("not built") }

// Stats of the queue.
type Stats struct {
	Running, Waiting int
	Memory           int64 // predicted bytes of what runs
	Done, Failed     uint64
	Shed, Joined     uint64
	Costs            map[Class]float64 // milliseconds per megapixel
}

// Stats may be called at any time.
func (q *Queue) Stats() Stats { panic("not built") }

// Close refuses new jobs, ends the context of those that run, and waits for
// them; those that wait end with ErrClosed.
func (q *Queue) Close() error { panic("not built") }
