// Package purge remembers what was purged, so that a purge costs the same
// whatever the number of stored objects. An [Index] gives each purge a number, and
// every use of an object asks it whether anything that the object belongs to was
// purged after it was fetched. It is what Varnish calls bans, but looked up
// instead of gone through one by one.
//
// # How a cache uses it
//
//   - At is [Index.Now], read before the request to the origin leaves. A purge
//     gets a number above every Now before it. So it also hits the objects whose
//     fill is under way, which may carry what the origin said before.
//   - Before each use, [Index.State] is asked: [Valid] may be served, [Stale] as
//     what has become stale (after validation, or where stale answers may be),
//     [Unsure] after validation alone, [Gone] must not be served at all.
//   - Validation (a 304) renews an object: its At becomes the Now that was read
//     before the validating request.
//
// # What matches
//
// An object's URL is compared as scheme://host/path?query, with scheme and host
// in lower case, without the scheme's default port, without a fragment, with "/"
// for an empty path. Nothing else is changed: %7E is not ~, /a is not /a?, and
// a=1&b=2 is not b=2&a=1.
//
//   - URL is equal to it. Without a scheme (example.com/a or //example.com/a) it
//     matches both http and https.
//   - Prefix is a prefix of it, byte by byte, so https://example.com/api matches
//     /api, /api/x and /apis. Without a scheme it matches both.
//   - Glob matches all of it: * is any run of bytes, / included, ? any one byte.
//     Nothing is escaped; a ? that stands for itself is also matched by a ?. If
//     there is no scheme in the pattern (letters or wildcards before "://"), it
//     is compared with what follows "://": example.com/api/*, *.example.com/*,
//     */feed.xml. Up to its first * or / it is put into lower case, and without
//     wildcards there a default port is dropped.
//   - Tag is equal to one of the object's tags; case counts.
//   - Host is the object's host, at every port; with a port at that one alone.
//
// # Bounded memory
//
// A purge is never forgotten, it is made coarser: when more tags than fit were
// purged, the oldest half counts as one purge of everything, at the moment of
// its latest and as hard as its hardest; likewise URLs and prefixes as a purge of
// their hosts, globs and hosts of everything.
//
// # Across a restart
//
// Objects on disk carry At from an earlier life of the cache. [Index.Save] and
// [Index.Restore] keep the meaning of those numbers: a restored index counts on
// above all it has ever given out. An index that was not restored, or could not
// be, says Unsure for every object from before [New], and so never serves
// unvalidated what may have been purged; nothing of an earlier life is lost by
// that, but every object costs one validation.
//
// Save may be large. So that a purge survives kill -9, too, append [Record] to
// the file that Save's result was written to, before the purge is answered:
// Restore reads both.
//
// Restore comes before the first Now, and the file is kept until the new
// Save's is in its place.
//
// # Across machines
//
// Numbers mean nothing on other machines. What one machine tells the others is
// its [Selector] as JSON; each purges its own Index with it. A kind of selector that
// they do not know, of a later version, purges everything there: see [Index.Purge].
// After a message that is no JSON they are Unsure of everything.
//
// All machines receive the announcements in one order. What one has stored for the
// others names the last announcement that it had received when it asked the origin
// (its epoch), and is used only by who has received that one, too: [Purger.Time].
// So a machine never uses what is older than a purge that it has not heard of.
// One that is received twice, since its sender did not learn that it was published, has
// the place of the first.
//
// The shared store's server may lose announcements, with all else that was written
// last: when it comes back from a snapshot, or when a replica takes over. It cannot
// know what it has lost. So its life is divided into runs, and only within a run
// nothing is missing:
//
//  1. A run has a name that the server cannot have had before, and begins with an
//     entry of its own in the stream. Every announcement of the run is behind it.
//  2. Before it reads or announces anything, a machine has the entry made, if the
//     server is in another run than the last entry says.
//  3. [Purger.Began] is told the run before its first announcement. If it is not the
//     run that is known (after a restart: to the journal), all epochs of before are
//     forgotten, what this machine has is validated before its next use, and its own
//     purges that it has not heard yet are announced again.
//  4. A machine that starts reads the announcements from the beginning of the run, or if
//     the oldest are not kept any more, all that are. It takes nothing from the shared
//     store before it has read them all, and then what names one of them as its epoch;
//     and nothing from its disk without validation before it has received its own
//     greeting.
//
// A machine that cannot reach the server does not hear of purges, and knows that. It goes
// on with what it has, but asks at each use: [Purger.CatchUp] tries to reach the server,
// from then on. So a machine that could reach it again serves nothing that was purged
// meanwhile, not even at the first request:
//
//   - The server cannot be reached: neither could the others have told this machine.
//   - It can: the announcements are read before the object is used. If that takes too
//     long, the object is validated.
//
// [Purger.Announce] can wait until all machines have put a purge into effect. Each
// writes to the shared store how far it has read the announcements, when one asks for
// that, and every second besides. The last is a sign of life as well; a machine that gives
// none is named as one that does not have the purge: it may be cut off, and have visitors.
//
// Example: an object is stored with the epoch e1, a snapshot is made, the purge e2 hits
// the object, and the server comes back from the snapshot. A machine that starts then
// begins behind e1, in the new run. It does not know e1, and asks the origin.
package purge

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of an Index.
const (
	// DefaultMost is how many tags and how many URLs are remembered unless said
	// otherwise: about 10 MB each if all are long.
	DefaultMost = 100_000
	// mostPatterns is how many prefixes and globs are remembered. Every object
	// is compared with each of them once: 256 take some 30 µs.
	mostPatterns = 256
	// mostHosts is how many hosts are remembered, more than one proxy serves.
	mostHosts = 8192
	// mostFolded is how many hosts of forgotten URLs are purged one by one,
	// while everybody waits; above, everything is.
	mostFolded = 1024
)

// State is what became of an object.
type State uint8

// The states, from the mildest.
const (
	Valid State = iota
	Stale
	Unsure // nobody knows: as Gone without validation, as Stale with it
	Gone
)

// Object is what purging knows of a stored response.
type Object struct {
	URL  string // scheme://host/path?query as requested
	Host string // of the URL, with the port if that has one; "": take it from URL
	Tags []string
	At   Time // read before it was asked for upstream
}

// Time is a moment in an Index's life. It is persisted with objects: see the
// package comment.
type Time uint64

// Index holds the purges. The zero value is not ready: use [New]. All methods
// may be called at once by many goroutines.
type Index struct {
	// clock is the number of the latest purge. It is written under mu, after
	// what was purged was noted, and read without.
	clock atomic.Uint64

	mu        sync.RWMutex
	base      Time // objects from before are of an unknown life, or purges may have been missed
	uncertain Time // objects from before may have been purged by other machines meanwhile
	run       string
	start     Time
	all       times
	tags      ages
	urls      ages
	hosts     ages
	globs     patterns
}

// New returns an empty index that remembers up to most tags and as many URLs
// exactly (0: [DefaultMost]), the latest half of them at least.
func New(most int) *Index {
	if most <= 0 {
		most = DefaultMost
	}
	half := (most + 1) / 2
	b := &Index{
		tags:  ages{half: half},
		urls:  ages{half: half, byHost: true},
		hosts: ages{half: mostHosts / 2},
	}
	// Numbers of an earlier life must be below: the clock of the wall is what
	// two lives that know nothing of each other have in common. It would take
	// a purge per nanosecond to overtake it.
	b.start = Time(max(time.Now().UnixNano(), 1))
	b.base = b.start
	b.clock.Store(uint64(b.start))
	return b
}

// Now is the moment. Take it before the request to the origin starts.
func (b *Index) Now() Time { return Time(b.clock.Load()) }

// Purge takes effect at once: when it returns, no State call begun afterwards
// says Valid for an object fetched before, and after a hard one none says
// Stale. It is O(1) in the number of objects, and takes microseconds. It
// returns the purge's number, for [Record].
//
// What [Selector.Check] refuses purges everything: too much rather than too little.
func (b *Index) Purge(s Selector) Time {
	e, err := s.entry()
	if err != nil {
		e = entry{kind: kindAll}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := Time(b.clock.Load() + 1)
	b.note(e, timesOf(s.Hard, n))
	b.clock.Store(uint64(n))
	return n
}

// note writes down that what e names was purged. Called with mu.
func (b *Index) note(e entry, m times) {
	switch e.kind {
	case kindAll:
		b.all.raise(m)
		b.forget()
	case kindTag:
		if old, full := b.tags.add(e.text, "", m); full {
			b.all.raise(old.top)
		}
	case kindURL:
		if old, full := b.urls.add(e.text, e.host, m); full {
			b.foldURLs(old)
		}
	case kindHost:
		b.noteHost(e.text, m)
	case kindPrefix, kindGlob:
		if old, full := b.globs.add(e, m); !full {
			break
		} else if old.host != "" {
			b.noteHost(old.host, old.times)
		} else {
			b.all.raise(old.times)
		}
	}
}

func (b *Index) noteHost(host string, m times) {
	if old, full := b.hosts.add(host, "", m); full {
		b.all.raise(old.top)
	}
}

// foldURLs makes purges of URLs purges of their hosts, so that who purges much
// on one host does it to that host alone.
func (b *Index) foldURLs(old generation) {
	_, unknown := old.hosts[""] // of a long URL that was restored
	if unknown || len(old.hosts) > mostFolded {
		b.all.raise(old.top)
		return
	}
	for host, m := range old.hosts {
		b.noteHost(host, m)
	}
}

// forget drops what a hard purge of everything has made pointless.
func (b *Index) forget() {
	for _, a := range []*ages{&b.tags, &b.urls, &b.hosts} {
		if a.latest() <= b.all.hard {
			*a = ages{half: a.half, byHost: a.byHost}
		}
	}
	if b.globs.latest() <= b.all.hard {
		b.globs = patterns{}
	}
}

// suspectAll says Unsure for every object from before: purges may have been missed.
func (b *Index) suspectAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.clock.Load() + 1
	b.base = Time(n)
	b.clock.Store(n)
}

// distrust says Unsure for every object from before, until trust: this machine may not
// have been there when others have purged.
func (b *Index) distrust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncertain = Time(b.clock.Load())
}

// trust ends what distrust began.
func (b *Index) trust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uncertain = 0
}

// Run is the name of the run of the shared store's server whose purges the index has; ""
// for none. It is saved with them.
func (b *Index) Run() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.run
}

func (b *Index) setRun(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run = name
}

// State says what became of an object. checked, which belongs to the caller,
// one for each object and 0 at first, holds the moment at which the object was
// last found Valid: as long as nothing was purged since, State costs two loads.
// It is read and written atomically, so it must be aligned to 8 bytes. nil is
// allowed and has each call look everything up.
func (b *Index) State(o *Object, checked *Time) State {
	if checked != nil && atomic.LoadUint64((*uint64)(checked)) == b.clock.Load() {
		return Valid
	}
	return b.look(o, checked)
}

func (b *Index) look(o *Object, checked *Time) State {
	b.mu.RLock()
	defer b.mu.RUnlock()
	clock := Time(b.clock.Load())
	// Only what was purged since it was last found Valid can have changed that.
	since := o.At
	if checked != nil {
		since = max(since, Time(atomic.LoadUint64((*uint64)(checked))))
	}
	s := b.all.state(since)
	if o.At > clock || since < max(b.base, b.uncertain) {
		s = max(s, Unsure) // from a life that this index knows nothing of, or not all
	}
	if s != Gone {
		s = max(s, b.tagged(o, since), b.placed(o, since))
	}
	if s == Valid && checked != nil {
		// A slower call may put an earlier moment in place of a later one:
		// true as well.
		atomic.StoreUint64((*uint64)(checked), uint64(clock))
	}
	return s
}

// tagged is the worst that happened to one of the object's tags.
func (b *Index) tagged(o *Object, since Time) State {
	s := Valid
	if b.tags.latest() <= since {
		return s
	}
	for _, tag := range o.Tags {
		s = max(s, b.tags.find(tag).state(since))
	}
	return s
}

// placed is the worst that happened to the object's URL, or to what contains it.
func (b *Index) placed(o *Object, since Time) State {
	s := Valid
	if max(b.urls.latest(), b.hosts.latest(), b.globs.latest()) <= since {
		return s
	}
	p := placeOf(o)
	if b.urls.latest() > since {
		s = max(s, b.urls.find(p.url).state(since), b.urls.find(p.bare).state(since))
	}
	if b.hosts.latest() > since {
		var buf [280]byte // a host name has 253 bytes at most
		at := append(append(append(buf[:0], p.name...), ':'), p.port...)
		s = max(s, b.hosts.find(p.name).state(since), b.hosts.findBytes(at).state(since))
	}
	if s != Gone {
		s = max(s, b.globs.state(&p, since))
	}
	return s
}
