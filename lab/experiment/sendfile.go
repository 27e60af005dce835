package experiment

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"millrace/lab/load"
	"millrace/lab/result"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	// sendfileDelta is the smallest effect of sendfile-paths that counts.
	sendfileDelta = 0.02
	// sendfileSize is as published. A quick run moves a quarter of that in each
	// slot, in many downloads of a smaller file: where the machine is so slow
	// that time ends a window, at most one of them is cut off.
	sendfileSize       = 1 << 30
	sendfileSizeQuick  = 16 << 20
	sendfileTimesQuick = 16
	// tracedSize is the file of the traced downloads: each system call of those
	// takes many times as long, and how bytes travel does not depend on it.
	tracedSize = 16 << 20

	sendfilePath = "/zeros.bin"
	tracedPath   = "/traced.bin"
)

func sendfilePaths() Experiment {
	return Experiment{
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
		Run: runSendfile,
	}
}

// sendfileArms are the four ways of the subject, as published.
func sendfileArms() []struct {
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

func runSendfile(ctx context.Context, env Env, res *result.Result) error {
	began := time.Now()
	total, size := fullTime, int64(sendfileSize)
	if env.Mode == result.Quick {
		total, size = quickTime, sendfileSizeQuick
	}
	s := newFileServers(env)
	s.paths = nil // of a download is known what it is
	if err := writeZeros(s.site, size); err != nil {
		return err
	}
	if err := s.build(ctx, []buildJob{{key: "sendfile", name: "sendfile"}}); err != nil {
		res.Interrupted = "stopped while the subject was built"
		return nil //nolint:nilerr // ctx has ended, and the result says so
	}
	watch := env.Watch
	if watch == nil {
		watch = func(result.Event) {}
	}
	arms := s.downloadArms(ctx)
	plan := sendfilePlan(arms, env, size)
	traceTime := total / 10
	plan.Budget = max(leastTime, total-time.Since(began)-traceTime)
	err := trial.Run(ctx, plan, res, part(watch, 0, 0.95, 0))
	res.Tables = append(res.Tables, sendfileFigures(res))
	if err != nil || ctx.Err() != nil {
		return err
	}
	watch(result.Event{Time: time.Now(), Kind: result.EventStep, Text: "tracing one download of each arm", Done: 0.95})
	res.Tables = append(res.Tables, s.traceArms(ctx, arms, traceTime))
	return nil
}

// writeZeros makes the two files: holes, which the kernel reads as zeros
// without a disk.
func writeZeros(dir string, size int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // nginx's workers may have another account
		return fmt.Errorf("making the files of zeros: %w", err)
	}
	for path, length := range map[string]int64{sendfilePath: size, tracedPath: tracedSize} {
		name := filepath.Join(dir, filepath.FromSlash(path))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644) //nolint:gosec // likewise
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

func (s *fileServers) downloadArms(ctx context.Context) []trial.Arm {
	exe, err := s.subject("sendfile")
	var arms []trial.Arm
	for _, way := range sendfileArms() {
		a := s.arm(way.name, way.about, launch{exe: exe, socket: true, args: func(p place) []string {
			return []string{"-how", way.how, "-root", p.Site, "-listen", p.Address, "-unix", p.Socket}
		}}, err)
		if err == nil {
			a.Version = goVersion(exe, "")
		}
		arms = append(arms, a)
	}
	l, err := s.millrace(true)
	mill := s.arm("millrace", "millrace serve on the folder", l, err)
	if err == nil {
		mill.Version = goVersion(l.exe, "")
	}
	l, err = s.nginx()
	nginx := s.arm("nginx", "sendfile, two workers, no log", l, err)
	if err == nil {
		nginx.Version = nginxVersion(ctx, l.exe)
	}
	return append(arms, mill, nginx)
}

// sendfilePlan is what is measured; the caller sets the budget.
func sendfilePlan(arms []trial.Arm, env Env, size int64) trial.Plan {
	one := load.Config{Paths: []string{sendfilePath}, Connections: 1, Threads: 1, Requests: 1}
	times := ""
	if env.Mode == result.Quick {
		one.Requests = sendfileTimesQuick
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
		Delta:  sendfileDelta, PerRestart: 1, Seed: env.Seed,
		// Without a warm-up, a window begins with a download, too. Slots are
		// limits here: the last byte ends a window.
		Slot:   10 * time.Second,
		Blocks: []int{12, 16, 20},
	}
	if env.Mode == result.Quick {
		p.Slot = 2 * time.Second
		// Ten, as published, which is also what a verdict takes at least.
		p.Blocks = []int{max(10, stats.FewestBlocks(len(p.Workloads)*len(p.Decide), stats.Rule{Delta: p.Delta}))}
	}
	return p
}

// sendfileFigures holds what was published beside what was measured.
func sendfileFigures(res *result.Result) result.Table {
	t := result.Table{
		Title: "Published and measured",
		About: "GB are 10⁹ bytes; medians over all blocks. In brackets against ServeFile in the same column.",
		Columns: []string{
			"arm", "published, TCP, GB/s", "TCP, GB/s", "TCP, CPU ms per GB",
			"published, UNIX, GB/s", "UNIX, GB/s", "UNIX, CPU ms per GB",
		},
	}
	published := map[string][2]float64{}
	for _, a := range sendfileArms() {
		published[a.name] = [2]float64{a.tcp, a.unix}
	}
	for _, a := range res.Arms {
		if a.Skipped != "" || a.Placebo != "" {
			continue
		}
		row := []string{a.Name}
		for i, w := range []string{"tcp", "unix"} {
			of := func(arm, metric string) float64 { return medianOf(res, arm, w, metric) }
			row = append(
				row, against(published[a.Name][i], published["ServeFile"][i], 1, 2),
				against(of(a.Name, "bytes_per_second"), of("ServeFile", "bytes_per_second"), 1e-9, 2),
				// A nanosecond a megabyte is a microsecond a gigabyte.
				against(of(a.Name, "cpu_ns_per_mb"), of("ServeFile", "cpu_ns_per_mb"), 1e-3, 0),
			)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
