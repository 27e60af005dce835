package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/stats"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// A Run is one run of an experiment.
type Run struct {
	*Stage
	Env   Env
	Spec  *Spec
	Res   *record.Result
	Quick bool

	Site     string            // the folder that is served
	Fields   map[string]string // of commands and configs, beside those of a place
	Missing  map[string]error  // what workloads need and is not here
	Programs *Programs
	Tools    map[string]string       // h2load: its executable
	Right    func(url string) []byte // what must be answered to a path; nil: nobody knows
	Chosen   []Workload              // what is measured

	hooks  Hooks
	places atomic.Int64 // handed out
	ends   []func() error

	mu     sync.Mutex         // guards probes
	probes map[string][]Probe // by arm: what it answers, seen when it first started
}

// NewRun makes ready what a run has before anything is done.
func NewRun(env Env, spec *Spec, res *record.Result) *Run {
	return &Run{
		Stage: NewStage(env, res), Env: env, Spec: spec, Res: res, Programs: &Programs{}, Quick: env.Mode != record.Full, Site: filepath.Join(env.Work, "site"),
		Fields: map[string]string{}, Missing: map[string]error{}, Tools: map[string]string{}, Right: site.Content,
	}
}

// Defer has something done at the end of the run, what was deferred last first.
func (r *Run) Defer(do func() error) { r.ends = append(r.ends, do) }

// measure does everything that the spec says.
func (e Experiment) measure(ctx context.Context, env Env, res *record.Result) (err error) {
	spec, err := Read(e.file, env.Mode)
	if err != nil {
		return err
	}
	r := NewRun(env, spec, res)
	defer func() {
		for _, do := range slices.Backward(r.ends) {
			err = errors.Join(err, do())
		}
	}()
	if e.Hooks != nil {
		r.hooks = e.Hooks(r)
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	arms, err := r.arms(ctx)
	if err != nil {
		return err
	}
	plan := r.plan(arms)
	share := 1.0
	if plan.Budget > 0 {
		share = float64(plan.Budget) / float64(plan.Budget+spec.Reserve)
	}
	defer r.conclude()
	err = trial.Run(ctx, plan, res, r.Part(0, share, spec.Reserve))
	if err != nil || ctx.Err() != nil || r.hooks.After == nil {
		return err
	}
	return r.hooks.After(ctx)
}

// prepare makes all that servers need, and starts what is behind them.
func (r *Run) prepare(ctx context.Context) (err error) {
	if r.Tools["h2load"], err = subject.Look("h2load", "nghttp2-client"); err != nil {
		r.Missing["h2load"] = err
	}
	if r.Spec.Connections > 0 {
		r.MostConnections(r.Spec.Connections) // before servers start, which have the limit from us
	}
	if err := site.WriteParts(r.Site, r.Spec.Site); err != nil {
		return err
	}
	if r.Spec.Certificate {
		if r.Fields["Cert"], r.Fields["Key"], err = site.Certificate(r.Env.Work); err != nil {
			return err
		}
		r.Fields["Both"] = filepath.Join(r.Env.Work, "both.pem")
	}
	if r.hooks.Prepare != nil {
		if err := r.hooks.Prepare(ctx); err != nil {
			return err
		}
	}
	if r.Chosen, err = r.choose(); err != nil {
		return err
	}
	if r.Programs, err = r.Build(ctx, r.Spec.Programs); err != nil {
		return err
	}
	if r.Spec.Pack {
		r.Programs.pack(ctx, r)
	}
	r.Built()
	for _, u := range r.Spec.Upstreams {
		if r.Fields[u.Name] = ""; u.Needs != "" && !slices.ContainsFunc(r.Chosen, func(w Workload) bool { return w.Needs == u.Needs }) {
			continue
		}
		if err := r.upstream(ctx, u); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// upstream starts a server that the arms are in front of. Its address becomes the
// field of its name: NAME is host:port, NAMEHost and NAMEPort are its parts.
func (r *Run) upstream(ctx context.Context, u Arm) error {
	l, err := r.launch(ctx, u)
	if err != nil {
		return fmt.Errorf("%s: %w", u.Name, err)
	}
	in, err := r.start(ctx, l, nil)
	if err != nil {
		return err
	}
	r.Defer(func() error { _ = in.Stop(); return nil }) // that it died shows in what is passed on to it
	if u.Socket {
		r.Fields[u.Name] = strings.TrimPrefix(in.URL["unix"], "unix:")
		return nil
	}
	r.Fields[u.Name] = in.URL["address"]
	r.Fields[u.Name+"Host"], r.Fields[u.Name+"Port"], err = net.SplitHostPort(in.URL["address"])
	return err
}

// errNone is why nothing is measured.
var errNone = errors.New("there is no workload")

// choose are the workloads to measure: those that were named, or all, but in a quick
// run only some. Those that cannot be measured here are left out with a note.
func (r *Run) choose() (chosen []Workload, err error) {
	var names []string
	left := map[string][]string{} // by reason
	var missing error
	for _, w := range r.Spec.Workloads {
		names = append(names, w.Name)
		wanted, err := named(w.Name, r.Env.Only)
		if err != nil {
			return nil, err
		}
		switch why := r.Missing[w.Needs]; {
		case len(r.Env.Only) > 0 && !wanted, len(r.Env.Only) == 0 && r.Quick && !w.Quick:
		case why != nil:
			missing = why
			left[why.Error()] = append(left[why.Error()], w.Name)
		default:
			chosen = append(chosen, w)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		r.Note("left out: %s: %s", strings.Join(left[why], ", "), why)
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case missing != nil:
		return nil, missing
	}
	return nil, fmt.Errorf("%w %q, only %s", errNone, strings.Join(r.Env.Only, " "), strings.Join(names, ", "))
}

// named reports whether one of the patterns is for a name.
func named(name string, patterns []string) (bool, error) {
	for _, p := range patterns {
		ok, err := path.Match(p, name)
		if err != nil {
			return false, fmt.Errorf("reading the pattern %q: %w", p, err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// arms are those of the spec and of the hooks that some workload needs.
func (r *Run) arms(ctx context.Context) ([]trial.Arm, error) {
	needed := func(name string) bool {
		return slices.ContainsFunc(r.Chosen, func(w Workload) bool { return len(w.Arms) == 0 || slices.Contains(w.Arms, name) })
	}
	var all []trial.Arm
	for _, a := range r.Spec.Arms {
		if !needed(a.Name) {
			continue
		}
		arm := trial.Arm{Name: a.Name, About: a.About}
		l, err := r.launch(ctx, a)
		if err != nil {
			arm.Skipped = strings.TrimSpace(err.Error())
			all = append(all, arm)
			continue
		}
		arm.Version, arm.Size, arm.Command = l.version, subject.Size(l.exe), l.shown()
		switch arm.Start = r.hooks.Start[a.Name]; {
		case a.Once:
			arm.Start = func(context.Context) (*trial.Instance, error) {
				return &trial.Instance{Reports: true, URL: map[string]string{}}, nil
			}
		case arm.Start == nil:
			arm.Start = func(ctx context.Context) (*trial.Instance, error) { return r.Start(ctx, a.Name) }
		}
		all = append(all, arm)
	}
	if r.hooks.Arms != nil {
		all = append(all, slices.DeleteFunc(r.hooks.Arms(), func(a trial.Arm) bool { return !needed(a.Name) })...)
	}
	return all, ctx.Err()
}

// plan is what is measured.
func (r *Run) plan(arms []trial.Arm) trial.Plan {
	s := r.Spec
	p := trial.Plan{
		Arms: arms, Decide: s.Decide, Metrics: s.Metrics, Delta: s.Delta, Placebo: s.Placebo, Pooled: s.Pooled, Differ: s.Differ,
		Slot: s.Slot, Warmup: s.Warmup, Blocks: s.Blocks, PerRestart: s.PerRestart, Seed: r.Env.Seed,
	}
	if !s.Unlimited {
		p.Budget = r.Left() - s.Reserve
	}
	there := func(name string) bool {
		return slices.ContainsFunc(arms, func(a trial.Arm) bool { return a.Name == name })
	}
	for _, pair := range s.Also {
		if there(pair[0]) && there(pair[1]) {
			p.Also = append(p.Also, trial.Pair{Arm: pair[0], Baseline: pair[1]})
		}
	}
	inTurn := slices.Clone(r.Chosen)
	if s.Unlimited { // a server holds on to what it needed for many connections
		slices.SortStableFunc(inTurn, func(a, b Workload) int { return a.Connections - b.Connections })
	}
	figures := 0
	for _, w := range inTurn {
		figures += w.figures(s)
		p.Workloads = append(p.Workloads, r.workload(w))
	}
	if len(p.Blocks) == 0 { // every restart is one finding
		n := stats.FewestBlocks(figures, stats.Rule{Delta: s.Delta, Looks: stats.MaxLooks})
		p.Blocks = []int{n, 2 * n, 4 * n} // as long as something is undecided and there is time
	}
	return p
}

// workload is one of the spec as the trial has it.
func (r *Run) workload(w Workload) trial.Workload {
	t := trial.Workload{
		Name: w.Name, About: w.About, Slot: w.Slot, Decide: w.Decide, Differ: w.Differ, ErrorsExpected: w.Errors,
		Blocks: w.Blocks, Together: w.Together, Arms: w.Arms,
	}
	if len(t.Arms) == 0 {
		t.Arms = nil
	}
	if w.Task == "" {
		t.Load = w.load()
		return t
	}
	do := r.task(w.Task)
	t.Task = func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) { return do(ctx, slot, w) }
	return t
}

// task is one of the hooks, or of those that several experiments have.
func (r *Run) task(name string) Task {
	if do := r.hooks.Tasks[name]; do != nil {
		return do
	}
	return map[string]Task{"h2load": r.h2load, "idle": r.idle, "page": r.page, "rest": r.rest}[name]
}

// conclude writes tables and answer about what there is.
func (r *Run) conclude() {
	for _, t := range r.Spec.Tables {
		if made := r.table(t); len(made.Rows) > 0 {
			r.Res.Tables = append(r.Res.Tables, made)
		}
	}
	r.Res.Answer = r.answer()
	if r.hooks.Report != nil {
		r.hooks.Report()
	}
	r.Res.Answer = Capital(strings.TrimSpace(r.Res.Answer))
}

// A moment is long enough for servers to end what was closed.
const moment = 200 * time.Millisecond
