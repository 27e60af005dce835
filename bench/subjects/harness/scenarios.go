package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/files"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/report"
	"millrace/bench/subjects/internal/workload"
)

// scenario is something that bench/run can measure.
type scenario struct {
	name string
	arms func() []arm.Arm
	run  func(context.Context, job) (*record.Run, error)
	// report is RESULTS.md, and in a few words how the bars were met.
	report func(*record.Run) (text, verdict string)
}

// job is what a scenario is asked to do.
type job struct {
	arms   []arm.Arm
	quick  bool
	seed   uint64
	places files.Places
	out    io.Writer // for progress
}

// scenarios are all that there are. To add one, add it here.
func scenarios() []scenario {
	return []scenario{{
		name: "files",
		arms: arm.Files,
		run: func(ctx context.Context, j job) (*record.Run, error) {
			return files.Run(ctx, files.NewPlan(j.arms, j.quick, j.seed), j.places, j.out)
		},
		report: func(r *record.Run) (text, verdict string) {
			var order []string
			for _, w := range workload.All() {
				order = append(order, w.Name)
			}
			missed, measured := report.Missed(r, order)
			return report.Files(r, order), fmt.Sprintf("%d of %d bars are met", measured-missed, measured)
		},
	}}
}

func scenarioNames() string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}
