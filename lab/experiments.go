package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/result"
)

// Experiments lists the built-in ones.
func Experiments() []experiment.Experiment { return experiment.All() }

// Experiment runs one of them by name. As with Load, the result holds what was
// measured even where there is an error.
func Experiment(ctx context.Context, name string, env experiment.Env) (*result.Result, error) {
	var names []string
	for _, e := range experiment.All() {
		if e.Name != name {
			names = append(names, e.Name)
			continue
		}
		if env.Seed == 0 {
			env.Seed = rand.Uint64()
		}
		if env.Watch == nil {
			env.Watch = func(result.Event) {}
		}
		res := &result.Result{
			Format: result.Format, Kind: result.KindExperiment, Name: e.Name, Title: e.Title,
			Mode: env.Mode, Question: e.Question, Claim: e.Claim, Rule: e.Rule,
			Started: time.Now(), Seed: env.Seed, Machine: record.ReadMachine(),
		}
		err := e.Run(ctx, env, res)
		res.Ended = time.Now()
		if ctx.Err() != nil {
			err = nil
			if res.Interrupted == "" {
				res.Interrupted = "stopped before its end"
			}
		}
		if err != nil && res.Interrupted == "" {
			res.Interrupted = err.Error()
		}
		return res, err
	}
	return nil, fmt.Errorf("there is no experiment %q, only %s", name, strings.Join(names, ", "))
}
