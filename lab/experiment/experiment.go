// Package experiment says what an experiment of the lab is, and holds what
// experiments share: the clock of a run, building what is measured, and figures
// as text, the trial that compares arms, rows of workloads, file servers and h2load.
// Experiments about one thing have a package below this one. An experiment
// repeats a published measurement whose result is in doubt. Before it runs, it
// states its question, what was claimed, its subjects, workloads and metrics, the
// rule of its verdicts, and the smallest effect that counts.
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
)

// An Experiment is one question and the way to its answer.
type Experiment struct {
	Name     string // as typed: embed-vs-disk
	Title    string // one line, for the list
	Question string
	Claim    string // what was published
	Rule     string // when which verdict is given

	// Selects says that it measures only the workloads that [Env].Only names.
	Selects bool

	// Run measures. It fills res, which has the fields above already, and adds
	// to it as it goes on: when it fails or ctx ends, res holds what was
	// measured until then.
	Run func(ctx context.Context, env Env, res *record.Result) error
}

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

// Run runs an experiment. The result holds what was measured even where there
// is an error. That ctx ended is none: then the result says that it was
// interrupted.
func Run(ctx context.Context, kind record.Kind, e Experiment, env Env) (*record.Result, error) {
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
	err := e.Run(ctx, env, res)
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
