package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"millrace/store"
)

// link is the two clients of a server that was reached once. They connect again
// by themselves.
type link struct{ read, write rueidis.Client }

func (l *link) close() {
	l.read.Close()
	l.write.Close()
}

// Buffers of one connection: enough for a command and a small body. The
// library's own default is half a MiB in both directions.
const connBuffer = 32 << 10

// connect makes the clients. It takes no longer than some timeouts.
func (r *Redis) connect() (*link, error) {
	o := r.client
	o.Dialer.Timeout = max(r.o.Timeout, defaultTimeout)
	// An idle connection is asked for a sign of life this often, and given up
	// if none comes.
	o.Dialer.KeepAlive = 5 * time.Second
	o.ConnWriteTimeout = max(4*r.o.Timeout, time.Second)
	o.ReadBufferEachConn, o.WriteBufferEachConn = connBuffer, connBuffer
	o.RingScaleEachConn = 9
	o.ClientName = "millrace"
	o.BlockingPoolSize = 2 // one reader of messages, and one that is just being closed
	// A retry would only use up the caller's time.
	o.DisableRetry = true
	o.ClusterOption.MaxMovedRedirections = 3
	// Without it, a call that runs out of time takes its connection with it.
	o.AlwaysPipelining = true
	o.DisableCache = true
	o.DialCtxFn = r.dial
	read, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	o.PipelineMultiplex = -1 // one connection to each server
	write, err := rueidis.NewClient(o)
	if err != nil {
		read.Close()
		return nil, err
	}
	return &link{read, write}, nil
}

// supervise reaches the server, again and again while it does not answer, and
// looks after it while it does. Open starts it, Close waits for it.
func (r *Redis) supervise() {
	var pause backoff
	var looked time.Time
	for {
		round := r.checks.begun.Add(1)
		err := r.check()
		if r.health.checked(err) && r.closing.Err() == nil {
			r.logState(err)
			r.hearAnew()
		}
		wait := checkEvery
		if err != nil {
			r.checks.failed.Store(round)
			r.heard.wake()
			wait = pause.next()
		}
		if err == nil {
			pause.reset()
			_ = r.mark() // it is done again
			if time.Since(looked) >= statsEvery {
				looked = time.Now()
				r.look()
			}
		}
		if !r.idle(wait, err == nil, &pause) {
			return
		}
	}
}

// idle waits until the next check is due. While the server works, a call that
// failed brings it forward. It reports false when the store is closed.
func (r *Redis) idle(wait time.Duration, works bool, pause *backoff) bool {
	if !works {
		return sleep(r.closing, wait, r.contact.again)
	}
	if !sleep(r.closing, wait, r.health.wake) {
		return false
	}
	if r.health.up() {
		return true
	}
	r.logState(*r.health.cause.Load())
	return sleep(r.closing, pause.next(), r.contact.again)
}

func (r *Redis) logState(err error) {
	server := strings.Join(r.client.InitAddress, ",")
	if err == nil {
		r.log.Info("redis works", "server", server)
		return
	}
	r.log.Warn("redis cannot be used; caches and limits go on without it", "server", server, "error", err)
}

// errReplica tells that the server is another one's replica: it takes no writes, or forgets
// them.
var errReplica = errors.New("it is a replica: failed over, or not the server that was meant")

// replica returns errReplica for one. Of a cluster the client knows the roles. A server that
// does not tell is none.
func (r *Redis) replica(ctx context.Context, c rueidis.Client) error {
	if c.Mode() == rueidis.ClientModeCluster {
		return nil
	}
	text, err := c.Do(ctx, c.B().Info().Section("replication").Build()).ToString()
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		return err
	}
	if strings.Contains(text, "role:slave\r") {
		return errReplica
	}
	return nil
}

// renew connects anew: behind the name there may be another server by now, while the
// one that was there goes on as a replica.
func (r *Redis) renew() {
	if time.Since(r.renewed) < longestPause/2 {
		return
	}
	r.renewed = time.Now()
	if next, err := r.connect(); err == nil {
		r.link.Swap(next).close()
	}
}

// check asks every server for something.
func (r *Redis) check() error {
	l := r.link.Load()
	if l == nil {
		var err error
		if l, err = r.connect(); err != nil {
			return err
		}
		r.link.Store(l)
	}
	key := r.objectKey("")
	if failed := r.health.probe.Load(); failed != nil {
		key = *failed
	}
	ctx, cancel := context.WithTimeout(r.closing, max(r.o.Timeout, defaultTimeout))
	defer cancel()
	begin := time.Now()
	for _, c := range []rueidis.Client{l.write, l.read} {
		if err := c.Do(ctx, c.B().Exists().Key(key).Build()).Error(); err != nil {
			return err
		}
	}
	err := r.replica(ctx, l.write)
	if errors.Is(err, errReplica) {
		r.renew()
	}
	if err == nil {
		r.contact.usual.Store(int64(time.Since(begin)))
	}
	return err
}

// statsEvery is how old Stats may be.
const statsEvery = 10 * time.Second

// look asks the server for its numbers. One that may not tell has none.
func (r *Redis) look() {
	l := r.link.Load()
	if l.read.Mode() == rueidis.ClientModeCluster {
		return
	}
	ctx, cancel := context.WithTimeout(r.closing, r.o.Timeout)
	defer cancel()
	var s store.Stats
	for _, section := range []string{"memory", "stats"} {
		text, err := l.read.Do(ctx, l.read.B().Info().Section(section).Build()).ToString()
		if err != nil {
			return
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				continue
			}
			switch name {
			case "used_memory":
				s.Bytes = n
			case "maxmemory":
				s.Limit = n
			case "evicted_keys":
				s.Evicted = uint64(n)
			}
		}
	}
	if n, err := l.read.Do(ctx, l.read.B().Dbsize().Build()).AsInt64(); err == nil {
		s.Objects = n
	}
	if s.Limit > 0 {
		s.Bytes = min(s.Bytes, s.Limit)
	}
	r.stats.Store(&s)
}

// word is the first word of an error answer, its code.
func word(text string) string {
	code, _, _ := strings.Cut(text, " ")
	return code
}
