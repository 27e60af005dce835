// Package embed is the experiment embed-vs-disk: small files from the executable
// or from disk.
package embed

import (
	"context"
	"crypto/sha1" // the length of a commit's name, not a proof of anything
	"encoding/hex"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	loadConnections = 1000 // as published
	// loadThreads is as published, too, where they do not take the server's
	// last core.
	loadThreads = 2
	// smallestEffect is the smallest one that counts.
	smallestEffect = 0.01
	// quickCurve is what the curve of sizes takes of a quick run, and a tenth of a
	// full one.
	quickCurve = 14 * time.Second
)

// Experiment is embed-vs-disk.
func Experiment() experiment.Experiment {
	return experiment.Experiment{
		Name:  "embed-vs-disk",
		Title: "small files from the executable or from disk, in five servers",
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
		Run: run,
	}
}

// claims are the published requests/s by workload and arm.
func claims() map[string]map[string]float64 {
	return map[string]map[string]float64{
		onePage:  {base: 83_519, embeddedArm: 116_485},
		allPaths: {base: 83_970, embeddedArm: 91_614},
	}
}

// The workloads, as published.
const (
	onePage  = "one page"
	allPaths = "all"
)

const (
	// base is the arm that the others are compared with.
	base = "nethttp-disk"
	// embeddedArm is the one that the claim is about.
	embeddedArm = "nethttp-embed"
	// linkedArm has the site in variables that the linker has filled.
	linkedArm = "nethttp-ldflags"
	// packedArm is the site in one executable.
	packedArm = "millrace-packed"
)

// A measurement is one run of the experiment.
type measurement struct {
	*experiment.Stage
	*experiment.Servers
	sizes  []int             // of the files on the curve
	packed experiment.Launch // the site, with the curve's files, in one executable
}

func run(ctx context.Context, env experiment.Env, res *record.Result) error {
	m := &measurement{
		Stage:   experiment.NewStage(env, res),
		Servers: &experiment.Servers{Env: env, Site: filepath.Join(env.Work, "site"), Probed: experiment.SitePaths()},
		sizes:   curveSizes(env.Mode),
	}
	if err := m.prepare(ctx); err != nil {
		return err
	}
	m.Built()
	total := experiment.Budget(env.Mode)
	curveTime := total / 10
	if env.Mode == record.Quick {
		curveTime = quickCurve
	}
	share := 1 - float64(curveTime)/float64(total)
	plan := newPlan(m.arms(ctx), env)
	plan.Budget = m.Left() - curveTime
	err := trial.Run(ctx, plan, res, m.Part(0, share, curveTime))
	res.Tables, res.Answer = append(res.Tables, tables(res, m.Probes())...), answer(res, nil)
	if err != nil || ctx.Err() != nil {
		return err
	}
	watch := m.Part(share, 1, 0)
	series, err := m.curve(ctx, res, max(curveTime/2, min(curveTime, m.Left())), func(e record.Event) {
		if e.Kind != record.EventNote { // they were all said before
			watch(e)
		}
	})
	res.Answer = answer(res, series)
	return err
}

// prepare writes the site and builds the subjects.
func (m *measurement) prepare(ctx context.Context) (err error) {
	files := experiment.Site()
	var large []experiment.File
	for _, size := range m.sizes {
		large = append(large, experiment.SizedFile(size))
	}
	if err := experiment.WriteSite(m.Site, append(files, large...)); err != nil {
		return err
	}
	hash := sha1.New()
	for _, f := range files {
		hash.Write(f.Content())
	}
	linked := ldflags(files, hex.EncodeToString(hash.Sum(nil)))
	overlayFlag := ""
	if m.Env.Bench != nil {
		over, err := m.curveOverlay(large)
		if err != nil {
			return err
		}
		overlayFlag = "-overlay=" + over
	}
	if m.Programs, err = m.Build(ctx, programs(linked, overlayFlag)); err != nil {
		return err
	}
	m.packed = m.Packed(ctx, filepath.Join(m.Env.Work, "millrace-packed"))
	return ctx.Err()
}

// programs are the executables by arm, those of the claim first. linked are the flags
// that put the site into variables, overlayFlag is the one which adds the curve's files.
func programs(linked, overlayFlag string) []experiment.Program {
	ldflags := experiment.FileServerProgram(linkedArm, "ldflags", "disk")
	ldflags.Flags = append(ldflags.Flags, linked)
	list := []experiment.Program{experiment.FileServerProgram(base, "nethttp", "disk"), experiment.FileServerProgram(embeddedArm, "nethttp"), ldflags}
	if overlayFlag != "" {
		curve := experiment.FileServerProgram(curveSubject, "nethttp")
		curve.Flags = append(curve.Flags, overlayFlag)
		list = append(list, curve)
	}
	return append(
		list,
		experiment.FileServerProgram("millrace-embed", "millrace"),
		experiment.FileServerProgram("fasthttp-disk", "fasthttp", "disk"),
		experiment.FileServerProgram("fasthttp-embed", "fasthttp"),
		experiment.FileServerProgram("gin-disk", "gin", "disk"),
		experiment.FileServerProgram("gin-embed", "gin"),
	)
}

// curveOverlay puts the curve's files where the subject embeds them. They lie
// in one place for all runs, since the go command's flags name it and each set
// of flags has an executable of its own.
func (m *measurement) curveOverlay(files []experiment.File) (string, error) {
	bench := m.Env.Bench.Dir
	dir := filepath.Join(bench, "out", "lab", "site-"+string(m.Env.Mode))
	if err := experiment.WriteSite(dir, files); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	into := filepath.Join(bench, "subjects", "fileserver", "files")
	return name, overlay(name, dir, into, files)
}

// arms are all arms, the baseline first; those that cannot run say why.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	var arms []trial.Arm
	for _, a := range []struct{ name, module, about string }{
		{base, "", "net/http's FileServer on a folder, JSON encoded for each request"},
		{embeddedArm, "", "the same on go:embed through fs.Sub and http.FS"},
		{linkedArm, "", "files in variables that the linker filled (-X), pictures base64-decoded for each request"},
		{"gin-disk", ginModule, "Gin's StaticFS on a folder"},
		{"gin-embed", ginModule, "Gin's StaticFS on go:embed"},
		{"fasthttp-disk", fasthttpModule, "fasthttp's FS on a folder"},
		{"fasthttp-embed", fasthttpModule, "fasthttp's FS on go:embed"},
	} {
		arms = append(arms, m.subjectArm(a.name, a.module, a.about))
	}
	return append(
		arms,
		m.Arm("millrace-disk", "millrace serve on a folder; the JSON method is a file to it", m.Millrace(false)),
		m.subjectArm("millrace-embed", "", "millrace's package static on go:embed, a plain handler under net/http without the fast lane"),
		m.Arm(packedArm, "the site packed into millrace's executable by millrace pack", m.packed),
		m.Arm("nginx", "sendfile, open_file_cache, two workers, no log; the JSON method is a file to it", m.Nginx(ctx, "")),
	)
}

const (
	ginModule      = "github.com/gin-gonic/gin"
	fasthttpModule = "github.com/valyala/fasthttp"
)

// subjectArm is an arm whose server is lab/bench/subjects/fileserver.
func (m *measurement) subjectArm(name, module, about string) trial.Arm {
	return m.Arm(name, about, m.Subject(name, module, siteArgs(name)))
}

// siteArgs are those of fileserver as an arm: gin-embed is -server gin -embed.
func siteArgs(arm string) func(experiment.Place) []string {
	server, embedded := strings.CutSuffix(strings.TrimSuffix(arm, "-disk"), "-embed")
	if arm == linkedArm {
		server = "ldflags"
	}
	return func(p experiment.Place) []string {
		args := []string{"-server", server}
		if embedded {
			args = append(args, "-embed")
		} else if arm != linkedArm {
			args = append(args, "-root", p.Site)
		}
		return append(args, "-listen", p.Address)
	}
}

// newPlan is what is measured; the caller sets the budget.
func newPlan(arms []trial.Arm, env experiment.Env) trial.Plan {
	threads := 1
	if runtime.NumCPU() > loadThreads {
		threads = loadThreads
	}
	one := load.Config{Connections: loadConnections, Threads: threads, Sources: 4}
	page, all := one, one
	page.Paths = []string{"/"}
	all.Paths = experiment.SitePaths()
	p := trial.Plan{
		Arms: arms,
		Workloads: []trial.Workload{
			{Name: onePage, About: "GET / (501 bytes), 1000 connections, closed loop", Load: page},
			{Name: allPaths, About: "GET of all seven paths in turn (0.5 to 15 KB), 1000 connections, closed loop", Load: all},
		},
		Decide: []string{"cpu_ns", "requests_per_second"},
		Also: []trial.Pair{
			{Arm: "millrace-disk", Baseline: "nginx"},
			{Arm: packedArm, Baseline: "millrace-disk"},
			{Arm: packedArm, Baseline: "nginx"},
		},
		Delta: smallestEffect, PerRestart: 1, Seed: env.Seed,
		Slot: 2 * time.Second, Warmup: 200 * time.Millisecond,
		Blocks: []int{12, 16, 20},
	}
	if env.Mode == record.Quick {
		p.Slot, p.Warmup = 500*time.Millisecond, 50*time.Millisecond
		// All paths are asked of whom the claim is about, of millrace and of nginx.
		p.Workloads[1].Arms = []string{base, embeddedArm, "millrace-disk", packedArm, "nginx"}
		// No more than can give a verdict at all: every restart is one finding.
		p.Blocks = []int{stats.FewestBlocks(len(p.Workloads)*len(p.Decide), stats.Rule{Delta: p.Delta})}
	}
	return p
}
