package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// countScript adds to a time at which the next request would be due (GCRA), in
// microseconds of the server's clock, grants as many further requests as the limit allows,
// and answers how far the time is ahead, and how many it has granted. The key is forgotten
// when the time has come.
//
// The server's clock may be set back, and a replica that takes over has another one. So a
// time that is further ahead than a burst and what a hundred machines let pass unasked counts
// as that: a client with 10/s is not locked out for longer than some 11 s, however wrong the
// clock was.
const countScript = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local want, interval, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local latest = now + most + 100 * math.max(interval, (most + interval) / 20)
local before = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local due = math.min(math.max(before, now), latest) + tonumber(ARGV[1])
local granted = 0
if want > 0 then
  granted = math.max(0, math.min(want, math.floor((most - math.max(due - now, 0)) / interval) + 1))
  due = due + granted * interval
end
local ahead = math.max(due - now, 0)
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil(ahead / 1000) + 1000)
return {ahead, granted}`

// Count is what is counted of a limit's client.
type Count struct {
	Name string        // has a key of its own below the prefix, which Redis forgets
	Cost time.Duration // what puts off the client's next request; may be less than zero
	// Want is how many further requests are wanted: each puts the next one off by Interval,
	// and none is granted that would be put off by more than Ahead.
	Want            int64
	Interval, Ahead time.Duration
}

// Counted is how a client stands.
type Counted struct {
	Ahead   time.Duration // of the time by now, by all machines' costs: those of the past are served
	Granted int64
}

// Count adds to what all machines have counted, and says how each client stands then.
func (r *Redis) Count(ctx context.Context, counts []Count) ([]Counted, error) {
	stand := make([]Counted, len(counts))
	script := rueidis.NewLuaScript(countScript)
	execs := make([]rueidis.LuaExec, len(counts))
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	for i, c := range counts {
		execs[i] = rueidis.LuaExec{
			Keys: []string{r.prefix + "l:" + c.Name},
			Args: []string{micros(c.Cost), strconv.FormatInt(c.Want, 10), micros(max(c.Interval, time.Microsecond)), micros(c.Ahead)},
		}
	}
	err := r.call(ctx, r.objectKey(""), func(ctx context.Context, l *link) error {
		for i, answer := range script.ExecMulti(ctx, l.write, execs...) {
			figures, err := answer.AsIntSlice()
			if err != nil {
				return err //nolint:wrapcheck // call does
			}
			if len(figures) != 2 {
				return errors.New("a script answers with something else than it does")
			}
			stand[i] = Counted{time.Duration(figures[0]) * time.Microsecond, figures[1]}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("counting in redis: %w", err)
	}
	return stand, nil
}
