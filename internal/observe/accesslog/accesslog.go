// Package accesslog writes one line per request without slowing it down.
//
// A request formats its line straight into a buffer in memory and goes on; one
// goroutine carries the buffers to the file. Nobody ever waits for the disk:
// while the buffers are full, lines are dropped and counted.
//
// Every line is exactly one line of at most maxLine bytes, whatever a client
// sends: see [Options.Format] for how each format escapes. Lines of one
// connection (one [Record.Shard]) are in the order of its answers. Across
// connections a line may come up to flushDelay before or after its neighbours
// in time; who needs a strict order sorts by the time of the line.
package accesslog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/observe/meter"
	"millrace/internal/observe/redact"
)

const (
	// shards is how many requests can write at the same moment. A power of
	// two; a line takes well under a microsecond, so few are enough.
	shards    = 4
	shardMask = shards - 1

	// shardBytes is the room of one shard: with four shards some 5000 usual
	// lines, a twentieth of a second at 100 000 requests a second.
	shardBytes = 256 << 10

	// flushDelay is how long a line may wait in memory when there are few.
	flushDelay = 200 * time.Millisecond

	// wellAfter is how long nothing may fail until it is said that all is well again.
	wellAfter = 10 * time.Second

	// closeTimeout bounds how long Close waits for a file that takes nothing
	// (a pipe that nobody reads).
	closeTimeout = 5 * time.Second
)

// Record is one request. Strings are only read during Write: the fast lane
// passes views into its read buffer.
type Record struct {
	Time                  time.Time // when the request came
	Remote                string    // client address without port; "-" on a UNIX socket
	Host                  string
	Method, Target, Proto string
	Referer, UserAgent    string
	ID                    string // of the request; empty where it has none
	Status                int
	Bytes                 int64 // body bytes sent
	Duration              time.Duration
	Fast                  bool // answered by the fast lane
	Through               bool // answered without net/http, by the job
	Secure                bool // over TLS; no line has it
	// Shard is any number that stays the same for a connection and differs
	// between connections: it keeps processors out of each other's way.
	Shard uint32
}

// Log is an open access log. A nil *Log is off: its methods do nothing.
type Log struct {
	format  format
	fields  []field // of a JSON line; nil: the usual ones
	sample  sample
	options Options
	dropped *meter.Counter
	report  func(err error, lost uint64)
	recent  *Recent // nil: nobody looks

	shard [shards]shard

	some chan struct{} // a shard has its first line
	full chan struct{} // a shard is half full, or the file changed: do not wait
	quit chan struct{} // closed by Close
	done chan struct{} // closed by the writer when everything is written

	next      atomic.Pointer[io.WriteCloser] // what Reopen opened and the writer has not taken yet
	reopening sync.Mutex
	closing   sync.Once

	out sink // the writer's alone
}

// shard holds lines that wait for the writer.
type shard struct {
	mu     sync.Mutex
	buf    []byte // capacity shardBytes; whole lines
	masked []byte // of the line that is being written
	clock  clock
	closed bool
	_      [64]byte // keep the next shard's lock off this cache line
}

// Open opens an access log and starts its writer, which ends with Close. When
// the format is off, it returns nil and no error. An unknown format and a file
// that cannot be opened are errors; a daemon that is not there is not.
//
// Lines that could not be written are counted in dropped. report is told when writing
// begins to fail, and with a nil error when it works again, having lost so many lines;
// not more often however often it fails in between. It is called from goroutines of the
// log. Either may be nil.
func Open(o Options, dropped *meter.Counter, report func(err error, lost uint64)) (*Log, error) {
	format, err := parseFormat(o.Format)
	if err != nil || format == off {
		return nil, err
	}
	fields, err := parseFields(o.Fields)
	if err != nil {
		return nil, fmt.Errorf("log.fields: %w", err)
	}
	if dropped == nil {
		dropped = new(meter.Counter)
	}
	if report == nil {
		report = func(error, uint64) {}
	}
	to, err := o.target(func(err error) { report(err, 0) })
	if err != nil {
		return nil, err
	}
	l := &Log{
		format: format, fields: fields, sample: newSample(o), options: o, dropped: dropped, report: report,
		some: make(chan struct{}, 1), full: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
		out: sink{to: to, empty: make([]byte, 0, shardBytes)},
	}
	for i := range l.shard {
		l.shard[i].buf = make([]byte, 0, shardBytes)
	}
	go l.writer() // Close waits for it
	return l, nil
}

// Reports is what [Open] takes to say in the server's own messages what goes wrong.
func Reports(to *slog.Logger) func(err error, lost uint64) {
	return func(err error, lost uint64) {
		if err != nil {
			to.Warn("the access log cannot be written as it should; lines that are lost are counted in millrace_log_dropped_total", "err", err)
			return
		}
		to.Info("the access log is written again", "lost", lost)
	}
}

// Write adds a line. It neither allocates nor waits for the disk; while the
// buffers are full, or after Close, the line is dropped and counted.
func (l *Log) Write(r *Record) {
	if l == nil {
		return
	}
	if l.recent != nil {
		l.recent.take(r)
	}
	if l.format == off || !l.sample.takes(r.Time, r.Status, r.Duration) {
		return
	}
	s := &l.shard[r.Shard&shardMask]
	s.mu.Lock()
	before := len(s.buf)
	if s.closed || before > shardBytes-maxLine {
		s.mu.Unlock()
		l.dropped.Add(r.Shard, 1)
		return
	}
	if redact.Needed(r.Target) || redact.Needed(r.Referer) {
		clean := *r
		s.mask(&clean)
		r = &clean
	}
	s.buf = appendLine(s.buf, l.format, l.fields, r, &s.clock)
	after := len(s.buf)
	s.mu.Unlock()

	if before == 0 {
		wake(l.some)
	}
	if before < shardBytes/2 && after >= shardBytes/2 {
		wake(l.full)
	}
}

// maxMasked is how much of a field is read for secrets: what lies behind it
// could hardly be in the line.
const maxMasked = 4 * maxTarget

// mask leaves tokens and passwords out of a record. What it makes of the
// strings is overwritten by the next record's.
func (s *shard) mask(r *Record) {
	cut := func(s string) string { return s[:min(len(s), maxMasked)] }
	b := redact.AppendTarget(s.masked[:0], cut(r.Target))
	n := len(b)
	b = redact.AppendTarget(b, cut(r.Referer))
	s.masked = b
	r.Target = unsafe.String(unsafe.SliceData(b), n)
	r.Referer = unsafe.String(unsafe.SliceData(b[n:]), len(b)-n)
}

// Reopen opens the log's path again, as log rotation asks for after it moved
// the file away: a line written after Reopen returned goes to the new file.
// When that fails, the old file stays in use. The standard output stays as it is.
func (l *Log) Reopen() error {
	if l == nil || l.format == off || !l.options.reopens() {
		return nil
	}
	l.reopening.Lock()
	defer l.reopening.Unlock()
	select {
	case <-l.quit:
		return errors.New("reopening the access log: it is closed")
	default:
	}
	to, err := l.options.target(func(err error) { l.report(err, 0) })
	if err != nil {
		return err
	}
	if unused := l.next.Swap(&to); unused != nil {
		return (*unused).Close()
	}
	wake(l.full)
	return nil
}

// Close writes what waits and closes the file. A file that takes nothing for
// closeTimeout is left behind with an error; what was not written by then is
// lost. It is an error, too, if the last lines could not be written.
func (l *Log) Close() error {
	if l == nil || l.format == off {
		return nil
	}
	l.closing.Do(func() {
		for i := range l.shard {
			s := &l.shard[i]
			s.mu.Lock()
			s.closed = true
			s.mu.Unlock()
		}
		l.reopening.Lock()
		close(l.quit)
		l.reopening.Unlock()
	})
	select {
	case <-l.done:
		return l.out.last
	case <-time.After(closeTimeout):
		return fmt.Errorf("closing the access log: it took nothing for %v", closeTimeout)
	}
}

// wake sends a token unless one waits already.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
