// Package experiment holds the lab's built-in experiments. Each settles a doubt
// that a published measurement left, and states its question, what was claimed,
// its subjects, workloads, metrics, rule of verdict and smallest effect before
// it runs.
package experiment

import (
	"context"

	"millrace/lab/result"
	"millrace/lab/subject"
)

// An Experiment is one question and the way to its answer.
type Experiment struct {
	Name     string // as typed: embed-vs-disk
	Title    string // one line, for the list
	Question string
	Claim    string // what was published
	Rule     string // when which verdict is given

	// Run measures. It fills res, which has the fields above already, and adds
	// to it as it goes on: when it fails or ctx ends, res holds what was
	// measured until then.
	Run func(ctx context.Context, env Env, res *result.Result) error
}

// Env is what an experiment finds around it.
type Env struct {
	Bench    *subject.Bench // nil where there is no checkout: only arms that need no source run
	Millrace string         // the executable of millrace to measure
	Work     string         // an empty folder for its files, removed by the caller
	Mode     result.Mode    // Quick: at most 90 s in all, building included where it can be helped; Full: 15 min
	Seed     uint64
	Watch    result.Watch // may be nil
}

// All lists the experiments in the order of their doubts.
func All() []Experiment {
	return []Experiment{
		embedVsDisk(),
		sendfilePaths(),
		wsEchoRamp(),
		apiCache(),
		pgoProof(),
	}
}
