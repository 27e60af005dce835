package cache

import (
	"context"
	"fmt"
	"io"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/origin"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/testsite"
)

// runner is a run under way.
type runner struct {
	*stage.Stage
	plan    Plan
	api     *origin.Server
	version uint64 // of the API's answers
}

// Run carries out the plan and returns what was measured. It stops what it
// started, also when ctx ends it early.
func Run(ctx context.Context, p Plan, places stage.Places, out io.Writer) (*record.Run, error) {
	steps, total := p.steps()
	s, err := stage.New("cache", p.Plan, places, steps, total, out)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	api, err := origin.Start()
	if err != nil {
		return nil, err
	}
	defer api.Close()
	s.Upstream = api.Requests
	s.Run.Hold, s.Run.Tagged = p.Hold, p.Tagged
	r := &runner{Stage: s, plan: p, api: api}
	for _, step := range []func(context.Context) error{
		r.start, r.verify, r.Warm, r.Rounds, r.verify, r.cases, r.purges, r.end, r.floods,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.Run.Took = r.Meter.Took()
	return r.Run, nil
}

func (r *runner) start(ctx context.Context) error {
	return r.Start(ctx, arm.Env{Upstream: r.api.Address(), Memory: memory})
}

// verify compares all answers of all arms with the API's.
func (r *runner) verify(ctx context.Context) error {
	for _, a := range r.Plan.Arms {
		for _, w := range r.Plan.Workloads {
			if err := r.Verify(ctx, r.Servers[a.Name], "tcp", w, right); err != nil {
				return fmt.Errorf("%s, %s: %w", a.Name, w.Name, err)
			}
		}
	}
	r.Meter.Say("all answers of %d caches are the API's", len(r.Plan.Arms))
	return nil
}

// right is the body of one of a workload's answers.
func right(f testsite.File) ([]byte, error) {
	return origin.Object{Path: "/hit", Size: f.Size}.Body(0), nil
}

// end stops the caches that were up so far: from here on each is alone.
func (r *runner) end(context.Context) error {
	err := r.Alive()
	r.Stop()
	return err
}
