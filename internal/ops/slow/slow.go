// Package slow keeps requests that took far longer than their route's usual ones,
// with what they spent the time with.
//
// A request is slow when it took [Options].Factor times the p99 of its route, and at
// least Least. The p99 is that of the last five to ten minutes, from the histogram that
// every request is counted in anyway (internal/observe/meter), which is bounded; it is read
// every ten seconds. Of a route that few have asked for nothing is known yet: there
// Least counts alone.
//
// What the fast lane answers is not looked at.
package slow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/trace"
	"slices"
	"sync"
	"time"

	"millrace/internal/observe/meter"
	follow "millrace/internal/observe/trace"
)

// Options say what is kept. "on" and "off" stand for them.
type Options struct {
	// Factor is how many times its route's p99 a request takes that is kept. Default 3.
	Factor float64 `yaml:"factor"`
	// Least is how long it takes at least. Default 250ms.
	Least time.Duration `yaml:"least"`
	// Keep is how many are kept. When there are more, the oldest of the route that has
	// the most goes. Default 100.
	Keep int `yaml:"keep"`
	// Recorder also keeps what the Go runtime did in the seconds before such a request
	// ended: a trace for "go tool trace", of at most 16 MiB, at most one a minute, the last two. It
	// costs a few per cent of CPU.
	Recorder bool `yaml:"recorder"`
	// Off keeps nothing.
	Off bool `yaml:"off"`
}

const (
	defaultFactor = 3
	defaultLeast  = 250 * time.Millisecond
	defaultKeep   = 100
	maxKeep       = 1000

	// refresh is how often the p99 of the routes are read, window how old what they are
	// of may be at the least; it may be twice as old.
	refresh = 10 * time.Second
	window  = 5 * time.Minute
	// fewest is of how many requests a p99 says something.
	fewest = 200

	// conversations is the job whose requests last as long as their clients like.
	conversations = "websocket"

	// mostASecond is how many are kept in one second. More are only counted.
	mostASecond = 20
)

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Options) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "on", "true":
	case "off", "false":
		o.Off = true
	default:
		return fmt.Errorf("%q: write on, off, or what is to be kept, like {least: 1s}", s)
	}
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if o.Factor != 0 && !(o.Factor >= 1 && o.Factor <= 1000) {
		faults["factor"] = fmt.Errorf("%v: from 1 to 1000", o.Factor)
	}
	if o.Least < 0 {
		faults["least"] = errors.New("it must not be negative")
	}
	if o.Keep < 0 || o.Keep > maxKeep {
		faults["keep"] = fmt.Errorf("%d: from 1 to %d", o.Keep, maxKeep)
	}
	return faults
}

func (o Options) withDefaults() Options {
	o.Factor = cmp.Or(o.Factor, defaultFactor)
	o.Least = cmp.Or(o.Least, defaultLeast)
	o.Keep = cmp.Or(o.Keep, defaultKeep)
	return o
}

// An Entry is a slow request.
type Entry struct {
	Number uint64 `json:"number"` // counts from 1
	*follow.Trace
	P99      time.Duration `json:"p99_ns"`             // of its route, when it was asked for; zero: not known
	Recorded int           `json:"recorded,omitempty"` // bytes of the recorder's trace; zero: none
}

// List is what a Store has.
type List struct {
	Entries []Entry `json:"requests"` // the youngest first
	// Seen is how many there were, those among them that were not kept.
	Seen uint64 `json:"seen"`
	Off  bool   `json:"off,omitempty"` // nothing is kept
	// Recorder says that the runtime's recorder is on, or why it is not.
	Recorder string `json:"recorder"`
}

// Store keeps slow requests. Make it with [New], and call Run.
type Store struct {
	meters *meter.Meters
	report func(error)

	more chan struct{} // the recorder is to be read

	mu      sync.Mutex
	o       Options
	entries []Entry // the oldest first
	seen    uint64
	last    uint64                        // the number given last
	second  int64                         // of
	taken   int                           // so many
	base    map[*meter.Job]meter.Snapshot // from which the p99 are counted
	next    map[*meter.Job]meter.Snapshot // will be base
	turned  time.Time
	p99     map[*meter.Job]time.Duration

	recorder *trace.FlightRecorder // nil: off
	failure  string                // why
	asked    uint64                // the entry that the recorder is to be read for; 0: none
	read     time.Time             // when it was read last
	traces   []recorded            // the last ones
}

// New makes a store for the routes that are counted in m. report is told why the
// recorder does not work.
func New(o Options, m *meter.Meters, report func(error)) *Store {
	return &Store{
		meters: m, report: report, o: o.withDefaults(), more: make(chan struct{}, 1),
		base: map[*meter.Job]meter.Snapshot{}, next: map[*meter.Job]meter.Snapshot{}, p99: map[*meter.Job]time.Duration{},
	}
}

// Set puts other options into effect.
func (s *Store) Set(o Options) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.o = o.withDefaults()
	s.mu.Unlock()
	s.look(time.Now())
	wake(s.more)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run reads the routes' times until ctx ends, and the recorder.
func (s *Store) Run(ctx context.Context) {
	s.look(time.Now())
	s.record()
	defer s.stop()
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() {
		s.meters.Clients.Keep(ctx.Done(), meter.Upkeep{
			Every: func() time.Duration { return refresh },
			Turn:  func(now time.Time) (more bool) { s.look(now); return false },
		})
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.more:
			s.record()
		}
	}
}

// look sets from when on requests of each route are slow.
func (s *Store) look(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) >= window {
		s.base, s.next, s.turned = s.next, map[*meter.Job]meter.Snapshot{}, now
	}
	for _, j := range s.meters.Jobs() {
		if s.o.Off || j.Name == conversations {
			j.SlowFrom.Store(0)
			continue
		}
		all := j.Slow.Latency()
		through := j.Through.Latency()
		all.Merge(&through)
		if _, known := s.next[j]; !known {
			s.next[j] = all
		}
		lately := all
		if before, known := s.base[j]; known {
			lately = all.Since(&before)
		}
		from := s.o.Least
		s.p99[j] = 0
		if lately.Count() >= fewest {
			s.p99[j] = lately.Quantile(0.99)
			from = max(from, time.Duration(s.o.Factor*float64(s.p99[j])))
		}
		j.SlowFrom.Store(int64(from))
	}
}

// Slow reports whether a request that took so long is to be given to Add.
func Slow(j *meter.Job, took time.Duration) bool {
	from := j.SlowFrom.Load()
	return from > 0 && int64(took) >= from
}

// Wants counts a slow request, and reports whether it is kept: then Add is to be called.
func (s *Store) Wants(now time.Time) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Off {
		return false
	}
	s.seen++
	if second := now.Unix(); second != s.second {
		s.second, s.taken = second, 0
	}
	s.taken++
	return s.taken <= mostASecond
}

// Add keeps a request. j is what it was counted in.
func (s *Store) Add(j *meter.Job, t *follow.Trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	for len(s.entries) >= s.o.Keep {
		s.dropOne()
	}
	s.entries = append(s.entries, Entry{Number: s.last, Trace: t, P99: s.p99[j]})
	if s.recorder != nil && s.asked == 0 && time.Since(s.read) >= readEvery {
		s.asked = s.last
		wake(s.more)
	}
}

// dropOne drops the oldest entry of the route that has the most.
func (s *Store) dropOne() {
	count := map[[2]string]int{}
	most := [2]string{}
	for _, e := range s.entries {
		route := [2]string{e.Site, e.Route}
		if count[route]++; count[route] > count[most] {
			most = route
		}
	}
	at := slices.IndexFunc(s.entries, func(e Entry) bool { return [2]string{e.Site, e.Route} == most })
	s.entries = slices.Delete(s.entries, at, at+1)
}

// List is what there is now.
func (s *Store) List() List {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := List{Entries: slices.Clone(s.entries), Seen: s.seen, Off: s.o.Off, Recorder: "off"}
	slices.Reverse(l.Entries)
	switch {
	case s.recorder != nil:
		l.Recorder = "on"
	case s.failure != "":
		l.Recorder = s.failure
	}
	return l
}

// Trace writes what the recorder has of a request, and reports whether there is any.
func (s *Store) Trace(number uint64, to io.Writer) (bool, error) {
	s.mu.Lock()
	var found []byte
	for _, r := range s.traces {
		if r.number == number {
			found = r.trace
		}
	}
	s.mu.Unlock()
	if found == nil {
		return false, nil
	}
	_, err := io.Copy(to, bytes.NewReader(found))
	return true, err //nolint:wrapcheck // the writer's own
}
