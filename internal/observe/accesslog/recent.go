package accesslog

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"millrace/internal/observe/redact"
)

const (
	// mostTaken is how many requests a second Recent looks at, of the usual ones and
	// of the notable ones: what it costs does not grow with the traffic. Below that
	// it sees all of them.
	mostTaken = 256
	// maxShift is the coarsest sample: one of 65,536.
	maxShift = 16

	// maxTail is how many requests are remembered, maxSlow how many of the slowest.
	maxTail = 512
	maxSlow = 20
	// slowFrom is how long a request takes that is looked at even if there are many.
	slowFrom = 500 * time.Millisecond

	// The most bytes of an Entry's fields.
	maxEntryTarget = 512
	maxEntryHost   = 128
)

// Recent remembers what was asked for lately: the last requests, and which paths
// and clients occur most. It is for a person who looks at the running server.
//
// Of many requests it takes a sample, by a hash of the time at which they came: no
// counter is shared between processors, and a request that is not in the sample
// costs one atomic load and one multiplication. For one that is, a lock is tried,
// never waited for. Errors and slow requests have a sample of their own, so that
// they are not lost among others.
//
// A nil *Recent remembers nothing. Make it with [NewRecent].
type Recent struct {
	usual, notable sampler

	mu      sync.Mutex
	ring    [maxTail]slot
	next    int // where the next one goes
	slowest []Entry
	name    []byte // scratch

	paths, missing, clients, protocols sketch
}

// NewRecent returns one that has seen nothing yet.
func NewRecent() *Recent { return new(Recent) }

// sampler says which requests are looked at. All but shift is under Recent.mu.
type sampler struct {
	shift  atomic.Uint32 // one of 2^shift
	second int64
	taken  int
}

// takes reports whether a request that came at a time is in the sample. The same
// time is in it, or not, whenever it is asked for: lines of a file that takes long
// to send are kept at its beginning and written at its end.
func (s *sampler) takes(began time.Time) bool {
	shift := s.shift.Load()
	return shift == 0 || spread(began)>>(64-shift) == 0
}

// took counts one that was looked at, and adapts the sample to how many there are.
func (s *sampler) took(at time.Time) {
	shift := s.shift.Load()
	if second := at.Unix(); second != s.second {
		if s.taken < mostTaken/4 && shift > 0 {
			s.shift.Store(shift - 1)
		}
		s.second, s.taken = second, 0
	}
	if s.taken++; s.taken >= mostTaken && shift < maxShift {
		s.shift.Store(shift + 1)
		s.taken /= 2
	}
}

// of is the sampler for a request.
func (r *Recent) of(status int, took time.Duration) *sampler {
	if status >= firstError || took >= slowFrom {
		return &r.notable
	}
	return &r.usual
}

// An Entry is a request that was seen. Its texts are cut where they are long, free
// of control characters, and without secrets in the query.
type Entry struct {
	Time                        time.Time
	Remote, Host, Method, Proto string
	Target                      string
	Status                      int
	Bytes                       int64
	Duration                    time.Duration
	Lane                        string // fast, through or slow
}

// slot is an Entry whose texts are in one buffer, which is used again.
type slot struct {
	entry Entry // without its texts
	text  []byte
	ends  [5]int // of remote, host, method, proto and target
}

// take looks at a request, if it is in the sample.
func (r *Recent) take(rec *Record) {
	s := r.of(rec.Status, rec.Duration)
	if !s.takes(rec.Time) || !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	weight := uint64(1) << s.shift.Load()
	s.took(rec.Time)

	at := &r.ring[r.next%maxTail]
	r.next++
	at.fill(rec)
	r.slow(at)
	path, _, _ := strings.Cut(rec.Target[:min(len(rec.Target), maxTopName)], "?")
	r.name = redact.AppendTarget(append(r.name[:0], rec.Host[:min(len(rec.Host), maxEntryHost)]...), path)
	r.paths.add(rec.Time, r.name, weight)
	if rec.Status == 404 || rec.Status == 410 {
		r.missing.add(rec.Time, r.name, weight)
	}
	r.name = append(r.name[:0], rec.Remote...)
	r.clients.add(rec.Time, r.name, weight)
	r.name = append(r.name[:0], rec.Proto...)
	if rec.Secure {
		r.name = append(r.name, " TLS"...)
	}
	r.protocols.add(rec.Time, r.name, weight)
}

func (s *slot) fill(rec *Record) {
	s.entry = Entry{Time: rec.Time, Status: rec.Status, Bytes: rec.Bytes, Duration: rec.Duration, Lane: rec.lane()}
	s.text = s.text[:0]
	for i, f := range [...]struct {
		text string
		most int
	}{{rec.Remote, maxRemote}, {rec.Host, maxEntryHost}, {rec.Method, maxMethod}, {rec.Proto, maxProto}, {rec.Target, maxEntryTarget}} {
		cut := f.text[:min(len(f.text), f.most)]
		if i == 4 && redact.Needed(f.text) {
			// All of it, as far as a line has it: a secret's name may be cut off.
			s.text = redact.AppendTarget(s.text, f.text[:min(len(f.text), maxMasked)])
			s.text = s.text[:min(len(s.text), s.ends[3]+f.most)]
		} else {
			s.text = append(s.text, cut...)
		}
		s.ends[i] = len(s.text)
	}
}

// read is the slot's Entry.
func (s *slot) read() Entry {
	e, from := s.entry, 0
	for i, to := range []*string{&e.Remote, &e.Host, &e.Method, &e.Proto, &e.Target} {
		*to = printable(string(s.text[from:s.ends[i]]))
		from = s.ends[i]
	}
	return e
}

// slow keeps a request if it is among the slowest of the last two windows.
func (r *Recent) slow(s *slot) {
	oldest := s.entry.Time.Add(-2 * topWindow)
	r.slowest = slices.DeleteFunc(r.slowest, func(e Entry) bool { return e.Time.Before(oldest) })
	if len(r.slowest) == maxSlow {
		if s.entry.Duration <= r.slowest[maxSlow-1].Duration {
			return
		}
		r.slowest = r.slowest[:maxSlow-1]
	}
	r.slowest = append(r.slowest, s.read())
	slices.SortStableFunc(r.slowest, func(a, b Entry) int { return cmp.Compare(b.Duration, a.Duration) })
}

// printable makes a text one that a terminal and a page can show.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == utf8.RuneError {
			return '\ufffd'
		}
		return c
	}, s)
}

// A Look is what Recent has seen.
type Look struct {
	// Paths are hosts with paths, Missing those of them that were not found, Clients
	// are addresses, Protocols are like "HTTP/2.0 TLS". All are of the last five to
	// ten minutes, the most frequent first.
	Paths, Missing, Clients, Protocols []Count
	Slowest                            []Entry // of the last ten minutes
	// Usual and Notable say of how many requests one was looked at last.
	Usual, Notable uint64
}

// Look reads at most n of each list.
func (r *Recent) Look(now time.Time, n int) (l Look) {
	if r == nil {
		return Look{Usual: 1, Notable: 1}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l = Look{
		Paths: r.paths.top(now, n), Missing: r.missing.top(now, n), Clients: r.clients.top(now, n), Protocols: r.protocols.top(now, n),
		Usual: 1 << r.usual.shift.Load(), Notable: 1 << r.notable.shift.Load(),
	}
	for _, e := range r.slowest {
		if now.Sub(e.Time) < 2*topWindow && len(l.Slowest) < n {
			l.Slowest = append(l.Slowest, e)
		}
	}
	return l
}

// Tail lists the last requests, the youngest first, at most n of those that keep
// does not refuse; nil: all.
func (r *Recent) Tail(n int, keep func(*Entry) bool) (tail []Entry) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.next - 1; i >= max(0, r.next-maxTail) && len(tail) < n; i-- {
		if e := r.ring[i%maxTail].read(); keep == nil || keep(&e) {
			tail = append(tail, e)
		}
	}
	return tail
}

// Watched has a log show its requests to r as well. Of a log that is off (nil) it
// makes one that writes nothing. Call it before the log is used.
func Watched(l *Log, r *Recent) *Log {
	if r == nil {
		return l
	}
	if l == nil {
		l = new(Log)
	}
	l.recent = r
	return l
}

// Wants reports whether anything would become of a request's Record.
func (l *Log) Wants(began time.Time, status int, took time.Duration) bool {
	switch {
	case l == nil:
		return false
	case l.format != off && l.sample.takes(began, status, took):
		return true
	}
	return l.recent != nil && l.recent.of(status, took).takes(began)
}
