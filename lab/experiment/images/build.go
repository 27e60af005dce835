package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"millrace/lab/load"
	"millrace/lab/pgo"
	"millrace/lab/record"
)

// recordQuick and recordFull are how long each workload is recorded where there
// is not a profile yet: some 300 samples, and some 2,000.
const (
	recordQuick = 4 * time.Second
	recordFull  = 20 * time.Second
)

// prepare makes the two executables, or looks at those that there are.
func (p *proof) prepare(ctx context.Context, res *record.Result) error {
	p.arms = [2]proofArm{
		{name: withoutProfile, about: "built with -pgo=off", exe: p.Without},
		{name: withProfile, about: "the same source, built with the profile", exe: p.With},
	}
	if (p.Without == "") != (p.With == "") {
		return errors.New("two executables are needed, one built without the profile and one with it")
	}
	if p.Without != "" {
		return p.given(res)
	}
	dir, pkg, err := p.source()
	if err != nil {
		return err
	}
	p.begin("building without a profile")
	if err := p.build(ctx, &p.arms[0], pgo.Build{Dir: dir, Package: pkg, Profile: pgo.Off}); err != nil {
		return err
	}
	profile, where, err := p.profile(ctx, dir, pkg)
	if err != nil {
		return err
	}
	res.Notes = append(res.Notes, where)
	if read, err := pgo.Read(profile); err == nil {
		res.Notes = append(res.Notes, "predicted: "+pgo.Predict(read).Sentence())
	}
	if note := aboutCodecs(profile); p.itself() && note != "" {
		res.Notes = append(res.Notes, note)
	}
	p.begin("building with " + filepath.Base(profile) + ": the first time compiles everything")
	return p.build(ctx, &p.arms[1], pgo.Build{Dir: dir, Package: pkg, Profile: profile})
}

// given looks at executables that the user has built.
func (p *proof) given(res *record.Result) error {
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
		a.about = fmt.Sprintf("%s, built by %s with -pgo=%s", filepath.Base(a.exe), compiler, orOff(a.proof))
	}
	if p.arms[1].proof == "" {
		return fmt.Errorf("%s: %w", p.With, pgo.ErrNoProof)
	}
	if p.arms[0].proof != "" {
		res.Notes = append(res.Notes, fmt.Sprintf("the executable without was built with a profile, too: -pgo=%s", p.arms[0].proof))
	}
	return nil
}

func orOff(profile string) string {
	if profile == "" {
		return pgo.Off
	}
	return profile
}

// source is where the program's source is.
func (p *proof) source() (dir, pkg string, err error) {
	switch {
	case p.Package != "":
		return p.Dir, p.Package, nil
	case p.env.Bench == nil:
		return "", "", errNoCheckout
	}
	return filepath.Dir(p.env.Bench.Dir), "./cmd/millrace", nil
}

// build builds one of the two. A full run compiles everything anew, both times,
// so that the times can be compared; a quick one takes what the go command
// kept, and has the same flags as the running program, whose build may have
// filled that cache.
func (p *proof) build(ctx context.Context, a *proofArm, b pgo.Build) error {
	b.Out = filepath.Join(p.env.Work, a.name)
	b.Flags, b.Env = pgo.SameFlags(p.env.Millrace)
	if p.itself() {
		b.Flags = append(b.Flags, "-ldflags=-s") // as it ships; -trimpath hides whether it was there
	}
	if p.env.Mode == record.Full {
		cache, err := os.MkdirTemp(p.env.Work, "gocache-")
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
	if p.env.Mode != record.Full {
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
	if !p.itself() || p.env.Bench == nil {
		return "", "", fmt.Errorf("there is no default.pgo beside %s: name a profile (--profile FILE), millrace pgo record makes one", pkg)
	}
	file = filepath.Join(p.env.Bench.Dir, "out", "lab", "pgo-proof.pgo")
	if _, err := pgo.Read(file); err == nil {
		return file, "there is no default.pgo beside the main package: the profile is the one that an earlier run recorded, " +
			"lab/bench/out/lab/pgo-proof.pgo", nil
	}
	data, err := p.recordBoth(ctx)
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // as the subjects beside it
		return "", "", fmt.Errorf("keeping the profile: %w", err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return "", "", fmt.Errorf("keeping the profile: %w", err)
	}
	return file, "there is no default.pgo beside the main package: one was recorded first, of these workloads with equal weights, " +
		"and kept in lab/bench/out/lab/pgo-proof.pgo", nil
}

// recordBoth records millrace under both workloads and merges the profiles.
func (p *proof) recordBoth(ctx context.Context) ([]byte, error) {
	length := recordQuick
	if p.env.Mode == record.Full {
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
	merged, err := pgo.Merge(parts, pgo.MaxMerged)
	if err != nil {
		return nil, err
	}
	return merged.Data, nil
}

// recordOne takes a CPU profile of millrace under one workload.
func (p *proof) recordOne(ctx context.Context, a proofArm, workload string, length time.Duration) (*pgo.Profile, error) {
	admin := "unix:" + filepath.Join(p.env.Work, "admin-"+strconv.FormatInt(time.Now().UnixNano(), 36))
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
