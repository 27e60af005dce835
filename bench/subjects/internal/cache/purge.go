package cache

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/client"
	"millrace/bench/subjects/internal/origin"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

const (
	tag = "all"
	// looked is how many of the tagged answers are asked for to see whether
	// they are stored.
	looked = 1000
	// heated is how often an answer is asked for before it is purged, so that
	// the quickest way to it is the one that has to forget.
	heated = 5
	// seenWithin is how long a purge may take to show before the run ends.
	seenWithin = 5 * time.Second
)

// tagged is the i-th of many answers with one tag.
func tagged(i uint64) origin.Object {
	return origin.Object{Path: "/tagged/" + strconv.FormatUint(i, 10), Tag: tag, Versioned: true}
}

// purges fills the caches that can forget a tag, and lets them.
func (r *runner) purges(ctx context.Context) error {
	arms := r.plan.purgers()
	stored := map[string]float64{}
	for _, a := range arms {
		share, err := r.fill(ctx, r.Servers[a.Name])
		if err != nil {
			return fmt.Errorf("filling %s: %w", a.Name, err)
		}
		stored[a.Name] = share
		r.Meter.Step(r.plan.fillTime(), "%d answers with one tag in %s, %.1f %% of them stored", r.plan.Tagged, a.Name, share*100)
	}
	for round := 1; round <= r.plan.Purges; round++ {
		stage.Shuffle(r.Random, arms)
		for _, a := range arms {
			values, err := stage.Apart(func() (map[string]float64, error) { return r.purge(ctx, r.Servers[a.Name]) })
			if err != nil {
				return fmt.Errorf("purging %s: %w", a.Name, err)
			}
			values[Stored] = stored[a.Name]
			r.Run.Cases = append(r.Run.Cases, record.Case{Name: Purged, Round: round, Arm: a.Name, Values: values})
		}
	}
	return nil
}

// fill asks for all tagged answers, and is the share of them that is stored
// then, from a sample.
func (r *runner) fill(ctx context.Context, server *arm.Running) (float64, error) {
	f := flood{address: server.Env.Address, object: tagged, version: r.version, count: r.plan.Tagged}
	if err := f.run(ctx); err != nil {
		return 0, err
	}
	if n := f.failed.Load(); n > 0 {
		return 0, fmt.Errorf("%d of %d requests failed", n, r.plan.Tagged)
	}
	before := r.api.Requests()
	n := min(looked, r.plan.Tagged)
	look := flood{
		address: server.Env.Address, version: r.version, count: n,
		object: func(i uint64) origin.Object { return tagged(i * (r.plan.Tagged / n)) },
	}
	if err := look.run(ctx); err != nil {
		return 0, err
	}
	return 1 - float64(r.api.Requests()-before)/float64(n), nil
}

// purge changes the API's answers, forgets the tag and asks until the new
// answer comes.
func (r *runner) purge(ctx context.Context, server *arm.Running) (map[string]float64, error) {
	asker, err := client.Dial(ctx, "tcp", server.Env.Address)
	if err != nil {
		return nil, err
	}
	defer asker.Close()
	how := server.Arm.Purge(server.Env, tag)
	purger, err := client.Dial(ctx, how.Network, how.Address)
	if err != nil {
		return nil, err
	}
	defer purger.Close()
	o := tagged(r.Random.Uint64N(r.plan.Tagged))
	for range heated {
		a, err := asker.Get(o.Target())
		if err := refusal(a, err, "asking for "+o.Target()); err != nil {
			return nil, err
		}
	}
	r.newVersion()
	want := o.Body(r.version)
	began := time.Now()
	done, err := purger.Do(how.Text)
	if err := refusal(done, err, "asking to forget the tag "+tag); err != nil {
		return nil, err
	}
	for {
		a, err := asker.Get(o.Target())
		if err := refusal(a, err, "asking for "+o.Target()); err != nil {
			return nil, err
		}
		since := time.Since(began)
		if bytes.Equal(a.Body, want) {
			return map[string]float64{Purge: milliseconds(done.Took), Seen: milliseconds(since)}, nil
		}
		if since > seenWithin {
			return nil, fmt.Errorf("%v after it, %s is still answered as before", seenWithin, o.Target())
		}
	}
}

// refusal is an error if there is one or the status is not 200.
func refusal(a client.Answer, err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if a.Status != http.StatusOK {
		return fmt.Errorf("%s: status %d, %.200s", what, a.Status, a.Body)
	}
	return nil
}
