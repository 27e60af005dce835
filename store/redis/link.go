package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// askSentinels is how often Sentinels are asked for the master.
const askSentinels = 5 * time.Second

// settings are those of all clients.
func (r *Redis) settings() rueidis.ClientOption {
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
	// Sentinels tell when another server has become the master. That can be missed.
	o.Sentinel.Dialer, o.Sentinel.ClientName = o.Dialer, o.ClientName
	o.Sentinel.TopologyRefreshInterval = askSentinels
	return o
}

// connect makes the clients. It takes no longer than some timeouts.
func (r *Redis) connect() (*link, error) {
	o := r.settings()
	if len(o.InitAddress) > 1 && o.Sentinel.MasterSet == "" {
		master, err := r.findMaster(o)
		if err != nil {
			return nil, err
		}
		if master != "" {
			o.InitAddress, o.ForceSingleClient = []string{master}, true
		}
	}
	read, err := newClient(o)
	if err != nil {
		return nil, err
	}
	if read.Mode() == rueidis.ClientModeCluster && o.SelectDB != 0 {
		read.Close()
		return nil, fmt.Errorf("it is a cluster, which has no database %d", o.SelectDB)
	}
	o.PipelineMultiplex = -1 // one connection to each server
	write, err := newClient(o)
	if err != nil {
		read.Close()
		return nil, err
	}
	return &link{read, write}, nil
}

// newClient is rueidis.NewClient, which leaves a client also where it fails.
func newClient(o rueidis.ClientOption) (rueidis.Client, error) {
	o.InitAddress = slices.Clone(o.InitAddress)
	c, err := rueidis.NewClient(o)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, err
	}
	return c, nil
}

// findMaster asks several servers what they are, and returns the master among them; "" where
// they are a cluster. Of two masters one has been replaced and does not know it yet:
// neither is used.
func (r *Redis) findMaster(o rueidis.ClientOption) (string, error) {
	texts, errs := make([]string, len(o.InitAddress)), make([]error, len(o.InitAddress))
	var all sync.WaitGroup
	for i, address := range o.InitAddress {
		all.Go(func() { texts[i], errs[i] = r.info(o, address) })
	}
	all.Wait()
	var masters, others []string
	for i, address := range o.InitAddress {
		switch {
		case refuses(errs[i], "NOPERM"), strings.Contains(texts[i], "cluster_enabled:1\r"):
			return "", nil
		case errs[i] != nil:
			others = append(others, errs[i].Error())
		case strings.Contains(texts[i], "role:slave\r"):
			others = append(others, address+" is a replica")
		default:
			masters = append(masters, address)
		}
	}
	switch len(masters) {
	case 0:
		return "", fmt.Errorf("none of the servers is a master: %s", strings.Join(others, "; "))
	case 1:
		return masters[0], nil
	}
	return "", fmt.Errorf("%s are masters, each of its own: make all but one its replicas, or name their Sentinels with redis-sentinel://", strings.Join(masters, " and "))
}

// info asks one server for its state.
func (r *Redis) info(o rueidis.ClientOption, address string) (string, error) {
	o.InitAddress, o.ForceSingleClient = []string{address}, true
	c, err := newClient(o)
	if err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(r.closing, o.Dialer.Timeout)
	defer cancel()
	text, err := c.Do(ctx, c.B().Info().Build()).ToString()
	if err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	return text, nil
}

// supervise reaches the server, again and again while it does not answer, and
// looks after it while it does. Open starts it, Close waits for it.
func (r *Redis) supervise() {
	var pause backoff
	var looked time.Time
	for {
		round := r.checks.begun.Add(1)
		err := plain(r.check())
		r.note(err)
		wait := checkEvery
		if err != nil {
			r.checks.failed.Store(round)
			r.caughtUp.wake()
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

// note takes down the result of a check.
func (r *Redis) note(err error) {
	if r.health.checked(err) && r.closing.Err() == nil {
		r.logState(err)
		r.resubscribe()
	}
}

func (r *Redis) logState(err error) {
	if err == nil {
		r.log.Info("redis works", "server", r.server())
		return
	}
	r.log.Warn("redis cannot be used; caches and limits go on without it", "server", r.server(), "error", err)
}

// server names the server that is used: the master of a group, or all of a cluster's in the
// URL.
func (r *Redis) server() string {
	if l := r.link.Load(); l != nil && l.write.Mode() != rueidis.ClientModeCluster {
		for address := range l.write.Nodes() {
			return address
		}
	}
	return strings.Join(r.client.InitAddress, ",")
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

// check asks every server for something. Where that fails, it connects anew: behind the name,
// among the servers of the URL, or for Sentinels, another one may have taken over. The
// client of a cluster finds that one itself. That of Sentinels does, too, but may wait for
// the old one meanwhile.
func (r *Redis) check() error {
	l := r.link.Load()
	if l != nil {
		err := r.probe(l)
		if err == nil || l.write.Mode() == rueidis.ClientModeCluster {
			return err
		}
		r.note(err)
		if time.Since(r.renewed) < longestPause/2 {
			return err // it may be checked more often than that
		}
	}
	r.renewed = time.Now()
	next, err := r.connect()
	if err != nil {
		return err
	}
	if l = r.link.Swap(next); l != nil {
		r.wg.Go(l.close) // which may wait for a server that hangs
	}
	return r.probe(next)
}

// probe asks every server of a link for something.
func (r *Redis) probe(l *link) error {
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
	if err == nil {
		r.contact.took(time.Since(begin))
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
