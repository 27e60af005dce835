// Package experiment is what the lab's experiments are made of. An experiment repeats
// a measurement whose result is in doubt, or holds millrace beside its peers. It is a
// page of specs/ ([Spec]): question, claim and rule, servers, workloads, tables and the
// sentences of its answer. This package reads the page, starts the servers, has
// [millrace/lab/trial] measure, and writes tables and answer. What of an experiment is
// code, its [Hooks] have; those about one thing are in a package below this one.
package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// An Experiment is one question and the way to its answer.
type Experiment struct {
	*Spec
	Hooks func(*Run) Hooks // what of it is code; nil: nothing

	file string // in specs
}

// New is the experiment of a name, with what of it is code. It fails where the page
// is not right, which a test sees to.
func New(name string, hooks func(*Run) Hooks) (Experiment, error) {
	s, err := Read(name, record.Full)
	return Experiment{Spec: s, Hooks: hooks, file: name}, err
}

// Hooks are what of an experiment is code.
type Hooks struct {
	// Prepare comes first: it may write files, add to [Run].Fields, Missing, Programs'
	// flags, and say with [Run.Defer] what is to be done at the end.
	Prepare func(ctx context.Context) error
	// Tasks are what is done instead of a load, by the name that workloads have.
	Tasks map[string]Task
	// Start replaces how an arm is started, by its name.
	Start map[string]func(ctx context.Context) (*trial.Instance, error)
	// Arms are those that are no server of the spec, behind its own; asked for after
	// Prepare.
	Arms func() []trial.Arm
	// After comes after the trial, unless that failed.
	After func(ctx context.Context) error
	// Report adds tables, charts, gates and the answer, whatever was measured.
	Report func()
}

// A Task does a workload.
type Task func(ctx context.Context, slot trial.TaskSlot, w Workload) (trial.TaskResult, error)

// Env is what an experiment finds around it.
type Env struct {
	Bench    *subject.Bench // nil where there is no checkout: only arms that need no source run
	Millrace string         // the executable of millrace to measure
	Work     string         // an empty folder for its files, removed by the caller
	Mode     record.Mode    // Quick: at most 90 s, beside building what is not built yet; Full: 15 min
	Seed     uint64         // of random orders; 0: any
	Only     []string       // patterns (as of path.Match) of the workloads to measure; none: all
	Watch    record.Watch   // may be nil
}

// Why an arm cannot run.
var (
	// ErrNoSources is why what is built from lab/bench/subjects is missing.
	ErrNoSources = errors.New("its source is in millrace's repository: run this in a checkout, with Go installed")
	// ErrNoMillrace is why millrace is not measured.
	ErrNoMillrace = errors.New("there is no executable of millrace to measure")
)

// ErrWhole is why some workloads alone are not measured.
var ErrWhole = errors.New("this experiment measures all of its workloads or none: name none")

// Measure runs the experiment. The result holds what was measured even where there
// is an error. That ctx ended is none: then the result says that it was
// interrupted.
func (e Experiment) Measure(ctx context.Context, kind record.Kind, env Env) (*record.Result, error) {
	if env.Seed == 0 {
		env.Seed = rand.Uint64()
	}
	if len(env.Only) > 0 && !e.Selects {
		return nil, fmt.Errorf("%w: %s", ErrWhole, e.Name)
	}
	res := &record.Result{
		Format: record.Format, Kind: kind, Name: e.Name, Title: e.Title,
		Mode: env.Mode, Question: e.Question, Claim: e.Claim, Rule: e.Rule,
		Started: time.Now(), Seed: env.Seed, Machine: record.ReadMachine(),
	}
	err := e.measure(ctx, env, res)
	res.Ended = time.Now()
	if ctx.Err() != nil {
		err = nil
		res.Interrupted = cmp.Or(res.Interrupted, "stopped before its end")
	}
	if err != nil && res.Interrupted == "" {
		res.Interrupted = err.Error()
	}
	return res, err
}
