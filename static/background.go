package static

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/wire/compress"
)

const (
	// maxOpenFolders bounds the directories that stay open for the requests to come.
	// One that was closed is opened again for the next request, in some microseconds.
	maxOpenFolders = 256
	// maxOpenFiles bounds the files that all handlers hold open.
	maxOpenFiles = 512
	// Where the process may have few descriptors these bounds are a part of them, so
	// that enough are left for connections.
	folderShare, fileShare = 16, 8
	// maxWatched bounds the handlers whose folders are watched: each takes one of the
	// user's inotify instances, of which Linux allows 128. The folders of the others
	// are left to the sweep.
	maxWatched = 64
	// maxJobs bounds the jobs that wait. What finds no place is tried again by the
	// sweep.
	maxJobs = 256
	// encoderRest is how long the encoders are kept after the last job.
	encoderRest = 2 * time.Second
)

// Background does for handlers what no request should wait for: it checks whether
// files that they hold have changed, compresses, and bounds the files that they hold
// open together. One Background serves all folders of a server, so that a folder costs
// neither a goroutine nor a descriptor before its first visitor. Close it after its
// handlers.
type Background struct {
	jobs    chan job
	closing chan struct{}
	running sync.WaitGroup
	watched atomic.Int64 // handlers that have a watcher
	files   atomic.Int64 // open files that handlers hold
	built   time.Time    // of the program

	maxFolders, maxFiles int64

	sweepOne sync.Mutex // held by sweep

	mu       sync.Mutex
	clients  *meter.Presence       // of the server; nil: there are always some
	awake    map[*Handler]struct{} // have had a request, and are swept
	open     map[*tree]struct{}    // have their directory open
	sweeping bool                  // sweepLoop runs
	private  map[string]*private   // by what makes them
	closed   bool
}

// job is work for the one goroutine that compresses.
type job struct {
	handler *Handler
	run     func(tools *compress.Tools)
}

// NewBackground starts a Background for a process that may have so many descriptors; 0:
// not known. clients are those of the server, which must count each before it is served;
// nil: there are always some.
func NewBackground(descriptors int, clients *meter.Presence) *Background {
	if descriptors <= 0 {
		descriptors = math.MaxInt
	}
	if clients == nil {
		clients = &meter.Presence{}
		clients.Add(1)
	}
	b := &Background{
		clients:    clients,
		maxFolders: int64(min(maxOpenFolders, descriptors/folderShare)),
		maxFiles:   int64(min(maxOpenFiles, descriptors/fileShare)),
		jobs:       make(chan job, maxJobs), closing: make(chan struct{}), built: buildTime(),
		awake: map[*Handler]struct{}{}, open: map[*tree]struct{}{}, private: map[string]*private{},
	}
	b.running.Go(b.workLoop)
	return b
}

// Close waits for the work under way. Its handlers must have been closed.
func (b *Background) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.mu.Unlock()
	b.running.Wait()
	return nil
}

// submit queues work for a handler; false if there is no place.
func (b *Background) submit(h *Handler, run func(tools *compress.Tools)) bool {
	select {
	case b.jobs <- job{h, run}:
		return true
	default:
		return false
	}
}

// workLoop is the one worker: compressing must never take more than one core from
// serving. It runs until Close.
func (b *Background) workLoop() {
	var tools compress.Tools
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-b.closing:
			return
		case j := <-b.jobs:
			j.handler.during(func() { j.run(&tools) })
			rest.Reset(encoderRest)
		case <-rest.C:
			tools.FreeMemory()
		}
	}
}

// wake has a handler swept from now on.
func (b *Background) wake(h *Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awake[h] = struct{}{}
	b.sweepFromNow()
}

// leave ends what is done for a handler and its trees.
func (b *Background) leave(h *Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.awake, h)
	for _, t := range h.trees {
		delete(b.open, t)
	}
}

// opened notes that a tree has opened its directory. If too many are open, it closes
// another one, if possible one that was not used since it last looked for one to
// close.
func (b *Background) opened(t *tree) {
	var victim *tree
	b.mu.Lock()
	b.open[t] = struct{}{}
	if int64(len(b.open)) > b.maxFolders {
		for other := range b.open { // in random order
			if other == t {
				continue
			}
			victim = other
			if !other.used.Swap(false) {
				break
			}
		}
		delete(b.open, victim)
	}
	b.mu.Unlock()
	if victim != nil {
		victim.shut()
	}
}

// hold counts n more open files of a handler; n may be negative.
func (b *Background) hold(n int) {
	if b != nil && n != 0 {
		b.files.Add(int64(n))
	}
}

// balance has handlers close files until all together hold no more than they may. The
// file that own's handler was asked for last stays open.
func (b *Background) balance(own *table) {
	if b == nil || b.files.Load() <= b.maxFiles {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.awake { // in random order
		least := 0
		if h.table == own {
			least = 1
		}
		for b.files.Load() > b.maxFiles && h.table.shutOne(least) {
		}
		if b.files.Load() <= b.maxFiles {
			return
		}
	}
}

// builtAt is buildTime, which reads the whole list of modules.
func (b *Background) builtAt() time.Time {
	if b == nil {
		return buildTime()
	}
	return b.built
}

// privates returns the names that the options keep back from clients. Handlers with
// the same list share it.
func (b *Background) privates(o Options) *private {
	if b == nil {
		return o.privates()
	}
	key := fmt.Sprintf("%t %q", o.RuleFiles, o.Private)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.private[key] == nil {
		b.private[key] = o.privates()
	}
	return b.private[key]
}

// sweepFromNow starts the sweep if it does not run. The caller holds the lock.
func (b *Background) sweepFromNow() {
	if !b.sweeping && !b.closed {
		b.sweeping = true
		b.running.Go(b.sweepLoop)
	}
}

// firstWait bounds how long the first client waits for a sweep. It takes less than a
// millisecond for a hundred files, and much longer only where a disk does not answer.
const firstWait = 50 * time.Millisecond

// sweepLoop sweeps as long as there are clients, and once more before the first of them is
// served: files may have changed meanwhile. It runs until Close.
func (b *Background) sweepLoop() {
	b.clients.Keep(b.closing, meter.Upkeep{
		Every: func() time.Duration { return sweepEvery },
		Turn:  func(time.Time) (more bool) { b.sweep(); return false },
		First: b.sweepFirst,
	})
}

func (b *Background) sweepFirst() {
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.sweep()
	}()
	late := time.NewTimer(firstWait)
	defer late.Stop()
	select {
	case <-over:
	case <-late.C:
	}
}

// sweep compares what handlers hold with the files.
func (b *Background) sweep() {
	b.sweepOne.Lock()
	defer b.sweepOne.Unlock()
	b.mu.Lock()
	handlers := slices.Collect(maps.Keys(b.awake))
	b.mu.Unlock()
	for _, h := range handlers {
		h.during(h.sweep)
	}
}
