package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// aheadScript adds to a time at which the next request would be due (GCRA), in
// microseconds of the server's clock, and answers how far that is ahead. The key is
// forgotten when the time has come.
const aheadScript = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') or 0, now) + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000) + 1000)
return due - now`

// Ahead adds a cost to each name, and says how far each is ahead of the time by now, of
// all machines' costs: those of the past are served. Names have keys of their own below
// the prefix, which Redis forgets.
func (r *Redis) Ahead(ctx context.Context, names []string, costs []time.Duration) ([]time.Duration, error) {
	ahead := make([]time.Duration, len(names))
	script := rueidis.NewLuaScript(aheadScript)
	execs := make([]rueidis.LuaExec, len(names))
	for i, name := range names {
		execs[i] = rueidis.LuaExec{Keys: []string{r.prefix + "l:" + name}, Args: []string{strconv.FormatInt(costs[i].Microseconds(), 10)}}
	}
	err := r.call(ctx, r.objectKey(""), func(ctx context.Context, l *link) error {
		for i, answer := range script.ExecMulti(ctx, l.write, execs...) {
			micros, err := answer.AsInt64()
			if err != nil {
				return err //nolint:wrapcheck // call does
			}
			ahead[i] = time.Duration(micros) * time.Microsecond
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("counting in redis: %w", err)
	}
	return ahead, nil
}
