// Package sendfile is the experiment sendfile-paths: one large download by
// sendfile or by copying, over TCP and UNIX sockets.
package sendfile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	// smallestEffect is the smallest one that counts.
	smallestEffect = 0.02
	// sizeFull is as published. A quick run moves a quarter of that in each
	// slot, in many downloads of a smaller file: where the machine is so slow
	// that time ends a window, at most one of them is cut off.
	sizeFull   = 1 << 30
	sizeQuick  = 16 << 20
	timesQuick = 16
	// tracedSize is the file of the traced downloads: each system call of those
	// takes many times as long, and how bytes travel does not depend on it.
	tracedSize = 16 << 20

	zerosPath  = "/zeros.bin"
	tracedPath = "/traced.bin"
)

// Experiment is sendfile-paths.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "sendfile-paths",
		Title: "one large download by sendfile or by copying, over TCP and UNIX sockets",
		Question: "Which ways of sending a file from Go's net/http reach sendfile(2), over TCP and over a UNIX socket, and what " +
			"does it cost in throughput and CPU time when a way does not?",
		Claim: "1 GB of zeros is downloaded over TCP at 6.53 GB/s with http.ServeFile, 6.31 with io.Copy and a Content-Length, " +
			"3.70 through a wrapped writer and 2.25 without a Content-Length; over a UNIX socket at 4.65, 4.64, 4.47 and 3.57.",
		Rule: "In each block every arm is started anew and downloads over TCP and over a UNIX socket on one connection, in " +
			"random order; ten blocks are ten downloads of everything. An arm differs from ServeFile on the same socket in " +
			"body bytes per second, or in CPU time per megabyte, when the sign-flip permutation test over restarts gives p < 0.01 " +
			"after Holm's adjustment over both figures and sockets (and equal shares for each look) and the interval reaches " +
			"beyond ±2 %, which is the smallest effect that counts; it is equal when the whole interval lies within ±2 %; else it is " +
			"undecided. Whether sendfile was used is no matter of statistics: one download of each arm is traced " +
			"afterwards, system call by system call. The result is void unless all arms send the same bytes.",
		Run: run,
	}
}

// ways are the four ways of the subject, as published.
func ways() []struct {
	name, how, about string
	tcp, unix        float64 // published GB/s
} {
	return []struct {
		name, how, about string
		tcp, unix        float64
	}{
		{"ServeFile", "servefile", "http.ServeFile", 6.53, 4.65},
		{"io.Copy", "copy", "io.Copy into the ResponseWriter, with Content-Length", 6.31, 4.64},
		{"wrapped", "wrapped", "io.Copy into a writer around the ResponseWriter, with Content-Length", 3.70, 4.47},
		{"no length", "nolength", "io.Copy into the ResponseWriter, without Content-Length", 2.25, 3.57},
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
}

func run(ctx context.Context, env experiment.Env, res *record.Result) (err error) {
	size := int64(sizeFull)
	if env.Mode == record.Quick {
		size = sizeQuick
	}
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site")},
	}
	if err := writeZeros(m.Site, size); err != nil {
		return err
	}
	if m.Programs, err = m.Build(ctx, []experiment.Program{experiment.FileServerProgram("sendfile", "nethttp", "disk")}); err != nil {
		return err
	}
	m.Built()
	arms := m.arms(ctx)
	plan := newPlan(arms, env, size)
	traceTime := experiment.Budget(env.Mode) / 10
	plan.Budget = m.Left() - traceTime
	err = trial.Run(ctx, plan, res, m.Part(0, 0.95, 0))
	res.Tables, res.Answer = append(res.Tables, figures(res)), answer(res, record.Table{})
	if err != nil || ctx.Err() != nil {
		return err
	}
	m.Part(0, 1, 0)(record.Event{Time: time.Now(), Kind: record.EventStep, Text: "tracing one download of each arm", Done: 0.95})
	trace := m.traceArms(ctx, arms, traceTime)
	res.Tables, res.Answer = append(res.Tables, trace), answer(res, trace)
	return nil
}

// writeZeros makes the two files: holes, which the kernel reads as zeros
// without a disk.
func writeZeros(dir string, size int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // nginx's workers may have another account
		return fmt.Errorf("making the files of zeros: %w", err)
	}
	for path, length := range map[string]int64{zerosPath: size, tracedPath: tracedSize} {
		name := filepath.Join(dir, filepath.FromSlash(path))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return fmt.Errorf("making the files of zeros: %w", err)
		}
		err = f.Truncate(length)
		if err == nil {
			_, err = io.Copy(io.Discard, f) // the first reader has the kernel make the pages
		}
		f.Close()
		if err != nil {
			return fmt.Errorf("making the files of zeros: %w", err)
		}
	}
	return nil
}

func (m *measurement) arms(ctx context.Context) []trial.Arm {
	var arms []trial.Arm
	for _, way := range ways() {
		l := m.Subject("sendfile", "", func(p experiment.Place) []string {
			return []string{"-server", "sendfile", "-how", way.how, "-root", p.Site, "-listen", p.Address, "-unix", p.Socket}
		})
		l.Socket = true
		arms = append(arms, m.Arm(way.name, way.about, l))
	}
	return append(
		arms,
		m.Arm("millrace", "millrace serve on the folder", m.Millrace(true)),
		m.Arm("nginx", "sendfile, two workers, no log", m.Nginx(ctx, "")),
	)
}

// newPlan is what is measured; the caller sets the budget.
func newPlan(arms []trial.Arm, env experiment.Env, size int64) trial.Plan {
	one := load.Config{Paths: []string{zerosPath}, Connections: 1, Threads: 1, Requests: 1}
	times := ""
	if env.Mode == record.Quick {
		one.Requests = timesQuick
		times = fmt.Sprintf(", %d one after the other", one.Requests)
	}
	p := trial.Plan{
		Arms: arms,
		Workloads: []trial.Workload{
			{Name: "tcp", About: fmt.Sprintf("download of %d MB on one TCP connection%s", size>>20, times), Load: one},
			{Name: "unix", About: fmt.Sprintf("download of %d MB on one connection to a UNIX socket%s", size>>20, times), Load: one},
		},
		Decide: []string{"bytes_per_second", "cpu_ns_per_mb"},
		Also:   []trial.Pair{{Arm: "millrace", Baseline: "nginx"}},
		Delta:  smallestEffect, PerRestart: 1, Seed: env.Seed,
		// Without a warm-up, a window begins with a download, too. Slots are
		// limits here: the last byte ends a window.
		Slot:   10 * time.Second,
		Blocks: []int{12, 16, 20},
	}
	if env.Mode == record.Quick {
		p.Slot = 2 * time.Second
		// Ten, as published, which is also what a verdict takes at least.
		p.Blocks = []int{max(10, stats.FewestBlocks(len(p.Workloads)*len(p.Decide), stats.Rule{Delta: p.Delta}))}
	}
	return p
}

// figures holds what was published beside what was measured.
func figures(res *record.Result) record.Table {
	t := record.Table{
		Title: "Published and measured", Lead: true,
		About: "GB are 10⁹ bytes; medians over all blocks. In brackets against ServeFile in the same column.",
		Columns: []string{
			"arm", "published, TCP, GB/s", "TCP, GB/s", "TCP, CPU ms per GB",
			"published, UNIX, GB/s", "UNIX, GB/s", "UNIX, CPU ms per GB",
		},
	}
	published := map[string][2]float64{}
	for _, a := range ways() {
		published[a.name] = [2]float64{a.tcp, a.unix}
	}
	for _, a := range res.Arms {
		if a.Skipped != "" || a.Placebo != "" {
			continue
		}
		row := []string{a.Name}
		for i, w := range []string{"tcp", "unix"} {
			of := func(arm, metric string) float64 { return experiment.MedianOf(res, arm, w, metric) }
			row = append(
				row, experiment.Against(published[a.Name][i], published["ServeFile"][i], 1, 2),
				experiment.Against(of(a.Name, "bytes_per_second"), of("ServeFile", "bytes_per_second"), 1e-9, 2),
				// A nanosecond a megabyte is a microsecond a gigabyte.
				experiment.Against(of(a.Name, "cpu_ns_per_mb"), of("ServeFile", "cpu_ns_per_mb"), 1e-3, 0),
			)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
