// Package files is the experiment files: static files from millrace, nginx,
// net/http and fasthttp, small ones as they are and as a browser asks for them,
// and a large one over TCP and a UNIX socket.
package files

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

// The arms that others are told apart by.
const (
	nginx       = "nginx"
	millrace    = "millrace"
	millraceLog = "millrace-log"
)

const (
	// delta is the smallest effect that counts.
	delta = 0.03
)

// Experiment is what the lab lists.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "files",
		Title: "static files from millrace, nginx, net/http and fasthttp",
		Question: "What does it cost to serve a small site and a large file, with few and with many connections, bare and with a browser's " +
			"header fields, with and without an access log?",
		Claim: "Millrace serves small files for less CPU time than nginx does, and a large one for no more.",
		Rule: "In each block every arm is started anew and loaded once with each workload, in random order. An arm differs from nginx in a figure " +
			"when the sign-flip permutation test over restarts gives p < 0.01 after Holm's adjustment over all figures and workloads " +
			"and the interval reaches beyond ±3 %, which is the smallest effect that counts; it is equal when the whole interval lies within " +
			"±3 %; else it is undecided. Requests per second depend on the generator, too, where both share the cores; CPU time is the harder " +
			"figure. The result is void unless all arms answer with the same bodies.",
		Run: run,
	}
}

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	quick bool
}

func run(ctx context.Context, env experiment.Env, res *record.Result) (err error) {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site"), Probed: experiment.SitePaths()},
		quick:   env.Mode != record.Full,
	}
	size := experiment.LargeSize(m.quick)
	if err := experiment.WriteSite(m.Site, experiment.Site()); err != nil {
		return err
	}
	if err := experiment.WriteLarge(m.Site, size); err != nil {
		return err
	}
	if m.Programs, err = m.Build(ctx, []experiment.Program{
		experiment.FileServerProgram("nethttp", "nethttp", "disk"), experiment.FileServerProgram("fasthttp", "fasthttp", "disk"),
	}); err != nil {
		return err
	}
	m.Built()
	plan := newPlan(m.arms(ctx), env, size)
	plan.Budget = m.Left()
	err = trial.Run(ctx, plan, res, m.Part(0, 1, 0))
	res.Tables, res.Answer = append(res.Tables, experiment.Beside(res, millrace, millraceLog)), answer(res)
	return err
}

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	withSocket := func(server string) func(p experiment.Place) []string {
		return func(p experiment.Place) []string {
			return []string{"-server", server, "-root", p.Site, "-listen", p.Address, "-unix", p.Socket}
		}
	}
	netHTTP := m.Subject("nethttp", "", withSocket("nethttp-plain"))
	fastHTTP := m.Subject("fasthttp", "github.com/valyala/fasthttp", withSocket("fasthttp-plain"))
	netHTTP.Socket, fastHTTP.Socket = true, true
	arms := []trial.Arm{
		m.Arm(nginx, "sendfile, open_file_cache, two workers, no log", m.Nginx(ctx, "")),
		m.Arm(millrace, "millrace serve, no log", m.Millrace(true)),
		m.Arm("nethttp", "net/http's FileServer with its defaults", netHTTP),
		m.Arm("fasthttp", "fasthttp's FS with its defaults", fastHTTP),
	}
	if m.quick {
		return arms
	}
	return append(
		arms,
		m.Arm("millrace-nolane", "the same with --no-lane: what the lane brings", m.Millrace(true, "--no-lane")),
		m.Arm("nginx-log", "nginx with a buffered log in Combined format", m.Nginx(ctx, logName)),
		m.Arm(millraceLog, "millrace serve with a log in Combined format", m.logged()),
	)
}

// logName is the access log in the folder of a server that has one.
const logName = "access.log"

// logged is millrace with a log of its own for each instance.
func (m *measurement) logged() experiment.Launch {
	l := m.Millrace(true)
	plain := l.Args
	l.Args = func(p experiment.Place) []string {
		return append(plain(p), "--log", "combined", "--log-file", filepath.Join(p.Dir, logName))
	}
	return l
}

// newPlan is what is measured; the caller sets the budget.
func newPlan(arms []trial.Arm, env experiment.Env, size int64) trial.Plan {
	var small []trial.Workload
	for _, what := range []struct {
		name, about string
		paths       []string
		header      http.Header
		differ      string
	}{
		{"front page", "GET / (501 bytes)", []string{"/"}, nil, ""},
		{"site", "GET of all seven paths in turn (0.5 to 15 KB)", experiment.SitePaths(), nil, ""},
		{
			"browser", "the same with the header fields and the cookie of a current Chromium", experiment.SitePaths(), experiment.Chromium(),
			"a server may compress what a browser asks for, and some do",
		},
	} {
		for _, n := range []int{50, 1000} {
			small = append(small, trial.Workload{
				Name: fmt.Sprintf("%s, %d", what.name, n), About: fmt.Sprintf("%s, %d connections, closed loop", what.about, n),
				Load: load.Config{Paths: what.paths, Header: what.header, Connections: n, Threads: 1, Sources: 4}, Differ: what.differ,
			})
		}
	}
	large := load.Config{Paths: []string{experiment.LargePath}, Connections: 1, Threads: 1, Requests: 4}
	noLog := []string{nginx, "nethttp", "fasthttp", millrace}
	var downloads []trial.Workload
	for _, network := range []string{"tcp", "unix"} {
		downloads = append(downloads, trial.Workload{
			Name: network, About: fmt.Sprintf("a file of %d MiB, 4 times one after the other on one connection", size>>20),
			Load: large, Arms: noLog, Decide: []string{"bytes_per_second", "cpu_ns_per_mb"},
		})
	}
	p := trial.Plan{
		Arms: arms, Workloads: append(small, downloads...),
		Decide: []string{"cpu_ns", "requests_per_second", "latency_p99_ns"},
		Also: []trial.Pair{
			{Arm: millrace, Baseline: "nethttp"},
			{Arm: millrace, Baseline: "fasthttp"},
		},
		Delta: delta, PerRestart: 1, Seed: env.Seed,
		Slot: time.Second, Warmup: 100 * time.Millisecond,
	}
	if env.Mode == record.Full {
		p.Also = append(p.Also, trial.Pair{Arm: millraceLog, Baseline: "nginx-log"}, trial.Pair{Arm: millrace, Baseline: "millrace-nolane"})
	} else {
		p.Decide = []string{"cpu_ns", "requests_per_second"}
		p.Slot, p.Warmup = 250*time.Millisecond, 50*time.Millisecond
		p.Workloads = []trial.Workload{small[0], small[3], small[4], downloads[0]}
	}
	figures := 0
	for _, w := range p.Workloads {
		if figures += len(p.Decide); len(w.Decide) > 0 {
			figures += len(w.Decide) - len(p.Decide)
		}
	}
	// No more blocks than can give a verdict at all: every restart is one finding.
	p.Blocks = []int{stats.FewestBlocks(figures, stats.Rule{Delta: p.Delta})}
	return p
}

// answer is about the front page, in CPU time per request, and the large file.
func answer(res *record.Result) string {
	var parts []string
	for _, w := range res.Workloads {
		metric := "cpu_ns"
		if w.Name == "tcp" || w.Name == "unix" {
			metric = "cpu_ns_per_mb"
		}
		if v, ok := experiment.VerdictOn(res, millrace, nginx, w.Name, metric); ok {
			parts = append(parts, fmt.Sprintf("%s on %q", experiment.Difference(v), w.Name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "CPU time of millrace against nginx's: " + experiment.List(parts)
}
