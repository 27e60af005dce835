// Package cache is what of the experiments cache and api-cache is code. cache has an
// API in this process, and cases in which a cache decides how long clients wait and how
// often the API is asked. api-cache has a slow API behind each cache, and clients that
// look at every answer.
package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

const (
	slow          = 300 * time.Millisecond // what the API takes where it is slow
	streaming     = time.Second
	joins         = 300 * time.Millisecond // after the first client
	streamed      = 10_000                 // bytes
	fresh         = time.Second
	mayBeStale    = time.Minute
	becomesStale  = fresh + 1100*time.Millisecond // nginx counts whole seconds
	refreshWithin = slow + 300*time.Millisecond   // after the question that begins it
	// clientTimeout is longer than any of the caches makes a client wait for another.
	clientTimeout = 30 * time.Second

	tag = "all"
	// looked is how many of the tagged answers are asked for to see whether they
	// are stored.
	looked = 1000
	// heated is how often an answer is asked for before it is purged, so that the
	// quickest way to it is the one that has to forget.
	heated = 5
	// seenWithin is how long a purge may take to show before the run ends.
	seenWithin = 5 * time.Second
	// hands is how many connections ask for new answers: enough to keep two cores
	// busy.
	hands = 4
	// floodWithin bounds one flood.
	floodWithin = 2 * time.Minute
	// watchEvery is how often memory is read.
	watchEvery = 100 * time.Millisecond
)

// measurement is one run of the experiment cache.
type measurement struct {
	api     *Server
	version uint64 // of the API's answers
}

// Hooks are those of the experiment cache.
func Hooks(r *experiment.Run) experiment.Hooks {
	m := &measurement{}
	return experiment.Hooks{
		Prepare: func(context.Context) (err error) {
			if m.api, err = Start(); err != nil {
				return err
			}
			r.Defer(func() error { m.api.Close(); return nil })
			r.Fields["Upstream"] = m.api.Address()
			r.Fields["UpstreamHost"], r.Fields["UpstreamPort"], err = net.SplitHostPort(m.api.Address())
			return err
		},
		Tasks: map[string]experiment.Task{
			"cold": m.cold, "private": m.private, "follow": m.follow, "stale": m.stale, "ever-new": m.everNew, "purge": m.purge,
		},
	}
}

// clients are connections that ask for one thing.
type clients struct {
	*experiment.Clients
	target string
	dialer client.Dialer
	api    *Server
	before uint64 // the API's requests when they came
}

// dial opens connections that ask for a workload's object, of a path that no other slot
// of this instance asks for.
func (m *measurement) dial(ctx context.Context, slot trial.TaskSlot, n int, o Object) (*clients, error) {
	d, err := client.New(client.Options{Protocol: "http1", URL: slot.URL, Paths: []string{o.Target()}, Timeout: clientTimeout})
	if err != nil {
		return nil, err
	}
	c := &clients{Clients: experiment.Gather(ctx, d, n, nil), target: o.Target(), dialer: d, api: m.api, before: m.api.Requests()}
	if c.Err != nil {
		c.hangUp()
		return nil, c.Err
	}
	return c, nil
}

func (c *clients) hangUp() {
	c.Part()
	_ = c.dialer.Close() // what it has to say no longer matters
}

// asked is how many requests have reached the API since these clients came.
func (c *clients) asked() float64 { return float64(c.api.Requests() - c.before) }

func path(name string, slot trial.TaskSlot) string {
	return "/" + name + "/" + strconv.Itoa(slot.Block)
}

// cold: many clients ask at once for what nobody has asked for.
func (m *measurement) cold(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	o := Object{Path: path("cold", slot), Delay: slow}
	c, err := m.dial(ctx, slot, w.Connections, o)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	got, err := c.wave(ctx, c.Conns, o.Body(0))
	return got.result("slowest_ns", got.slowest, "asked", c.asked()), err
}

// private: many clients ask at once for what must not be kept, and do it again.
func (m *measurement) private(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	o := Object{Path: path("private", slot), Delay: slow, Private: true}
	c, err := m.dial(ctx, slot, w.Connections, o)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	first, err := c.wave(ctx, c.Conns, o.Body(0))
	if err != nil {
		return trial.TaskResult{}, err
	}
	again, err := c.wave(ctx, c.Conns, o.Body(0))
	again.done += first.done
	again.failed += first.failed
	return again.result("slowest_ns", first.slowest, "second_ns", again.slowest, "asked", c.asked()), err
}

// follow: one client asks for an answer that takes a while to be sent, and
// another for the same while that is under way.
func (m *measurement) follow(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	o := Object{Path: path("follow", slot), Size: streamed, Stream: streaming}
	c, err := m.dial(ctx, slot, w.Connections, o)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	var leader waved
	var leaderErr error
	var leading sync.WaitGroup // of one goroutine, which ends with its answer
	leading.Go(func() { leader, leaderErr = c.wave(ctx, c.Conns[:1], o.Body(0)) })
	err = experiment.Sleep(ctx, joins)
	got, waveErr := c.wave(ctx, c.Conns[1:], o.Body(0))
	leading.Wait()
	got.done += leader.done
	got.failed += leader.failed
	return got.result("first_byte_ns", got.first, "asked", c.asked()), errors.Join(err, waveErr, leaderErr)
}

// stale: some clients ask at once for what is too old, and may be served while
// it is fetched anew, which takes a while.
func (m *measurement) stale(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	o := Object{Path: path("stale", slot), Age: fresh, Stale: mayBeStale, Versioned: true}
	c, err := m.dial(ctx, slot, w.Connections, o)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	_, err = c.wave(ctx, c.Conns[:1], o.Body(m.version))
	if err = errors.Join(err, experiment.Sleep(ctx, becomesStale)); err != nil {
		return trial.TaskResult{}, err
	}
	m.newVersion()
	m.api.SetDelay(slow)
	defer m.api.SetDelay(0)
	c.before = m.api.Requests()
	slot.Window(true)
	got, err := c.wave(ctx, c.Conns, o.Body(m.version-1), o.Body(m.version))
	err = errors.Join(err, experiment.Sleep(ctx, refreshWithin))
	return got.result("slowest_ns", got.slowest, "asked", c.asked()), err
}

// newVersion changes the API's answers.
func (m *measurement) newVersion() {
	m.version++
	m.api.SetVersion(m.version)
}

// waved is what a wave of requests has brought.
type waved struct {
	slowest, first float64 // ns: the last byte, the first byte of a body
	done, failed   uint64  // clients
	firstFailure   string
}

// result has pairs of a metric and its figure.
func (w waved) result(pairs ...any) trial.TaskResult {
	values := map[string]float64{}
	for pair := range slices.Chunk(pairs, 2) {
		values[pair[0].(string)] = pair[1].(float64)
	}
	return trial.TaskResult{Values: values, Done: w.done, Failed: w.failed, FirstFailure: w.firstFailure}
}

// A body is what comes of one, and when it began to come.
type body struct {
	text  []byte
	first time.Time
}

func (b *body) Write(p []byte) (int, error) {
	if b.first.IsZero() {
		b.first = time.Now()
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// wave lets clients ask at the same moment. An answer 200 that is none of the
// right ones is an error; any other is a failure, and counts.
func (c *clients) wave(ctx context.Context, conns []client.Conn, right ...[]byte) (got waved, err error) {
	start := make(chan struct{})
	var began time.Time
	var mu sync.Mutex      // guards got and err
	var all sync.WaitGroup // of one goroutine for each client, which ends with its answer
	for _, conn := range conns {
		all.Go(func() {
			<-start
			var b body
			a, askErr := conn.Do(ctx, 0, &b)
			took := time.Since(began)
			if askErr == nil && a.Status != http.StatusOK {
				askErr = fmt.Errorf("status %d", a.Status)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case askErr != nil:
				if got.failed++; got.failed == 1 {
					got.firstFailure = askErr.Error()
				}
			case !slices.ContainsFunc(right, func(r []byte) bool { return bytes.Equal(b.text, r) }):
				err = fmt.Errorf("the answer to %s is not the API's: %d bytes, %.80q", c.target, len(b.text), b.text)
			default:
				got.done++
				got.slowest, got.first = max(got.slowest, float64(took)), max(got.first, float64(b.first.Sub(began)))
			}
		})
	}
	began = time.Now()
	close(start)
	all.Wait()
	return got, err
}

// flood asks for objects, each once, as fast as they come, and compares every
// answer.
func (m *measurement) flood(ctx context.Context, url string, count int, object func(i int) Object) error {
	return experiment.Each(hands, hands, func(hand int) error {
		from, to := count*hand/hands, count*(hand+1)/hands
		var paths []string
		for i := from; i < to; i++ {
			paths = append(paths, object(i).Target())
		}
		got, err := load.Run(ctx, load.Config{
			URL: url, Paths: paths, Connections: 1, Threads: 1, Requests: uint64(len(paths)), Duration: floodWithin, Timeout: clientTimeout,
		})
		if err != nil {
			return err
		}
		if n := got.Errors.Sum(); n > 0 || got.Requests < uint64(len(paths)) {
			return fmt.Errorf("%d of %d requests were answered, %d failed, first: %s", got.Requests, len(paths), n, got.Errors.First)
		}
		for i, a := range got.Answers {
			right := fnv.New64a()
			_, _ = right.Write(object(from + i).Body(m.version)) // it never fails
			if a.Path != paths[i] || a.Status != http.StatusOK || a.Hash != right.Sum64() {
				return fmt.Errorf("the answer to %s is not the API's: status %d, %d bytes", a.Path, a.Status, a.Length)
			}
		}
		return nil
	})
}

// everNew watches the memory of a cache that is asked for ever other URLs.
func (m *measurement) everNew(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	watched := experiment.WatchMemory(slot.Target, watchEvery)
	err := m.flood(ctx, slot.URL, w.Count, func(i int) Object { return Object{Path: "/url/" + strconv.Itoa(i), Size: 1 << 10} })
	readings, watchErr := watched()
	return trial.TaskResult{Values: map[string]float64{"peak_rss_bytes": float64(experiment.MostRSS(readings))}, Done: uint64(w.Count)}, errors.Join(err, watchErr)
}

// purge fills a cache with tagged answers, changes the API's answers, has the tag
// forgotten and asks until the new answer comes.
func (m *measurement) purge(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	tagged := func(i int) Object { return Object{Path: "/tagged/" + strconv.Itoa(i), Tag: tag, Versioned: true} }
	if err := m.flood(ctx, slot.URL, w.Count, tagged); err != nil {
		return got, fmt.Errorf("filling it: %w", err)
	}
	before := m.api.Requests()
	if err := m.flood(ctx, slot.URL, looked, func(i int) Object { return tagged(i * (w.Count / looked)) }); err != nil {
		return got, fmt.Errorf("looking what it stores: %w", err)
	}
	values := map[string]float64{"stored": 1 - float64(m.api.Requests()-before)/looked}
	o := tagged(slot.Random.IntN(w.Count))
	c, err := m.dial(ctx, slot, 1, o)
	if err != nil {
		return got, err
	}
	defer c.hangUp()
	for range heated {
		if _, err := c.wave(ctx, c.Conns, o.Body(m.version)); err != nil {
			return got, err
		}
	}
	m.newVersion()
	slot.Window(true)
	began := time.Now()
	if err := forget(ctx, slot); err != nil {
		return got, fmt.Errorf("purging: %w", err)
	}
	values["purge_ns"] = float64(time.Since(began))
	for {
		var b bytes.Buffer
		a, err := c.Conns[0].Do(ctx, 0, &b)
		since := time.Since(began)
		switch {
		case err != nil || a.Status != http.StatusOK:
			return got, errors.Join(err, fmt.Errorf("asking for %s: status %d", o.Target(), a.Status))
		case bytes.Equal(b.Bytes(), o.Body(m.version)):
			values["seen_ns"] = float64(since)
			return trial.TaskResult{Values: values, Done: 1}, nil
		case since > seenWithin:
			return got, fmt.Errorf("%v after the purge, %s is still answered as before", seenWithin, o.Target())
		}
	}
}

// forget has a cache forget the tag: by a call of millrace's admin socket, or as
// our VCL has Varnish take it.
func forget(ctx context.Context, slot trial.TaskSlot) error {
	client := &http.Client{Timeout: clientTimeout}
	method, url, text := "BAN", slot.URL, ""
	if socket := slot.Instance.URL["control"]; socket != "" {
		client = experiment.Admin(socket, clientTimeout)
		method, url, text = http.MethodPost, "http://localhost/cache/purge", `{"tag":"`+tag+`"}`
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tag", tag)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it is answered with %s: %.200s", resp.Status, reply)
	}
	return err
}
