package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/pictures"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/report"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/workload"
)

// scenario is something that bench/run can measure.
type scenario struct {
	name      string
	results   string // the file in bench that they go to
	keep      string // where the raw data is kept in bench when they are replaced; empty: nowhere
	parts     []string
	workloads func() []workload.Workload
	arms      func() []arm.Arm
	run       func(context.Context, job) (*record.Run, error)
	// report is the file of results. workloads are in the order of its tables.
	report func(r *record.Run, workloads []string) string
	// charts are pictures that the report shows, by the name of their file beside
	// it; nil: it has none.
	charts func(r *record.Run) (map[string][]byte, error)
}

// job is what a scenario is asked to do.
type job struct {
	arms   []arm.Arm
	parts  []string // empty: all
	length stage.Length
	seed   uint64
	places stage.Places
	out    io.Writer // for progress
}

// scenarios are all that there are. To add one, add it here.
func scenarios() []scenario {
	return []scenario{
		{
			name: "images", results: "IMAGES.md", keep: filepath.Join("results", "images.json"), parts: pictures.Parts(),
			workloads: workload.Pictures, arms: arm.Pictures, report: report.Images, charts: report.ImageCharts,
			run: func(ctx context.Context, j job) (*record.Run, error) {
				return pictures.Run(ctx, pictures.NewPlan(j.arms, j.parts, j.length, j.seed), j.places, j.out)
			},
		},
	}
}

// written is the file of results of a run, and in a few words how the bars were
// met.
func (s scenario) written(r *record.Run) (text, verdict string) {
	var order []string
	for _, w := range s.workloads() {
		order = append(order, w.Name)
	}
	missed, measured := report.Missed(r, order)
	return s.report(r, order), fmt.Sprintf("%d of %d bars are met", measured-missed, measured)
}

func scenarioNames() string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}
