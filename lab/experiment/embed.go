package experiment

import (
	"context"
	"crypto/sha1" //nolint:gosec // the length of a commit's name, not a proof of anything
	"encoding/hex"
	"errors"
	"path/filepath"
	"runtime"
	"time"

	"millrace/lab/load"
	"millrace/lab/result"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	embedConnections = 1000 // as published
	// embedThreads is as published, too, where they do not take the server's
	// last core.
	embedThreads = 2
	// embedDelta is the smallest effect of embed-vs-disk that counts.
	embedDelta = 0.01

	// quickTime and fullTime are how long a whole run may take, with some
	// seconds to spare for stopping and reporting.
	quickTime = 84 * time.Second
	fullTime  = 14*time.Minute + 30*time.Second
	// leastTime is what is measured in even if building took everything.
	leastTime = 20 * time.Second
)

func embedVsDisk() Experiment {
	return Experiment{
		Name:  "embed-vs-disk",
		Title: "small files from the executable or from disk, in seven servers",
		Question: "Is a small site served faster from files inside the executable than from a folder, and is it the place of the " +
			"bytes that makes the difference or the way of serving them?",
		Claim: "A net/http server with go:embed answers 116,485 requests/s where one that reads from disk answers 83,519 " +
			"(+39.5 %) on the front page alone, and 91,614 against 83,970 (+9.1 %) on all seven paths, with 1000 connections " +
			"and two threads of load, each figure measured once.",
		Rule: "In each block every arm is started anew and loaded once with either workload, in random order. An arm differs " +
			"from net/http on disk in CPU time per request, or in requests/s, when the sign-flip permutation test over restarts " +
			"gives p < 0.01 after Holm's adjustment over both figures and workloads (and equal shares for each look) and the " +
			"interval reaches beyond ±1 %, which is the smallest effect that counts; it is equal when the whole interval " +
			"lies within ±1 %; else it is undecided. The claim is about requests/s, which depends on the generator, too, where " +
			"both share the cores; CPU time per request is the harder figure. The result is void unless all arms answer " +
			"with the same bodies.",
		Run: runEmbed,
	}
}

// embedClaims are the published requests/s by workload and arm.
func embedClaims() map[string]map[string]float64 {
	return map[string]map[string]float64{
		"one page": {"nethttp-disk": 83_519, "nethttp-embed": 116_485},
		"all":      {"nethttp-disk": 83_970, "nethttp-embed": 91_614},
	}
}

func runEmbed(ctx context.Context, env Env, res *result.Result) error {
	began := time.Now()
	total := fullTime
	if env.Mode == result.Quick {
		total = quickTime
	}
	s := newFileServers(env)
	sizes := curveSizes(env.Mode)
	if err := s.embedPrepare(ctx, sizes); err != nil {
		if ctx.Err() != nil {
			res.Interrupted = "stopped while the subjects were built"
			return nil
		}
		return err
	}
	watch := env.Watch
	if watch == nil {
		watch = func(result.Event) {}
	}
	curveTime := total / 10
	plan := embedPlan(s.embedArms(ctx), env)
	plan.Budget = max(leastTime, total-time.Since(began)-curveTime)
	err := trial.Run(ctx, plan, res, part(watch, 0, 1-float64(curveTime)/float64(total), curveTime))
	res.Tables = append(res.Tables, embedTables(res, s.probes)...)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return s.curve(ctx, res, curvePlan{
		sizes: sizes, budget: max(curveTime/2, min(curveTime, total-time.Since(began))),
		watch: part(func(e result.Event) {
			if e.Kind != result.EventNote { // they were all said before
				watch(e)
			}
		}, 1-float64(curveTime)/float64(total), 1, 0),
	})
}

// part maps the progress of one of several measurements to its share of the
// whole; after is what comes when it is over.
func part(watch result.Watch, from, to float64, after time.Duration) result.Watch {
	return func(e result.Event) {
		e.Done = from + (to-from)*e.Done
		if e.Left > 0 {
			e.Left += after
		}
		watch(e)
	}
}

// embedPrepare writes the site and builds the subjects.
func (s *fileServers) embedPrepare(ctx context.Context, sizes []int) error {
	files := siteFiles()
	var large []siteFile
	for _, size := range sizes {
		large = append(large, curveFile(size))
	}
	if err := writeSite(s.site, append(files, large...)); err != nil {
		return err
	}
	hash := sha1.New() //nolint:gosec // see the import
	for _, f := range files {
		hash.Write(f.content())
	}
	jobs := []buildJob{{key: "nethttp-disk"}, {key: "nethttp-embed"}, {
		key: "nethttp-ldflags", flags: []string{ldflags(files, hex.EncodeToString(hash.Sum(nil)))},
	}}
	if s.env.Bench != nil {
		over, err := s.curveOverlay(large)
		if err != nil {
			return err
		}
		jobs = append(jobs, buildJob{key: curveSubject, name: "nethttp-embed", flags: []string{"-overlay=" + over}})
	}
	for _, name := range []string{"millrace-embed", "fasthttp-disk", "fasthttp-embed", "gin-disk", "gin-embed"} {
		if s.env.Mode == result.Full || !fullOnly(name) {
			jobs = append(jobs, buildJob{key: name})
		}
	}
	for i := range jobs {
		if jobs[i].name == "" {
			jobs[i].name = jobs[i].key
		}
	}
	return s.build(ctx, jobs)
}

// fullOnly reports whether an arm is left to full runs. With 1000 connections
// ten blocks of all arms would need windows too short to say something, and
// compiling Gin takes half of a quick run where nothing was compiled before.
func fullOnly(arm string) bool {
	switch arm {
	case "fasthttp-embed", "gin-disk", "gin-embed":
		return true
	}
	return false
}

// curveOverlay puts the curve's files where the subject embeds them. They lie
// in one place for all runs, since the go command's flags name it and each set
// of flags has an executable of its own.
func (s *fileServers) curveOverlay(files []siteFile) (string, error) {
	dir := filepath.Join(s.env.Bench.Dir, "out", "lab", "site-"+string(s.env.Mode))
	if err := writeSite(dir, files); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	into := filepath.Join(s.env.Bench.Dir, "subjects", "internal", "site", "embedded", "files")
	return name, overlay(name, dir, into, files)
}

// embedArms are all arms, the baseline first; those that cannot run say why.
func (s *fileServers) embedArms(ctx context.Context) []trial.Arm {
	var arms []trial.Arm
	for _, a := range []struct{ name, module, about string }{
		{"nethttp-disk", "", "net/http's FileServer on a folder, JSON encoded for each request"},
		{"nethttp-embed", "", "the same on go:embed through fs.Sub and http.FS"},
		{"nethttp-ldflags", "", "files in variables that the linker filled (-X), pictures base64-decoded for each request"},
		{"gin-disk", "github.com/gin-gonic/gin", "Gin's StaticFS on a folder"},
		{"gin-embed", "github.com/gin-gonic/gin", "Gin's StaticFS on go:embed"},
		{"fasthttp-disk", "github.com/valyala/fasthttp", "fasthttp's FS on a folder"},
		{"fasthttp-embed", "github.com/valyala/fasthttp", "fasthttp's FS on go:embed"},
	} {
		arms = append(arms, s.subjectArm(a.name, a.module, a.about))
	}
	l, err := s.millrace(false)
	disk := s.arm("millrace-disk", "millrace serve on a folder; the JSON method is a file to it", l, err)
	if err == nil {
		disk.Version = goVersion(l.exe, "")
	}
	embed := s.subjectArm("millrace-embed", "", "millrace's package static on go:embed, a plain handler under net/http without the fast lane")
	packed := trial.Arm{
		Name: "millrace-packed", About: "the site packed into millrace's executable",
		Skipped: "millrace cannot pack a site into its executable yet",
	}
	l, err = s.nginx()
	nginx := s.arm("nginx", "sendfile, open_file_cache, two workers, no log; the JSON method is a file to it", l, err)
	if err == nil {
		nginx.Version = nginxVersion(ctx, l.exe)
	}
	return append(arms, disk, embed, packed, nginx)
}

// subjectArm is an arm whose server is a subject of the same name that takes
// -root and -listen.
func (s *fileServers) subjectArm(name, module, about string) trial.Arm {
	exe, err := s.subject(name)
	if fullOnly(name) && s.env.Mode == result.Quick {
		err = errFullOnly
	}
	a := s.arm(name, about, siteLaunch(exe), err)
	if err == nil {
		a.Version = goVersion(exe, module)
	}
	return a
}

// errFullOnly is why an arm is not in a quick run.
var errFullOnly = errors.New("there is not time for it in a quick run: run with --full")

func siteLaunch(exe string) launch {
	return launch{exe: exe, args: func(p place) []string { return []string{"-root", p.Site, "-listen", p.Address} }}
}

// embedPlan is what is measured; the caller sets the budget.
func embedPlan(arms []trial.Arm, env Env) trial.Plan {
	threads := 1
	if runtime.NumCPU() > embedThreads {
		threads = embedThreads
	}
	base := load.Config{Connections: embedConnections, Threads: threads, Sources: 4}
	page, all := base, base
	page.Paths = []string{"/"}
	all.Paths = sitePaths()
	p := trial.Plan{
		Arms: arms,
		Workloads: []trial.Workload{
			{Name: "one page", About: "GET / (501 bytes), 1000 connections, closed loop", Load: page},
			{Name: "all", About: "GET of all seven paths in turn (0.5 to 15 KB), 1000 connections, closed loop", Load: all},
		},
		Decide: []string{"cpu_ns", "requests_per_second"},
		Also:   []trial.Pair{{Arm: "millrace-disk", Baseline: "nginx"}},
		Delta:  embedDelta, PerRestart: 1, Seed: env.Seed,
		Slot: 2 * time.Second, Warmup: 200 * time.Millisecond,
		Blocks: []int{12, 16, 20},
	}
	if env.Mode == result.Quick {
		p.Slot, p.Warmup = 500*time.Millisecond, 50*time.Millisecond
		// All paths are asked of whom the claim is about, of millrace and of nginx.
		p.Workloads[1].Arms = []string{"nethttp-disk", "nethttp-embed", "nethttp-ldflags", "millrace-disk", "nginx"}
		// No more than can give a verdict at all: every restart is one finding.
		p.Blocks = []int{stats.FewestBlocks(len(p.Workloads)*len(p.Decide), stats.Rule{Delta: p.Delta})}
	}
	return p
}
