// Package redis keeps objects in Redis or Valkey, a single server or a
// cluster, for several machines that share what they have fetched, and carries
// purges between them.
//
// An object is one string value: body, head, and a trailer that tells them
// apart. SET replaces it as a whole, so no reader ever sees half of one or a mix
// of two, and Redis forgets it by itself. README.md says which keys there are
// and what happens while the server is down.
//
// There are two clients, so that a large body in one direction does not hold up
// the other: one writes, over a single connection to each server, and one reads.
//
// Redis is not asked to tell what others have changed (client-side caching): it
// tells of what it evicts in the same way, and a full one would empty the memory
// of all machines. What must not be used any more is purged, and purges come as
// messages.
package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"millrace/internal/bytesize"
	"millrace/internal/observe/meter"
	"millrace/store"
)

// Options of a Redis store.
type Options struct {
	// URL is redis://[user:password@]host:port[,host:port…][/db][?…], rediss://
	// with TLS, or unix://[user:password@]/path[?db=1]; valkey:// and valkeys://
	// mean the same. One host that is part of a cluster stands for the cluster; of
	// several, which are a cluster or a master with its replicas, the master is used.
	// redis-sentinel://host:port[,host:port…][/db]?master=NAME asks Sentinels for it.
	// With TLS, ?ca=FILE trusts the certificates in a PEM file instead
	// of the system's, and ?skip_verify=true trusts any. All keys begin with ?prefix=NAME
	// and a colon, instead of "millrace:".
	URL string
	// Largest is the size of the largest body taken, at most 256MiB. Default
	// 8MiB. It should be the same on all machines.
	Largest bytesize.Size
	// TTL after which Redis forgets an object, unless its Writer is told. Default 24h.
	TTL time.Duration
	// Timeout is the longest that one call may take: a slow Redis must not make
	// requests slow. Default 250ms.
	Timeout time.Duration
	// Message is called with every message that any machine has published in the
	// server's run, this one included, in order, from one goroutine. After a lost
	// connection, what was missed is caught up; lost is true (and message nil) when
	// that is no longer possible. While messages have not been caught up, Get
	// answers ErrDown: what is found may have been purged by one of them.
	Message func(message []byte, lost bool)
	// Began is called with a name for the server's run before the first of its messages,
	// by the goroutine that calls Message, and needed with that. Whoever has not heard
	// this name before may have missed messages. It is not called where the server does
	// not tell its runs apart; then Message begins with lost.
	Began func(run string)
	// OnLag is called when CaughtUp becomes false: messages may have been published that this
	// machine has not received. It must return soon.
	OnLag func()
	// Name is what other machines call this one when it does not acknowledge a message:
	// see Announce. Default: the host's name.
	Name     string
	ErrorLog *slog.Logger // nil: slog.Default()
	// Meters returns the counters for a server; nil: nothing is counted.
	Meters func(server string) *meter.Store
}

// Bounds and defaults.
const (
	defaultPrefix  = "millrace:"
	defaultLargest = 8 << 20
	mostLargest    = 256 << 20 // Redis takes 512 MiB in one value
	defaultTTL     = 24 * time.Hour
	defaultTimeout = 250 * time.Millisecond
	// mostCalls is how many calls are under way at once. It bounds the memory
	// for answers to mostCalls*Largest, and stays far below the 1024 commands
	// that fit into a connection's queue, where waiting knows no timeout.
	mostCalls = 64
	// mostBuffered is how many bytes all Writers together hold.
	mostBuffered = 64 << 20
	// mostHead is the size of a head: a large response header and its metadata.
	mostHead = 256 << 10
)

// Redis is a store.Store.
type Redis struct {
	o      Options
	log    *slog.Logger
	meters *meter.Store
	target
	health   *health
	link     atomic.Pointer[link] // nil until the server was reached once
	calls    chan struct{}
	buffered atomic.Int64
	caughtUp hearing                            // all messages that are there
	waiting  atomic.Pointer[context.CancelFunc] // of the wait for the next one
	dialed   atomic.Pointer[string]             // the last address
	refused  refusals
	script   *rueidis.Lua
	contact  contact
	checks   rounds    // of supervise
	steps    rounds    // of listen
	renewed  time.Time // for supervise
	self     self      // among the machines
	marker   *rueidis.Lua
	lister   *rueidis.Lua
	stats    atomic.Pointer[store.Stats]
	clock    atomic.Int64 // by how much this machine's is ahead

	closing context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup // of all goroutines: Close waits
	once    sync.Once
}

// Open connects in the background: a server that is down is not an error, the
// store answers ErrDown until it is there. A URL that cannot be read is one.
// Calls right after Open wait for the first attempt, up to Timeout.
func Open(o Options) (*Redis, error) {
	at, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Largest < 0 || o.Largest > mostLargest {
		return nil, fmt.Errorf("redis: the largest body may have %v, not %v", bytesize.Size(mostLargest), o.Largest)
	}
	setDefaults(&o)
	r := &Redis{o: o, log: o.ErrorLog, target: at, meters: new(meter.Store), health: newHealth(), calls: make(chan struct{}, mostCalls)}
	if r.log == nil {
		r.log = slog.Default()
	}
	if o.Meters != nil {
		r.meters = o.Meters(r.Server())
	}
	r.closing, r.stop = context.WithCancel(context.Background())
	r.script = rueidis.NewLuaScript(runScript)
	r.contact.again, r.contact.listen = make(chan struct{}, 1), make(chan struct{}, 1)
	r.self.id = rand.Text()
	r.marker, r.lister = rueidis.NewLuaScript(markScript), rueidis.NewLuaScript(machinesScript)
	r.wg.Go(r.supervise)
	if o.Message != nil {
		r.wg.Go(r.listen)
	}
	return r, nil
}

func setDefaults(o *Options) {
	o.Largest = cmp.Or(o.Largest, defaultLargest)
	if o.TTL <= 0 {
		o.TTL = defaultTTL
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.OnLag == nil {
		o.OnLag = func() {}
	}
	if o.Name == "" {
		o.Name, _ = os.Hostname() // none: it has only its id
	}
}

var (
	_ store.Store   = (*Redis)(nil)
	_ store.Toucher = (*Redis)(nil)
	_ store.Bounded = (*Redis)(nil)
)

// objectKey is the key in Redis of an object's key.
func (r *Redis) objectKey(key string) string { return r.prefix + "o:" + key }

// Get implements [store.Store]. The object is in memory.
func (r *Redis) Get(ctx context.Context, key string) (*store.Object, error) {
	if r.o.Message != nil && !r.caughtUp.Load() {
		return nil, fmt.Errorf("getting from redis: %w: messages of other machines are still to be read", store.ErrDown)
	}
	var value []byte
	name := r.objectKey(key)
	err := r.call(ctx, name, func(ctx context.Context, l *link) (err error) {
		value, err = l.read.Do(ctx, l.read.B().Get().Key(name).Build()).AsBytes()
		return err
	})
	if err == nil || errors.Is(err, store.ErrNotFound) {
		r.meters.Look(err == nil, int64(len(value)))
	}
	if err != nil {
		return nil, fmt.Errorf("getting from redis: %w", err)
	}
	o, ok := unframe(value)
	if !ok {
		return nil, fmt.Errorf("getting from redis: %w: a value that we have not written", store.ErrNotFound)
	}
	return o, nil
}

// Largest implements [store.Bounded].
func (r *Redis) Largest() int64 { return int64(r.o.Largest) }

// Touch implements [store.Toucher].
func (r *Redis) Touch(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	err := r.call(ctx, r.objectKey(keys[0]), func(ctx context.Context, l *link) error {
		var all rueidis.Commands
		for _, key := range keys { // each on its own: in a cluster they are on several servers
			all = append(all, l.write.B().Touch().Key(r.objectKey(key)).Build())
		}
		var err error
		for _, answer := range l.write.DoMulti(ctx, all...) {
			err = cmp.Or(err, answer.Error())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("touching in redis: %w", err)
	}
	return nil
}

// Delete implements [store.Store].
func (r *Redis) Delete(ctx context.Context, key string) error {
	name := r.objectKey(key)
	err := r.call(ctx, name, func(ctx context.Context, l *link) error {
		return l.write.Do(ctx, l.write.B().Unlink().Key(name).Build()).Error()
	})
	if err != nil {
		return fmt.Errorf("deleting from redis: %w", err)
	}
	return nil
}

// Stats is what the server says of itself, as of some seconds ago: of all that
// is in it, not of our objects alone. In a cluster it is nothing but Down.
func (r *Redis) Stats() store.Stats {
	var s store.Stats
	if last := r.stats.Load(); last != nil {
		s = *last
	}
	s.Down = !r.health.up()
	return s
}

// Server names the server, without passwords.
func (r *Redis) Server() string { return strings.Join(r.client.InitAddress, ",") }

// Trouble is why the server cannot be used now; nil: it can.
func (r *Redis) Trouble() error {
	if r.health.up() {
		return nil
	}
	if cause := r.health.cause.Load(); cause != nil {
		return *cause
	}
	return errors.New("it has not answered yet")
}

// Close breaks off all calls under way and waits for all goroutines.
func (r *Redis) Close() error {
	r.once.Do(func() {
		r.leave()
		r.stop()
		r.health.close()
		r.wg.Wait()
		if l := r.link.Load(); l != nil {
			l.close()
		}
	})
	return nil
}

// call does one thing with the server, within all bounds, and says what its
// error means to the caller and to the store's health.
func (r *Redis) call(ctx context.Context, key string, do func(context.Context, *link) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	if !r.health.ready(within) {
		return r.refusal(ctx)
	}
	select {
	case r.calls <- struct{}{}:
		defer func() { <-r.calls }()
	case <-within.Done():
		if err := ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d calls are waiting", store.ErrDown, mostCalls)
	}
	l, began := r.link.Load(), time.Now()
	err := do(within, l)
	if errors.Is(err, rueidis.ErrClosing) && r.link.Load() != l {
		return fmt.Errorf("%w: another server has taken its place", store.ErrDown) // says nothing about that one
	}
	err = r.judge(ctx, key, err)
	r.meters.Call(began, err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil)
	return err
}

func (r *Redis) refusal(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.closing.Err() != nil {
		return store.ErrClosed
	}
	return store.ErrDown
}

// judge turns an error of the client into one of the store.
func (r *Redis) judge(ctx context.Context, key string, err error) error {
	if err == nil {
		r.health.worked()
		return nil
	}
	if rueidis.IsRedisNil(err) {
		r.health.worked()
		return store.ErrNotFound
	}
	if answer, ok := rueidis.IsRedisErr(err); ok {
		return r.judgeAnswer(key, answer)
	}
	if errors.Is(err, errUnknownRun) {
		return err
	}
	if r.closing.Err() != nil {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err // the caller gave up: that says nothing about the server
	}
	// A call may also fail because another one, that was connecting for both,
	// was given up by its caller.
	slow := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
	err = plain(err)
	r.health.failed(key, slow, err)
	r.caughtUp.wake()
	return fmt.Errorf("%w: %w", store.ErrDown, err)
}

// plain says what an end of a connection means: the client tells of it as it comes.
func plain(err error) error {
	if ended(err) {
		return errors.New("it has closed the connection")
	}
	return err
}

// ended reports whether an error means that the other side has closed the connection.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (r *Redis) judgeAnswer(key string, answer *rueidis.RedisError) error {
	code := word(answer.Error())
	switch code {
	case "LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY": // see notReady
		r.health.failed(key, false, answer)
		return fmt.Errorf("%w: %w", store.ErrDown, answer)
	}
	if r.refused.first(code, time.Now()) {
		r.log.Warn("redis refuses a command; what it was for is not kept or shared", "server", r.server(), "prefix", r.prefix, "error", explain(code, answer))
	}
	switch code {
	case "WRONGTYPE":
		return fmt.Errorf("%w: %w", store.ErrNotFound, answer)
	case "OOM", "MISCONF": // maxmemory without eviction; a full disk under Redis
		return fmt.Errorf("%w: %w", store.ErrFull, answer)
	}
	return fmt.Errorf("%w: %w", store.ErrDown, answer)
}

// refuses reports whether an error is an answer of the server with that code.
func refuses(err error, code string) bool {
	answer, ok := rueidis.IsRedisErr(err)
	return ok && word(answer.Error()) == code
}

// explain adds to an answer what can be done about it.
func explain(code string, answer *rueidis.RedisError) error {
	var hint string
	switch {
	case code == "OOM":
		hint = "it is full: set maxmemory-policy to volatile-lru"
	case code == "WRONGTYPE":
		hint = "there is a key of others below the prefix: name another one with ?prefix="
	case code == "NOPERM", strings.Contains(answer.Error(), "can't run this command"): // in a script
		hint = "store/redis/README.md lists the rights that a user needs"
	case strings.Contains(strings.ToLower(answer.Error()), "unknown"): // a command, also one of a script's
		hint = "it is too old: Redis 6 or Valkey is needed"
	default:
		return answer
	}
	return fmt.Errorf("%w; %s", answer, hint)
}

// refusals are the answers of the server that were logged lately, by their code.
type refusals struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const (
	// refusedAgain is after how long the same answer is logged again.
	refusedAgain = 10 * time.Minute
	mostRefused  = 32 // codes
)

// first reports whether an answer is to be logged.
func (f *refusals) first(code string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, known := f.last[code]; known && now.Sub(last) < refusedAgain {
		return false
	}
	if f.last == nil || len(f.last) >= mostRefused {
		f.last = map[string]time.Time{}
	}
	f.last[code] = now
	return true
}
