package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/client"
	"millrace/bench/subjects/internal/origin"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// The cases, by their names in the raw data.
const (
	Cold    = "cold"    // many ask at once for what nobody has asked for
	Private = "private" // many ask at once for what must not be kept
	Follow  = "follow"  // one asks for what is being sent to another
	Stale   = "stale"   // many ask for what is old and may be served for a while
	Purged  = "purged"  // a tag is forgotten
)

// The values of the cases.
const (
	Slowest = "slowest_ms"    // of all clients, from asking to the last byte
	Second  = "second_ms"     // Slowest of a second wave
	First   = "first_byte_ms" // of the body
	Asked   = "asked"         // requests that reached the API
	Failed  = "failed"        // clients without an answer, or with a status other than 200
	Purge   = "purge_ms"      // from asking for a purge to its answer
	Seen    = "seen_ms"       // from there to a new answer
	Stored  = "stored"        // share of the answers that were there before
)

const (
	slow          = 300 * time.Millisecond // what the API takes where it is slow
	coldClients   = 100
	pageClients   = 50 // of a page that must not be kept
	staleClients  = 20
	streaming     = time.Second
	joins         = 300 * time.Millisecond // after the first client
	streamed      = 10_000                 // bytes
	fresh         = time.Second
	mayBeStale    = time.Minute
	becomesStale  = fresh + 1100*time.Millisecond // nginx counts whole seconds
	refreshWithin = slow + 300*time.Millisecond   // after the question that begins it
)

// cases runs all cases as often as planned, on one cache after the other.
func (r *runner) cases(ctx context.Context) error {
	for round := 1; round <= r.plan.Cases; round++ {
		arms := append([]arm.Arm(nil), r.Plan.Arms...)
		stage.Shuffle(r.Random, arms)
		for _, a := range arms {
			for _, c := range []struct {
				name string
				run  func(context.Context, *arm.Running, string) (map[string]float64, error)
			}{{Cold, r.cold}, {Private, r.private}, {Follow, r.follow}, {Stale, r.stale}} {
				values, err := c.run(ctx, r.Servers[a.Name], "/"+c.name+"/"+strconv.Itoa(round))
				if err != nil {
					return fmt.Errorf("%s, case %s: %w", a.Name, c.name, err)
				}
				r.Run.Cases = append(r.Run.Cases, record.Case{Name: c.name, Round: round, Arm: a.Name, Values: values})
			}
			r.Meter.Step(caseGuess, "run %d of the cases: %-15s %s", round, a.Name, r.latest())
		}
	}
	return nil
}

// latest is a word about each case that was run last.
func (r *runner) latest() string {
	var b bytes.Buffer
	for _, c := range r.Run.Cases[len(r.Run.Cases)-4:] {
		v := c.Values[Slowest]
		if c.Name == Follow {
			v = c.Values[First]
		}
		fmt.Fprintf(&b, "%s %.1f ms, ", c.Name, v)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte(", ")))
}

// cold: 100 clients ask at once for what nobody has asked for.
func (r *runner) cold(ctx context.Context, server *arm.Running, path string) (map[string]float64, error) {
	o := origin.Object{Path: path, Delay: slow}
	clients, err := dial(ctx, server, coldClients)
	if err != nil {
		return nil, err
	}
	defer hangUp(clients)
	before := r.api.Requests()
	got, err := wave(clients, o.Target(), o.Body(0))
	return map[string]float64{
		Slowest: got.slowest, Failed: got.failed, Asked: float64(r.api.Requests() - before),
	}, err
}

// private: 50 clients ask at once for what must not be kept, and do it again.
func (r *runner) private(ctx context.Context, server *arm.Running, path string) (map[string]float64, error) {
	o := origin.Object{Path: path, Delay: slow, Private: true}
	clients, err := dial(ctx, server, pageClients)
	if err != nil {
		return nil, err
	}
	defer hangUp(clients)
	before := r.api.Requests()
	first, err1 := wave(clients, o.Target(), o.Body(0))
	second, err2 := wave(clients, o.Target(), o.Body(0))
	return map[string]float64{
		Slowest: first.slowest, Second: second.slowest, Failed: first.failed + second.failed,
		Asked: float64(r.api.Requests() - before),
	}, errors.Join(err1, err2)
}

// follow: one client asks for an answer that takes a second to be sent, and
// another for the same while that is under way.
func (r *runner) follow(ctx context.Context, server *arm.Running, path string) (map[string]float64, error) {
	o := origin.Object{Path: path, Size: streamed, Stream: streaming}
	clients, err := dial(ctx, server, 2)
	if err != nil {
		return nil, err
	}
	defer hangUp(clients)
	before := r.api.Requests()
	leader := make(chan waved, 1)
	go func() {
		got, err := wave(clients[:1], o.Target(), o.Body(0))
		got.err = err
		leader <- got
	}()
	err = stage.Sleep(ctx, joins)
	got, werr := wave(clients[1:], o.Target(), o.Body(0))
	led := <-leader
	return map[string]float64{
		First: got.first, Failed: got.failed + led.failed, Asked: float64(r.api.Requests() - before),
	}, errors.Join(err, werr, led.err)
}

// stale: 20 clients ask at once for what is too old, and may be served while it
// is fetched anew, which takes a while.
func (r *runner) stale(ctx context.Context, server *arm.Running, path string) (map[string]float64, error) {
	o := origin.Object{Path: path, Age: fresh, Stale: mayBeStale, Versioned: true}
	clients, err := dial(ctx, server, staleClients)
	if err != nil {
		return nil, err
	}
	defer hangUp(clients)
	// Each knows it by then, so that none has to be taught while it counts.
	if _, err := wave(clients[:1], o.Target(), o.Body(r.version)); err != nil {
		return nil, err
	}
	if err := stage.Sleep(ctx, becomesStale); err != nil {
		return nil, err
	}
	r.newVersion()
	r.api.SetDelay(slow)
	defer r.api.SetDelay(0)
	before := r.api.Requests()
	got, err := wave(clients, o.Target(), o.Body(r.version-1), o.Body(r.version))
	if err := errors.Join(err, stage.Sleep(ctx, refreshWithin)); err != nil {
		return nil, err
	}
	return map[string]float64{
		Slowest: got.slowest, Failed: got.failed, Asked: float64(r.api.Requests() - before),
	}, nil
}

// newVersion changes the API's answers.
func (r *runner) newVersion() {
	r.version++
	r.api.SetVersion(r.version)
}

// dial opens connections that hangUp closes.
func dial(ctx context.Context, server *arm.Running, n int) ([]*client.Client, error) {
	clients := make([]*client.Client, 0, n)
	for range n {
		c, err := client.Dial(ctx, "tcp", server.Env.Address)
		if err != nil {
			hangUp(clients)
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func hangUp(clients []*client.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// waved is what a wave of requests has brought.
type waved struct {
	slowest, first float64 // ms: the last byte, the first byte of a body
	failed         float64 // clients
	err            error
}

// wave lets all clients ask for a target at the same moment. An answer 200 that
// is none of the right ones is an error; any other is a failure, and counts.
func wave(clients []*client.Client, target string, right ...[]byte) (waved, error) {
	answers := make([]client.Answer, len(clients))
	errs := make([]error, len(clients))
	start := make(chan struct{})
	var all sync.WaitGroup // of one goroutine for each client
	for i, c := range clients {
		all.Go(func() {
			<-start
			answers[i], errs[i] = c.Get(target)
		})
	}
	close(start)
	all.Wait()
	var got waved
	for i, a := range answers {
		if errs[i] != nil || a.Status != http.StatusOK {
			got.failed++
			continue
		}
		if !isOneOf(a.Body, right) {
			return got, fmt.Errorf("the answer to %s is not the API's: %d bytes, %.80q", target, len(a.Body), a.Body)
		}
		got.slowest = max(got.slowest, milliseconds(a.Took))
		got.first = max(got.first, milliseconds(a.First))
	}
	return got, nil
}

func isOneOf(body []byte, right [][]byte) bool {
	for _, b := range right {
		if bytes.Equal(body, b) {
			return true
		}
	}
	return false
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
