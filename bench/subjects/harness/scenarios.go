package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/cache"
	"millrace/bench/subjects/internal/files"
	"millrace/bench/subjects/internal/pictures"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/report"
	"millrace/bench/subjects/internal/sockets"
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
			name: "files", results: "RESULTS.md", workloads: workload.All, arms: arm.Files, report: report.Files,
			run: func(ctx context.Context, j job) (*record.Run, error) {
				return files.Run(ctx, files.NewPlan(j.arms, j.length, j.seed), j.places, j.out)
			},
		},
		{
			name: "cache", results: "CACHE.md", workloads: workload.Cache, arms: arm.Caches, report: report.Cache,
			run: func(ctx context.Context, j job) (*record.Run, error) {
				return cache.Run(ctx, cache.NewPlan(j.arms, j.length, j.seed), j.places, j.out)
			},
		},
		{
			name: "ws", results: "WEBSOCKET.md", keep: filepath.Join("results", "websocket.json"), parts: sockets.Parts(),
			workloads: func() []workload.Workload { return nil }, arms: arm.Sockets,
			report: func(r *record.Run, _ []string) string { return report.Sockets(r) },
			run:    runSockets,
		},
		{
			name: "images", results: "IMAGES.md", keep: filepath.Join("results", "images.json"), parts: pictures.Parts(),
			workloads: workload.Pictures, arms: arm.Pictures, report: report.Images, charts: report.ImageCharts,
			run: func(ctx context.Context, j job) (*record.Run, error) {
				return pictures.Run(ctx, pictures.NewPlan(j.arms, j.parts, j.length, j.seed), j.places, j.out)
			},
		},
	}
}

// runSockets asks how many descriptors the servers may hold, and measures.
func runSockets(ctx context.Context, j job) (*record.Run, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("reading how many descriptors a process may hold: %w", err)
	}
	descriptors := int(min(limit.Max, 1<<20)) // Go programs raise theirs to that
	return sockets.Run(ctx, sockets.NewPlan(j.arms, j.parts, j.length, j.seed, descriptors), j.places, j.out)
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
