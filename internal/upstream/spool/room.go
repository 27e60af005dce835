// Package spool keeps bodies that one side has sent and the other has not yet
// taken: in memory up to a bound, then in a temporary file. A fast side can so
// finish while a slow one goes on.
package spool

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/process/gogc"
)

const (
	// chunk is the piece in which bodies are kept in memory: what io.Copy would
	// take, and more than a socket usually has ready.
	chunk = 64 << 10
	// small is the piece in which a file is read back where memory is short.
	small = 8 << 10
	// What is kept in memory is a share of what this process may use, within bounds; at
	// most defaultDisk goes to files.
	memoryShare = 16
	leastMemory = 64 << 20
	mostMemory  = 1 << 30
	defaultDisk = 8 << 30
	// spillRate is how many bytes a second answers may write to files, all together:
	// hundreds of long ones to slow clients would otherwise take the disk, the
	// processors and their upstream from everybody else. With 300 of them a small
	// answer took 0.8 s without this bound.
	spillRate = 256 << 20
	// burst is how much of that time may be saved up: 64 MiB go at once, so that a fast
	// client who reads in fits and starts is not slowed down.
	burst = 250 * time.Millisecond
	// ahead is how much too early a write may be: a timer is no more exact than that.
	ahead = 2 * time.Millisecond
	// logPause is the least time between two lines about a full disk.
	logPause = time.Minute
)

// ErrFull means that neither memory nor disk has room for more.
var ErrFull = errors.New("the space for buffered bodies is full")

// ErrLong means that the body is longer than one may be.
var ErrLong = errors.New("the body is longer than may be buffered of one")

// ErrClosed means that the side which takes has given up.
var ErrClosed = errors.New("the buffered body was closed")

// Options bound what all bodies together may take.
type Options struct {
	// Memory is the most that all buffered bodies together may take in memory;
	// what is beyond goes to files. Answers take at most half of it. Default a sixteenth
	// of what this process may use, at least 64MiB and at most 1GiB.
	Memory bytesize.Size `yaml:"memory"`
	// Disk is the most that they may take in temporary files. When it is full,
	// uploads get 503, and answers come as slowly as their clients read. Default 8GiB.
	Disk bytesize.Size `yaml:"disk"`
	// Folder is where the temporary files are. They have no name there once they
	// are open, so a crash leaves none. Default /var/tmp, where there is one.
	Folder string `yaml:"folder"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	if o.Folder == "" {
		return nil
	}
	if info, err := os.Stat(o.Folder); err != nil {
		return map[string]error{"folder": err}
	} else if !info.IsDir() {
		return map[string]error{"folder": fmt.Errorf("%s is a file, not a folder", o.Folder)}
	}
	return nil
}

// Room is the space that bodies share. It is safe for concurrent use.
type Room struct {
	limits       atomic.Pointer[limits]
	memory, disk atomic.Int64
	log          *slog.Logger
	logged       atomic.Int64 // when a full disk was logged last, in Unix nanoseconds
	chunks       sync.Pool

	mu   sync.Mutex
	next time.Time // when more of an answer may go to a file
}

// limits are Options with their defaults.
type limits struct {
	memory, disk int64
	folder       string
}

// NewRoom returns an empty room. log may be nil: slog.Default().
func NewRoom(o Options, log *slog.Logger) *Room {
	r := &Room{log: log}
	if r.log == nil {
		r.log = slog.Default()
	}
	r.chunks.New = func() any { b := make([]byte, chunk); return &b }
	r.Limit(o)
	return r
}

// Limit sets other bounds. What is in the room already stays.
func (r *Room) Limit(o Options) {
	l := &limits{memory: int64(o.Memory), disk: int64(o.Disk), folder: o.Folder}
	if l.memory <= 0 {
		l.memory = min(max(gogc.Memory()/memoryShare, leastMemory), mostMemory)
	}
	if l.disk <= 0 {
		l.disk = defaultDisk
	}
	if l.folder == "" {
		l.folder = DefaultFolder()
	}
	r.limits.Store(l)
}

// DefaultFolder is where files are if no folder is named.
func DefaultFolder() string {
	if info, err := os.Stat("/var/tmp"); err == nil && info.IsDir() {
		return "/var/tmp" // on a disk, where /tmp is often memory
	}
	return os.TempDir()
}

// Used is how many bytes all bodies together take in memory and on disk.
func (r *Room) Used() (memory, disk int64) { return r.memory.Load(), r.disk.Load() }

// take reserves n bytes of a bound.
func take(used *atomic.Int64, n, most int64) bool {
	if used.Add(n) <= most {
		return true
	}
	used.Add(-n)
	return false
}

// pace counts n bytes that are to go to a file, and returns how long they have to
// wait.
func (r *Room) pace(n int) time.Duration {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if earliest := now.Add(-burst); r.next.Before(earliest) {
		r.next = earliest
	}
	wait := r.next.Sub(now)
	r.next = r.next.Add(time.Duration(n) * time.Second / spillRate)
	if wait < ahead {
		return 0
	}
	return wait
}

// full logs that there is no space, now and then.
func (r *Room) full(err error) {
	now := time.Now().UnixNano()
	last := r.logged.Load()
	if now-last < int64(logPause) && last != 0 || !r.logged.CompareAndSwap(last, now) {
		return
	}
	memory, disk := r.Used()
	r.log.Error("there is no space for buffered bodies: uploads get 503 and slow clients hold upstreams up",
		"folder", r.limits.Load().folder, "memory_bytes", memory, "disk_bytes", disk, "cause", err)
}

// file opens a temporary file without a name.
func (r *Room) file() (*os.File, error) {
	f, err := os.CreateTemp(r.limits.Load().folder, "millrace-body-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Space returns a buffer for the beginning of a body, for Begin. Where Begin is not
// called, Free takes it back.
func (r *Room) Space() *[]byte { return r.chunks.Get().(*[]byte) }

// Free takes back what Space gave.
func (r *Room) Free(space *[]byte) { r.chunks.Put(space) }

// Begin puts the first n bytes of a body, which are in space, into an empty queue,
// which owns space from then on. It is called before Fill, and waits for no client.
func (q *Queue) Begin(space *[]byte, n int) {
	if n > 0 {
		space, _ = q.put(space, n, true) // the first piece always goes
	}
	q.room.Free(space)
}

// Fill reads src to its end into the queue, and returns why it broke off; nil at its
// end. Where there is no room, it waits if wait is set; otherwise it gives up with
// ErrFull, and with ErrLong where the body is longer than the queue's file may be.
func (q *Queue) Fill(src io.Reader, wait bool) error {
	space := q.room.Space()
	defer func() { q.room.Free(space) }()
	filled := 0
	for {
		n, err := src.Read((*space)[filled:])
		filled += n
		if q.size += int64(n); !wait && q.size > q.mostDisk {
			q.end(ErrLong)
			return ErrLong
		}
		// Where somebody waits for it, a piece goes on at once; else when it is full.
		if filled > 0 && (wait || err != nil || filled == chunk) {
			var perr error
			if space, perr = q.put(space, filled, wait); perr != nil {
				q.end(perr)
				return perr
			}
			filled = 0
		}
		if err != nil {
			q.end(err)
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}
