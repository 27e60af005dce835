// Package former says what an experiment of the lab is, and holds what
// experiments share: the clock of a run, building what is measured, and figures
// as text, the trial that compares arms, rows of workloads, file servers and h2load.
// Experiments about one thing have a package below this one. An experiment
// repeats a published measurement whose result is in doubt. Before it runs, it
// states its question, what was claimed, its subjects, workloads and metrics, the
// rule of its verdicts, and the smallest effect that counts.
package former

import (
	"context"
	"errors"

	"millrace/lab/experiment"
	"millrace/lab/record"
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
type Env = experiment.Env

// Why an arm cannot run.
var (
	ErrNoSources  = errors.New("its source is in millrace's repository: run this in a checkout, with Go installed")
	ErrNoMillrace = errors.New("there is no executable of millrace to measure")
)

// Adapt is an experiment that has no spec yet.
func Adapt(e Experiment) experiment.Experiment {
	return experiment.Experiment{
		Spec: &experiment.Spec{Name: e.Name, Title: e.Title, Question: e.Question, Claim: e.Claim, Rule: e.Rule, Selects: e.Selects},
		Run:  e.Run,
	}
}
