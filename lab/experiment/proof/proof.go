// Package proof is what of the experiment pgo-proof is code: a program built with a
// CPU profile of itself, against the same program built without.
package proof

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/pgo"
	"millrace/lab/record"
)

const (
	// name is that of the spec.
	name = "pgo-proof"
	// fewConnections are few enough that each costs what it costs alone.
	fewConnections = 50

	// The two arms.
	without = "plain"
	with    = "PGO"

	// The workloads of millrace itself.
	fastLane    = "fast lane"
	slowLane    = "slow lane"
	imageServer = "image conversions"

	// recordQuick and recordFull are how long each workload is recorded where there
	// is not a profile yet: some 300 samples, and some 2,000.
	recordQuick = 4 * time.Second
	recordFull  = 20 * time.Second
)

// A Proof is what [Prove] compares: the same program, built without and with a
// profile. Zero values are millrace itself.
type Proof struct {
	// Without and With are executables that were built already; empty: they
	// are built from Package.
	Without, With string
	// Package is the main package to build, as for go build in Dir; empty:
	// millrace's own in the checkout.
	Package, Dir string
	// Profile is the CPU profile to build with; empty: default.pgo in the
	// folder of the package and, for millrace, else one that is recorded first.
	Profile string
	// Args make the program serve: {port} stands for a port of 127.0.0.1. nil:
	// millrace serves a small site of the lab, once with and once without its
	// fast lane, and images that it converts for each request.
	Args []string
	// Paths are asked for in turn; nil: "/".
	Paths []string
	// Connections are open at once; 0: 50.
	Connections int
}

// Hooks are those of the experiment on millrace itself.
func Hooks(r *experiment.Run) experiment.Hooks { return newProof(r, Proof{}).hooks() }

// Prove runs the experiment pgo-proof on any program. As with every
// experiment the result holds what was measured even where there is an error.
func Prove(ctx context.Context, env experiment.Env, p Proof) (*record.Result, error) {
	e, err := experiment.New(name, func(r *experiment.Run) experiment.Hooks { return newProof(r, p).hooks() })
	if err != nil {
		return nil, err
	}
	e.Name = "pgo-prove"
	if p.Args != nil {
		e.Title = "a program built with a CPU profile: gain, noise or harm"
		e.Question = "Does building this program with a profile of its work make it answer with less CPU time, and what does that cost?"
		e.Claim = "The Go project saw 2 to 14 % less CPU time in representative programs (go.dev/doc/pgo)."
	}
	return e.Measure(ctx, record.KindPGO, env)
}

// proof is one run of the experiment.
type proof struct {
	*experiment.Run
	Proof
	arms   [2]arm // without a profile, with one
	codecs bool   // the profile has samples of the WebP encoder
	memory idleMemory
	table  record.Table // where the time goes
}

// arm is one of the two executables.
type arm struct {
	name  string
	about string
	exe   string
	size  int64
	build string // how long it took to build, in words
	proof string // the -pgo setting in it
}

func newProof(r *experiment.Run, p Proof) *proof {
	p.Connections = cmp.Or(p.Connections, fewConnections)
	if p.Paths == nil {
		p.Paths = []string{"/"}
	}
	return &proof{Run: r, Proof: p, arms: [2]arm{
		{name: without, about: "built with -pgo=off", exe: p.Without},
		{name: with, about: "the same source, built with the profile", exe: p.With},
	}}
}

func (p *proof) hooks() experiment.Hooks {
	return experiment.Hooks{
		Prepare: func(ctx context.Context) error {
			p.workloads()
			if err := p.prepare(ctx); err != nil || !p.itself() {
				return err
			}
			return p.writePictures()
		},
		Arms: p.trialArms,
		After: func(ctx context.Context) error {
			p.memory = p.idle(ctx)
			p.shares(ctx)
			return nil
		},
		Report: p.report,
	}
}

// itself reports whether millrace is what is measured.
func (p *proof) itself() bool { return p.Args == nil }

func (p *proof) begin(text string) { p.Emit(record.Event{Kind: record.EventStep, Text: text}) }

// workloads are those of the spec for millrace, and one load for any other program.
func (p *proof) workloads() {
	if p.itself() {
		for i := range p.Spec.Workloads {
			w := &p.Spec.Workloads[i]
			if w.Name == imageServer {
				w.Paths = picturePaths()
			} else {
				w.Paths, w.Connections = p.Paths, p.Connections
			}
		}
		return
	}
	p.Spec.Tables = p.Spec.Tables[1:] // what was published is about millrace
	p.Spec.Workloads = []experiment.Workload{{
		Name: "load", About: fmt.Sprintf("GET, %d connections, closed loop", p.Connections), Quick: true, Paths: p.Paths, Connections: p.Connections, Threads: 1, Metric: experiment.CPU,
	}}
}

// errNoCheckout is what there is no source without.
var errNoCheckout = errors.New("millrace's source is not here: run this in a checkout, or name two executables (millrace-lab pgo prove --without FILE --with FILE --args ARGS)")

// prepare makes the two executables, or looks at those that there are.
func (p *proof) prepare(ctx context.Context) error {
	if (p.Without == "") != (p.With == "") {
		return errors.New("two executables are needed, one built without the profile and one with it")
	}
	if p.Without != "" {
		return p.given()
	}
	dir, pkg := p.Dir, p.Package
	if pkg == "" {
		if p.Env.Bench == nil {
			return errNoCheckout
		}
		dir, pkg = filepath.Dir(filepath.Dir(p.Env.Bench.Dir)), "./cmd/millrace"
	}
	if p.itself() {
		p.begin("building millrace twice comes first; on a fresh machine that takes minutes, which are not part of the time for measuring")
	}
	p.begin("building without a profile")
	if err := p.build(ctx, &p.arms[0], pgo.Build{Dir: dir, Package: pkg, Profile: pgo.Off}); err != nil {
		return err
	}
	profile, where, err := p.profile(ctx, dir, pkg)
	if err != nil {
		return err
	}
	p.Note("%s", where)
	if read, err := pgo.Read(profile); err == nil {
		p.Note("predicted: %s", pgo.Predict(read).Sentence())
	}
	p.codecs = hasCodecs(profile)
	p.begin("building with " + filepath.Base(profile) + ": the first time compiles everything")
	return p.build(ctx, &p.arms[1], pgo.Build{Dir: dir, Package: pkg, Profile: profile})
}

// given looks at executables that the user has built.
func (p *proof) given() error {
	for i := range p.arms {
		a := &p.arms[i]
		info, err := os.Stat(a.exe)
		if err != nil {
			return fmt.Errorf("looking at the executable %s: %w", a.name, err)
		}
		a.size, a.build = info.Size(), "built before"
		var compiler string
		if a.proof, compiler, err = pgo.Stamp(a.exe); err != nil {
			return err
		}
		a.about = fmt.Sprintf("%s, built by %s with -pgo=%s", filepath.Base(a.exe), compiler, cmp.Or(a.proof, pgo.Off))
	}
	if p.arms[1].proof == "" {
		return fmt.Errorf("%s: %w", p.With, pgo.ErrNoProof)
	}
	if p.arms[0].proof != "" {
		p.Note("the executable without was built with a profile, too: -pgo=%s", p.arms[0].proof)
	}
	return nil
}

// build builds one of the two. A full run compiles everything anew, both times,
// so that the times can be compared; a quick one takes what the go command
// kept, and has the same flags as the running program, whose build may have
// filled that cache.
func (p *proof) build(ctx context.Context, a *arm, b pgo.Build) error {
	b.Out = filepath.Join(p.Env.Work, a.name)
	b.Flags, b.Env = pgo.SameFlags(p.Env.Millrace)
	if p.itself() {
		b.Flags = append(b.Flags, "-ldflags=-s") // as it ships; -trimpath hides whether it was there
	}
	if !p.Quick {
		cache, err := os.MkdirTemp(p.Env.Work, "gocache-")
		if err != nil {
			return fmt.Errorf("making a cache for the build: %w", err)
		}
		defer os.RemoveAll(cache) //nolint:errcheck // in a folder that is removed
		b.Env = append(b.Env, "GOCACHE="+cache)
	}
	built, err := b.Run(ctx)
	if err != nil {
		return err
	}
	a.exe, a.size, a.proof = built.Path, built.Size, built.Proof
	a.build = fmt.Sprintf("%.1f s", built.Took.Seconds())
	if p.Quick {
		a.build += ", with what the go command had kept"
	}
	if a.proof != "" {
		a.about = fmt.Sprintf("the same source, built with -pgo=%s", filepath.Base(a.proof))
	}
	return nil
}

// profile is the one to build with: that which was named, the one beside the
// main package, or one that is recorded now and kept for the next run.
func (p *proof) profile(ctx context.Context, dir, pkg string) (file, where string, err error) {
	if p.Profile != "" {
		return p.Profile, "the profile is " + filepath.Base(p.Profile), nil
	}
	file = filepath.Join(dir, pkg, "default.pgo")
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return file, "the profile is default.pgo of the main package", err
	}
	if !p.itself() || p.Env.Bench == nil {
		return "", "", fmt.Errorf("there is no default.pgo beside %s: name a profile (--profile FILE), millrace-lab pgo record makes one", pkg)
	}
	file = filepath.Join(p.Env.Bench.Dir, "out", "lab", "pgo-proof.pgo")
	const kept = "lab/bench/out/lab/pgo-proof.pgo"
	if _, err := pgo.Read(file); err == nil && hasCodecs(file) {
		return file, "there is no default.pgo beside the main package: the profile is the one that an earlier run recorded, " + kept, nil
	}
	data, err := p.recordAll(ctx, dir)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755) // as the subjects beside it
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		return "", "", fmt.Errorf("recording a profile: %w", err)
	}
	return file, "there is no default.pgo beside the main package: one was recorded first, of the two lanes and of image conversions with equal weights, and kept in " + kept, nil
}

// recordAll records millrace under each workload and merges the profiles. dir is the
// checkout.
func (p *proof) recordAll(ctx context.Context, dir string) ([]byte, error) {
	length := recordQuick
	if !p.Quick {
		length = recordFull
	}
	var parts []pgo.Part
	for _, workload := range []string{fastLane, slowLane} {
		p.begin("recording a profile, " + workload)
		got, err := p.recordOne(ctx, p.arms[0], workload, length)
		if err != nil {
			return nil, err
		}
		parts = append(parts, pgo.Part{Profile: got, Weight: 1})
	}
	p.begin("recording a profile, " + imageServer)
	got, err := p.recordConversions(ctx, dir, length)
	if err != nil {
		return nil, err
	}
	parts = append(parts, pgo.Part{Profile: got, Weight: 1})
	merged, err := pgo.Merge(parts, pgo.MaxMerged)
	if err != nil {
		return nil, err
	}
	return merged.Data, nil
}

// recordConversions takes a CPU profile of what image workers do. They are processes
// that nobody can ask for theirs, so it is that of a benchmark of the same code.
func (p *proof) recordConversions(ctx context.Context, dir string, length time.Duration) (*pgo.Profile, error) {
	file := filepath.Join(p.Env.Work, "conversions.pprof")
	cmd := exec.CommandContext(ctx, "go", "test", "-pgo=off", "-tags=nodynamic", "-run=^$", "-bench=^BenchmarkConvert$",
		"-benchtime="+length.String(), "-cpuprofile="+file, "-o="+filepath.Join(p.Env.Work, "convert.test"), "./images/convert")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("recording image conversions: %w: %s", err, experiment.FirstLine(string(out)))
	}
	return pgo.Read(file)
}

// recordOne takes a CPU profile of millrace under one workload.
func (p *proof) recordOne(ctx context.Context, a arm, workload string, length time.Duration) (*pgo.Profile, error) {
	admin := "unix:" + filepath.Join(p.Env.Work, "admin-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	s, err := p.serve(ctx, a.exe, p.millraceArgs(workload == slowLane, admin))
	if err != nil {
		return nil, err
	}
	defer s.Stop() //nolint:errcheck // it was only looked at
	loading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { // ends with stop, which is waited for below
		_, err := load.Run(loading, load.Config{
			URL: "http://" + s.Address() + "/", Paths: p.Paths, Connections: p.Connections, Threads: 1, Duration: length + time.Minute,
		})
		ended <- err
	}()
	got, err := takeProfile(ctx, admin, length)
	stop()
	if loadErr := <-ended; err == nil && ctx.Err() == nil && loadErr != nil && !errors.Is(loadErr, context.Canceled) {
		err = fmt.Errorf("loading %s: %w", a.name, loadErr)
	}
	return got, err
}
