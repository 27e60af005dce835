package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"millrace/store"
)

// A lease is a string that expires: the name of who holds it or, for a while after that, a
// note of how it has ended. noteMark begins a note, and no name.
const noteMark = "!"

// holdScript takes a lease that nobody holds, or makes it longer for its holder, and returns
// its holder.
const holdScript = `local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and string.sub(holder, 1, 1) ~= '!' then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]`

// releaseScript ends a lease, if it has this holder still, and leaves a note, if there is one.
const releaseScript = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('UNLINK', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`

// noteTime is how long a note stays: longer than others take to look.
const noteTime = 2 * time.Second

func (r *Redis) leaseKey(key string) string { return r.prefix + "f:" + key }

// Hold takes the lease of a key for a time, or makes it longer if name holds it already, and
// returns the name of its holder.
func (r *Redis) Hold(ctx context.Context, key, name string, d time.Duration) (holder string, err error) {
	at, hold := r.leaseKey(key), rueidis.NewLuaScript(holdScript)
	err = r.call(ctx, at, func(ctx context.Context, l *link) (err error) {
		holder, err = hold.Exec(ctx, l.write, []string{at}, []string{name, strconv.FormatInt(d.Milliseconds(), 10)}).ToString()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("taking a lease in redis: %w", err)
	}
	return holder, nil
}

// Holder returns who holds the lease of a key; "": nobody. Of one that has ended with a note
// it returns the holder that it had, and the note.
func (r *Redis) Holder(ctx context.Context, key string) (holder, note string, err error) {
	var value string
	at := r.leaseKey(key)
	err = r.call(ctx, at, func(ctx context.Context, l *link) (err error) {
		value, err = l.read.Do(ctx, l.read.B().Get().Key(at).Build()).ToString()
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("looking at a lease in redis: %w", err)
	}
	if text, ended := strings.CutPrefix(value, noteMark); ended {
		note, holder, _ = strings.Cut(text, " ")
		return holder, note, nil
	}
	return value, "", nil
}

// Release ends the lease of a key that name holds. Who waits for its end sees the note for
// some seconds, unless it is empty.
func (r *Redis) Release(ctx context.Context, key, name, note string) error {
	if note != "" {
		note = noteMark + note + " " + name
	}
	at, release := r.leaseKey(key), rueidis.NewLuaScript(releaseScript)
	err := r.call(ctx, at, func(ctx context.Context, l *link) error {
		return release.Exec(ctx, l.write, []string{at}, []string{name, note, strconv.FormatInt(noteTime.Milliseconds(), 10)}).Error()
	})
	if err != nil {
		return fmt.Errorf("ending a lease in redis: %w", err)
	}
	return nil
}
