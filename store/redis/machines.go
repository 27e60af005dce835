package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// This file is about the machines that listen: how far each has read the messages.

const (
	// silentFor is after how long without a sign of life a machine is said to be silent.
	silentFor = 5 * time.Second
	// forgottenAfter is after how long it is not waited for any more.
	forgottenAfter = time.Hour
	// markForm begins a machine's entry. Others are of another version.
	markForm = "1"
)

// machinesKey holds the machines, by their ids: form, the server's time in seconds, the
// last entry of the stream that the machine has read, and its name, with spaces between.
func (r *Redis) machinesKey() string { return r.prefix + "{" + r.stream() + "}machines" }

// self is this machine among the others.
type self struct {
	id string

	mu      sync.Mutex
	at      string // the last entry that was read; "": none
	cleaned bool
	left    bool
	failed  error // why the last mark did not reach the server
}

// reached notes that all messages up to an entry have taken effect.
func (s *self) reached(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = id
}

// markScript writes a machine's entry with the server's time. It answers with that, in
// seconds and microseconds.
const markScript = `local t = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. t[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
return t`

// mark tells the others how far this machine has read.
func (r *Redis) mark() error {
	s := &r.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == "" || s.left {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.closing, defaultTimeout) // Close waits for it
	defer cancel()
	s.failed = r.call(ctx, r.stream(), func(ctx context.Context, l *link) error {
		begin := time.Now()
		t, err := r.marker.Exec(ctx, l.write, []string{r.machinesKey()}, []string{s.id, markForm, s.at, r.o.Name}).AsIntSlice()
		if err == nil && len(t) == 2 {
			r.setClock(begin.Add(time.Since(begin) / 2).Sub(time.UnixMicro(t[0]*1e6 + t[1])))
		}
		return err
	})
	if s.failed == nil && !s.cleaned {
		s.cleaned = r.cleanUp(ctx) == nil
	}
	return s.failed
}

// wrongClock is by how much clocks may differ before somebody should do something about it.
const wrongClock = 10 * time.Second

// setClock notes by how much this machine's clock is ahead of the server's.
func (r *Redis) setClock(ahead time.Duration) {
	ahead = ahead.Round(time.Second)
	before := time.Duration(r.clock.Swap(int64(ahead)))
	if wrong := ahead.Abs() >= wrongClock; wrong && before.Abs() < wrongClock {
		r.log.Warn("this machine's clock differs from that of redis: set it, by NTP; until then ages of shared answers are corrected by the difference", "server", strings.Join(r.client.InitAddress, ","), "ahead", ahead)
	}
}

// ClockAhead is by how much this machine's clock is ahead of the server's, in seconds.
func (r *Redis) ClockAhead() time.Duration { return time.Duration(r.clock.Load()) }

// refused reports whether the server itself has said no.
func refused(err error) bool {
	_, ok := errors.AsType[*rueidis.RedisError](err)
	return ok
}

// cleanUp removes what earlier processes of this machine have left that could not say goodbye.
func (r *Redis) cleanUp(ctx context.Context) error {
	list, err := r.machines(ctx)
	for _, m := range list {
		if err == nil && m.name == r.o.Name && m.silent > silentFor {
			err = r.forget(ctx, m.id)
		}
	}
	return err
}

// leave has nobody wait for this machine any more.
func (r *Redis) leave() {
	s := &r.self
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != "" && !s.left && r.health.up() {
		ctx, cancel := context.WithTimeout(r.closing, defaultTimeout)
		defer cancel()
		_ = r.forget(ctx, s.id) // otherwise it is taken for silent
	}
	s.left = true
}

func (r *Redis) forget(ctx context.Context, ids ...string) error {
	return r.call(ctx, r.stream(), func(ctx context.Context, l *link) error {
		return l.write.Do(ctx, l.write.B().Hdel().Key(r.machinesKey()).Field(ids...).Build()).Error()
	})
}

// machine is one of those that listen.
type machine struct {
	id, name string
	at       string        // the last entry that it has read
	silent   time.Duration // since its last sign of life
}

// String says who it is, and what is known of it.
func (m machine) String() string {
	name := cmp.Or(m.name, m.id)
	if m.silent > silentFor {
		return fmt.Sprintf("%s, silent for %v", name, m.silent)
	}
	return name
}

// machinesScript answers with the server's time, and the machines' ids and entries.
const machinesScript = `local all = redis.call('HGETALL', KEYS[1])
table.insert(all, 1, redis.call('TIME')[1])
return all`

// machines lists those that have given a sign of life, and removes those that have not
// for long.
func (r *Redis) machines(ctx context.Context) (list []machine, err error) {
	var all []string
	err = r.call(ctx, r.stream(), func(ctx context.Context, l *link) (err error) {
		all, err = r.lister.Exec(ctx, l.write, []string{r.machinesKey()}, nil).AsStrSlice()
		return err
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	now, _ := strconv.ParseInt(all[0], 10, 64) // always a number
	for i := 1; i+1 < len(all); i += 2 {
		id := all[i]
		m := machine{id: id}
		part := strings.SplitN(all[i+1], " ", 4)
		if len(part) == 4 && part[0] == markForm {
			seconds, _ := strconv.ParseInt(part[1], 10, 64) // what is no number is long ago
			m.silent, m.at, m.name = time.Duration(now-seconds)*time.Second, part[2], part[3]
		}
		if m.at != "" && m.silent > forgottenAfter {
			_ = r.forget(ctx, id) // or the next time
			continue
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b machine) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id)) })
	return list, nil
}

// Announce is Publish for a message that all machines acknowledge. await returns when they
// have; or, when its context ends, with those that have not.
func (r *Redis) Announce(ctx context.Context, message []byte) (await func(context.Context) (missing []string, err error), err error) {
	id, err := r.publish(ctx, message, acknowledge)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) ([]string, error) { return r.acknowledged(ctx, id) }, nil
}

// errUnmarked tells that this machine cannot acknowledge anything itself.
var errUnmarked = errors.New("this machine is not among those that acknowledge")

func (r *Redis) acknowledged(ctx context.Context, id string) (missing []string, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		list, failed := r.machines(context.WithoutCancel(ctx))
		if failed == nil {
			missing, err = nil, errUnmarked
			for _, m := range list {
				if m.id == r.self.id {
					err = nil
				}
				if !reaches(m.at, id) {
					missing = append(missing, m.String())
				}
			}
			if err == nil && len(missing) == 0 {
				return nil, nil
			}
		} else {
			missing, err = nil, failed
		}
		if !sleep(ctx, pause, nil) {
			break
		}
	}
	if errors.Is(err, errUnmarked) {
		r.self.mu.Lock()
		defer r.self.mu.Unlock()
		err = errors.Join(err, r.self.failed)
	}
	return missing, err
}

// reaches reports whether an entry of the stream is not before another: 1526919030474-55.
func reaches(at, id string) bool {
	a, as, _ := strings.Cut(at, "-")
	b, bs, _ := strings.Cut(id, "-")
	return cmp.Or(number(a, b), number(as, bs)) >= 0
}

// number compares two numbers without leading zeros.
func number(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
