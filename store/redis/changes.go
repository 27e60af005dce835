package redis

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// mostChanges is how many keys wait to be told. Above, all may have changed.
const mostChanges = 4096

// changes are the changes that Redis has reported, before Changed is called with them.
type changes struct {
	mu   sync.Mutex
	keys []string
	all  bool
	wake chan struct{}
}

// add never waits: it is called by the goroutine that reads the connection.
func (c *changes) add(keys []string) {
	c.mu.Lock()
	if keys == nil || len(c.keys)+len(keys) > mostChanges {
		c.all, c.keys = true, nil
	} else if !c.all {
		c.keys = append(c.keys, keys...)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *changes) take() (keys []string, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys, all = c.keys, c.all
	c.keys, c.all = nil, false
	return keys, all
}

// notify calls f until ctx ends. Open starts it, Close waits for it.
func (c *changes) notify(ctx context.Context, f func([]string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		if keys, all := c.take(); all {
			f(nil)
		} else if len(keys) > 0 {
			f(keys)
		}
	}
}

// invalidated is called by the client: with nil when a connection is lost or
// the server was flushed.
func (r *Redis) invalidated(messages []rueidis.RedisMessage) {
	if messages == nil {
		r.changes.add(nil)
		return
	}
	prefix := r.objectKey("")
	keys := make([]string, 0, len(messages))
	for i := range messages {
		name, err := messages[i].ToString()
		if key, ours := strings.CutPrefix(name, prefix); err == nil && ours {
			keys = append(keys, strings.Clone(key))
		}
	}
	if len(keys) > 0 {
		r.changes.add(keys)
	}
}
