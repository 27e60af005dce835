package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/testsite"
)

// runner is a run under way.
type runner struct {
	*stage.Stage
	plan  Plan
	large uint32 // CRC of the large file
}

// Run carries out the plan and returns what was measured. It stops what it
// started, also when ctx ends it early.
func Run(ctx context.Context, p Plan, places stage.Places, out io.Writer) (*record.Run, error) {
	steps, total := p.steps()
	s, err := stage.New("files", p.Plan, places, steps, total, out)
	if err != nil {
		return nil, err
	}
	s.Run.Hold = p.Hold
	r := &runner{Stage: s, plan: p}
	defer r.Stop()
	for _, step := range []func(context.Context) error{
		r.makeSite, r.start, r.verify, r.Warm, r.Rounds, r.largeRounds, r.hold, r.verify, r.end,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.Run.Took = r.Meter.Took()
	return r.Run, nil
}

func (r *runner) site() string { return filepath.Join(r.Places.Temp, "site") }

func (r *runner) makeSite(context.Context) error {
	if err := testsite.Write(r.site()); err != nil {
		return err
	}
	return testsite.WriteLarge(r.site(), r.plan.LargeSize)
}

func (r *runner) start(ctx context.Context) error {
	return r.Start(ctx, arm.Env{Site: r.site()})
}

// verify compares all answers of all arms with the files.
func (r *runner) verify(ctx context.Context) error {
	for _, a := range r.Plan.Arms {
		server := r.Servers[a.Name]
		for _, network := range networks() {
			for _, w := range r.Plan.Workloads {
				if err := r.Verify(ctx, server, network, w, r.right); err != nil {
					return fmt.Errorf("%s over %s, %s: %w", a.Name, network, w.Name, err)
				}
			}
			if err := r.verifyLarge(ctx, server, network); err != nil {
				return fmt.Errorf("%s over %s: %w", a.Name, network, err)
			}
		}
	}
	r.Meter.Say("all answers of %d arms are the files, over %s", len(r.Plan.Arms), strings.Join(networks(), " and "))
	return nil
}

// right is what the answer for a file must hold.
func (r *runner) right(f testsite.File) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.site(), filepath.FromSlash(f.Name)))
}

// end reads what each server holds after the run.
func (r *runner) end(context.Context) error {
	for i := range r.Run.Memory {
		m := &r.Run.Memory[i]
		held, err := r.Servers[m.Arm].Memory()
		if err != nil {
			return err
		}
		m.End = held
	}
	return r.Alive()
}
