package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/upstream"
)

// Mirror sends copies of requests to another upstream, whose answers nobody gets:
// to try a new version with real traffic. No client waits for it.
type Mirror struct {
	// To are the addresses that get the copies, as in "to". Timeouts and TLS are the
	// route's. Required.
	To []string `yaml:"to"`
	// Share is how many requests are copied, in percent. Default 100.
	Share float64 `yaml:"share"`
	// Body is the longest body of a request that is copied. Requests with a longer
	// one are not mirrored, nor are those whose body is not taken in before they
	// are passed on (stream, gRPC), and upgrades. Default 64KiB.
	Body bytesize.Size `yaml:"body"`
}

const (
	// mostCopies is how many copies may be under way to one mirror; further
	// requests are not mirrored.
	mostCopies = 256
	// mostHeld is how many bytes of bodies copies under way may hold in all.
	mostHeld = 64 << 20
	// copyTime is how long one may take until its answer has ended.
	copyTime = time.Minute
	// mostBody is what Mirror.Body may be.
	mostBody = 16 << 20
)

// UnmarshalText lets a config say "mirror: http://127.0.0.1:5001".
func (m *Mirror) UnmarshalText(text []byte) error {
	var o upstream.Options
	if err := o.UnmarshalText(text); err != nil {
		return err //nolint:wrapcheck // it says what is wrong with the address
	}
	*m = Mirror{To: o.To}
	return nil
}

// check puts what is wrong with a mirror into faults, by its key.
func (m *Mirror) check(o Options, faults map[string]error) {
	if len(m.To) == 0 {
		if m.Share != 0 || m.Body != 0 {
			faults["mirror.to"] = errors.New("a mirror needs an address: to: http://127.0.0.1:5001")
		}
		return
	}
	for key, err := range o.OfMirror().Check() {
		if strings.HasPrefix(key, "to") { // the others are the route's
			faults["mirror."+key] = err
		}
	}
	if !(m.Share >= 0 && m.Share <= 100) {
		faults["mirror.share"] = fmt.Errorf("%v is not a percentage: write 10 for one request in ten", m.Share)
	}
	if m.Body > mostBody {
		faults["mirror.body"] = fmt.Errorf("%s is too long for a copy in memory: at most 16MiB", m.Body)
	}
	if o.Stream {
		faults["mirror.to"] = errors.New("with stream: true bodies are passed on as they come, and cannot be sent twice")
	}
}

// OfMirror are the options of the mirror's pool. It never repeats a copy.
func (o Options) OfMirror() upstream.Options {
	m := o.Options
	m.To, m.Weights, m.Sticky = o.Mirror.To, nil, upstream.Sticky{}
	m.Retries = upstream.Retries{Attempts: 1}
	m.Health.Path, m.Health.Body = "", ""
	return m
}

// Copies sends copies to a mirror. It must be closed.
type Copies struct {
	pool      upstream.Doer
	percent   float64
	body      int64
	dropped   func()
	free      chan struct{}
	bodyBytes atomic.Int64 // bytes of bodies
	ctx       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// NewCopies makes the sender of copies. The pool stays the caller's to close. dropped
// is called for each request that is not mirrored because too many copies are under
// way.
func NewCopies(m Mirror, pool upstream.Doer, dropped func()) *Copies {
	c := &Copies{
		pool: pool, percent: cmp.Or(m.Share, 100), body: int64(cmp.Or(max(m.Body, 0), 64<<10)), dropped: dropped,
		free: make(chan struct{}, mostCopies),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Mirror has the handler send copies of its requests. It must be called before
// the first one.
func (h *Handler) Mirror(c *Copies) { h.copies = c }

// Close ends copies that are under way.
func (c *Copies) Close() error {
	c.stop()
	c.running.Wait()
	return nil
}

// send sends a copy of a request that is about to be passed on, whose body, if it has one,
// was taken in before.
func (c *Copies) send(out *upstream.Request, body *upload) {
	if c == nil || !c.wants(out) || body != nil && body.queue == nil {
		return
	}
	if leave := c.enter(out.Length); leave != nil {
		content, ok := c.read(body)
		c.start(out, content, ok, leave)
	}
}

// sendWhole is send for a request whose body is in memory, which is used again.
func (c *Copies) sendWhole(out *upstream.Request, body []byte) {
	if c == nil || !c.wants(out) {
		return
	}
	if leave := c.enter(out.Length); leave != nil {
		c.start(out, bytes.Clone(body), true, leave)
	}
}

// wants reports whether a request is to be copied.
func (c *Copies) wants(out *upstream.Request) bool {
	return !out.Fields.Has("Upgrade") && (c.percent >= 100 || rand.Float64()*100 < c.percent) && out.Length <= c.body
}

// enter takes a place for a copy with a body of a length, -1 where it is not known. nil:
// there is none.
func (c *Copies) enter(length int64) (leave func()) {
	select {
	case c.free <- struct{}{}:
	default:
		c.dropped()
		return nil
	}
	if length < 0 {
		length = c.body
	}
	leave = func() {
		c.bodyBytes.Add(-length)
		<-c.free
	}
	if c.bodyBytes.Add(length) > mostHeld {
		c.dropped()
		leave()
		return nil
	}
	return leave
}

// read copies a body. It reports false if that is longer than is allowed.
func (c *Copies) read(body *upload) (all []byte, ok bool) {
	if body == nil {
		return nil, true
	}
	all, err := io.ReadAll(io.LimitReader(body.queue.Reader(), c.body+1))
	return all, err == nil && int64(len(all)) <= c.body
}

// start has a goroutine make the request, if it is ok, and then leave. Close waits for it.
func (c *Copies) start(out *upstream.Request, body []byte, ok bool, leave func()) {
	if !ok {
		leave()
		return
	}
	q := *out
	q.Fields = slices.Clone(out.Fields)
	q.Fields.Delete("Trailer")
	q.Body, q.Again, q.Trailer, q.Length = nil, nil, nil, int64(len(body))
	if len(body) > 0 {
		q.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.running.Go(func() {
		defer leave()
		ctx, cancel := context.WithTimeout(c.ctx, copyTime)
		defer cancel()
		a, err := c.pool.Do(ctx, &q, nil)
		if err != nil {
			return // the pool says when a server fails
		}
		_, _ = io.Copy(io.Discard, a.Body) // so that its connection can be used again
		a.Body.Close()
	})
}
