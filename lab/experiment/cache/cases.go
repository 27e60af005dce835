package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The metrics of the cases.
const (
	slowest   = "slowest_ns"
	second    = "second_ns"
	firstByte = "first_byte_ns"
	asked     = "asked"
	purgeTime = "purge_ns"
	seen      = "seen_ns"
	stored    = "stored"
	peak      = "peak_rss_bytes"
)

func metrics() []record.Metric {
	return []record.Metric{
		{Key: slowest, Name: "longest wait of a client", Unit: "ns", About: "from asking to the last byte, of those that asked at once"},
		{Key: second, Name: "longest wait when they ask again", Unit: "ns"},
		{Key: firstByte, Name: "wait for the first byte of the body", Unit: "ns"},
		{Key: asked, Name: "requests that reached the API"},
		{Key: purgeTime, Name: "time of a purge", Unit: "ns", About: "from asking for it to its answer"},
		{Key: seen, Name: "time until a purge is seen", Unit: "ns", About: "from asking for it to the first new answer"},
		{Key: stored, Name: "share of the answers stored before the purge", Higher: true},
		{Key: peak, Name: "largest resident memory", Unit: "bytes", About: "of all its processes, while it is asked for ever other URLs"},
	}
}

const (
	slow           = 300 * time.Millisecond // what the API takes where it is slow
	coldClients    = 100
	privateClients = 50
	staleClients   = 20
	streaming      = time.Second
	joins          = 300 * time.Millisecond // after the first client
	streamed       = 10_000                 // bytes
	fresh          = time.Second
	mayBeStale     = time.Minute
	becomesStale   = fresh + 1100*time.Millisecond // nginx counts whole seconds
	refreshWithin  = slow + 300*time.Millisecond   // after the question that begins it
	// clientTimeout is longer than any of the caches makes a client wait for another.
	clientTimeout = 30 * time.Second
)

// path is one of a case's own, which no other slot of this instance asks for.
func path(name string, slot trial.TaskSlot) string {
	return "/" + name + "/" + strconv.Itoa(slot.Block)
}

// cold: many clients ask at once for what nobody has asked for.
func (m *measurement) cold(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	o := Object{Path: path("cold", slot), Delay: slow}
	c, err := dial(ctx, slot.URL, o, coldClients)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	before := m.api.Requests()
	got, err := c.wave(ctx, c.conns, o.Body(0))
	return got.result(map[string]float64{slowest: got.slowest, asked: float64(m.api.Requests() - before)}), err
}

// private: many clients ask at once for what must not be kept, and do it again.
func (m *measurement) private(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	o := Object{Path: path("private", slot), Delay: slow, Private: true}
	c, err := dial(ctx, slot.URL, o, privateClients)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	before := m.api.Requests()
	first, err := c.wave(ctx, c.conns, o.Body(0))
	if err != nil {
		return trial.TaskResult{}, err
	}
	again, err := c.wave(ctx, c.conns, o.Body(0))
	values := map[string]float64{slowest: first.slowest, second: again.slowest, asked: float64(m.api.Requests() - before)}
	again.done += first.done
	again.failed += first.failed
	return again.result(values), err
}

// follow: one client asks for an answer that takes a while to be sent, and
// another for the same while that is under way.
func (m *measurement) follow(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	o := Object{Path: path("follow", slot), Size: streamed, Stream: streaming}
	c, err := dial(ctx, slot.URL, o, 2)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	before := m.api.Requests()
	var leader waved
	var leaderErr error
	var leading sync.WaitGroup // of one goroutine, which ends with its answer
	leading.Go(func() { leader, leaderErr = c.wave(ctx, c.conns[:1], o.Body(0)) })
	err = experiment.Sleep(ctx, joins)
	got, waveErr := c.wave(ctx, c.conns[1:], o.Body(0))
	leading.Wait()
	got.done += leader.done
	got.failed += leader.failed
	return got.result(map[string]float64{firstByte: got.first, asked: float64(m.api.Requests() - before)}), errors.Join(err, waveErr, leaderErr)
}

// stale: some clients ask at once for what is too old, and may be served while
// it is fetched anew, which takes a while.
func (m *measurement) stale(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	o := Object{Path: path("stale", slot), Age: fresh, Stale: mayBeStale, Versioned: true}
	c, err := dial(ctx, slot.URL, o, staleClients)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	if _, err := c.wave(ctx, c.conns[:1], o.Body(m.version)); err != nil {
		return trial.TaskResult{}, err
	}
	if err := experiment.Sleep(ctx, becomesStale); err != nil {
		return trial.TaskResult{}, err
	}
	m.newVersion()
	m.api.SetDelay(slow)
	defer m.api.SetDelay(0)
	before := m.api.Requests()
	slot.Window(true)
	got, err := c.wave(ctx, c.conns, o.Body(m.version-1), o.Body(m.version))
	err = errors.Join(err, experiment.Sleep(ctx, refreshWithin))
	return got.result(map[string]float64{slowest: got.slowest, asked: float64(m.api.Requests() - before)}), err
}

// newVersion changes the API's answers.
func (m *measurement) newVersion() {
	m.version++
	m.api.SetVersion(m.version)
}

// clients are connections that ask for one thing.
type clients struct {
	target string
	dialer client.Dialer
	conns  []client.Conn
}

// dial opens connections that hangUp closes.
func dial(ctx context.Context, url string, o Object, n int) (*clients, error) {
	d, err := client.New(client.Options{Protocol: "http1", URL: url, Paths: []string{o.Target()}, Timeout: clientTimeout})
	if err != nil {
		return nil, err
	}
	c := &clients{target: o.Target(), dialer: d}
	for range n {
		conn, err := d.Dial(ctx)
		if err != nil {
			c.hangUp()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *clients) hangUp() {
	for _, conn := range c.conns {
		_ = conn.Close() // what it has to say no longer matters
	}
	_ = c.dialer.Close()
}

// waved is what a wave of requests has brought.
type waved struct {
	slowest, first float64 // ns: the last byte, the first byte of a body
	done, failed   uint64  // clients
	firstFailure   string
}

func (w waved) result(values map[string]float64) trial.TaskResult {
	return trial.TaskResult{Values: values, Done: w.done, Failed: w.failed, FirstFailure: w.firstFailure}
}

// A body is what comes of one, and when it began to come.
type body struct {
	strings.Builder
	first time.Time
}

func (b *body) Write(p []byte) (int, error) {
	if b.first.IsZero() {
		b.first = time.Now()
	}
	return b.Builder.Write(p)
}

// wave lets clients ask at the same moment. An answer 200 that is none of the
// right ones is an error; any other is a failure, and counts.
func (c *clients) wave(ctx context.Context, conns []client.Conn, right ...[]byte) (waved, error) {
	bodies := make([]body, len(conns))
	answers := make([]client.Answer, len(conns))
	took := make([]time.Duration, len(conns))
	errs := make([]error, len(conns))
	start := make(chan struct{})
	var began time.Time
	var all sync.WaitGroup // of one goroutine for each client, which ends with its answer
	for i, conn := range conns {
		all.Go(func() {
			<-start
			answers[i], errs[i] = conn.Do(ctx, 0, &bodies[i])
			took[i] = time.Since(began)
		})
	}
	began = time.Now()
	close(start)
	all.Wait()
	var got waved
	for i, a := range answers {
		if errs[i] == nil && a.Status != http.StatusOK {
			errs[i] = fmt.Errorf("status %d", a.Status)
		}
		if errs[i] != nil {
			if got.failed++; got.failed == 1 {
				got.firstFailure = errs[i].Error()
			}
			continue
		}
		if text := []byte(bodies[i].String()); !isOneOf(text, right) {
			return got, fmt.Errorf("the answer to %s is not the API's: %d bytes, %.80q", c.target, len(text), text)
		}
		got.done++
		got.slowest = max(got.slowest, float64(took[i]))
		got.first = max(got.first, float64(bodies[i].first.Sub(began)))
	}
	return got, nil
}

func isOneOf(body []byte, right [][]byte) bool {
	return slices.ContainsFunc(right, func(b []byte) bool { return bytes.Equal(body, b) })
}
