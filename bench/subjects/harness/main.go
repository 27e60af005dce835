// Command harness carries out the scenarios of bench/run, which builds it and
// everything that it starts.
//
//	harness SCENARIO [PART…] -bench DIR -bin DIR -millrace FILE [flags]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
)

// options are the command line.
type options struct {
	scenario string
	parts    []string
	bench    string
	bin      string
	millrace string
	arms     string
	out      string
	length   stage.Length
	seed     uint64
}

func main() {
	// Servers die with the thread that started them (Pdeathsig), so that a
	// killed harness leaves none behind; so it must be one that stays.
	runtime.LockOSThread()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	o, err := parse(os.Args[1:])
	if err != nil {
		say(os.Stderr, "bench/run: %v", err)
		os.Exit(2)
	}
	if err := run(ctx, o, os.Stdout); err != nil {
		if ctx.Err() != nil {
			err = errors.New("stopped by a signal; nothing was written")
		}
		say(os.Stderr, "bench/run: %v", err)
		os.Exit(1)
	}
}

// parse reads the command line: the scenario first, then flags.
func parse(args []string) (options, error) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return options{}, fmt.Errorf("no scenario named; there is: %s", scenarioNames())
	}
	o := options{scenario: args[0]}
	flags := flag.NewFlagSet("bench/run", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error is printed by main
	flags.StringVar(&o.bench, "bench", "bench", "the repository's `folder` bench")
	flags.StringVar(&o.bin, "bin", "bench/out/bin", "the `folder` of the compiled subjects")
	flags.StringVar(&o.millrace, "millrace", "bin/millrace", "the `program` millrace")
	flags.StringVar(&o.arms, "arms", "", "names of arms with commas, all by default")
	flags.StringVar(&o.out, "out", "", "the `file` for the results; RESULTS.md, CACHE.md, WEBSOCKET.md or IMAGES.md in bench by default, in bench/out for a quick run, or for some arms or parts")
	quick := flags.Bool("quick", false, "a look within four minutes")
	full := flags.Bool("full", false, "everything at its full length")
	flags.Uint64Var(&o.seed, "seed", 0, "of the order of slots; 0: from the clock")
	args = args[1:]
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.parts, args = append(o.parts, args[0]), args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o.parts = append(o.parts, flags.Args()...)
	i := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == o.scenario })
	switch {
	case i < 0:
		return options{}, fmt.Errorf("no scenario %q; there is: %s", o.scenario, scenarioNames())
	case len(o.parts) > 0:
		if err := checkParts(o.parts, scenarios()[i]); err != nil {
			return options{}, err
		}
	}
	switch {
	case *quick && *full:
		return options{}, errors.New("--quick and --full contradict each other")
	}
	o.length = stage.Default
	switch {
	case *quick:
		o.length = stage.Quick
	case *full:
		o.length = stage.Full
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().Unix())
	}
	return o, nil
}

// checkParts refuses words that are no parts of a scenario.
func checkParts(words []string, s scenario) error {
	for _, word := range words {
		switch {
		case len(s.parts) == 0:
			return fmt.Errorf("nothing to do with %q", word)
		case !slices.Contains(s.parts, word):
			return fmt.Errorf("%s has no part %q; there is: %s", s.name, word, strings.Join(s.parts, ", "))
		}
	}
	return nil
}

// run carries out the scenario and writes its results.
func run(ctx context.Context, o options, out io.Writer) error {
	all := scenarios()
	s := all[slices.IndexFunc(all, func(s scenario) bool { return s.name == o.scenario })]
	arms, err := chooseArms(s.arms(), o.arms, out)
	if err != nil {
		return err
	}
	places, err := o.places()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(places.Temp) }() // a leftover in /tmp fails no run
	if err := warnIfBusy(ctx, out); err != nil {
		return err
	}
	r, err := s.run(ctx, job{arms, o.parts, o.length, o.seed, places, out})
	if err != nil {
		return err
	}
	r.Versions = versions(ctx, arms, places, s.name != "ws")
	if r.Images != nil {
		r.Versions = append(r.Versions, converters(ctx)...)
	}
	raw, err := record.Save(filepath.Join(o.bench, "out"), r)
	if err != nil {
		return err
	}
	text, verdict := s.written(r)
	results := o.results(s.results, len(arms) == len(s.arms()) && len(o.parts) == 0)
	if err := os.WriteFile(results, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := s.draw(r, filepath.Dir(results)); err != nil {
		return fmt.Errorf("drawing the charts: %w", err)
	}
	if s.keep != "" && results == filepath.Join(o.bench, s.results) {
		kept := filepath.Join(o.bench, s.keep)
		if err := copyFile(kept, raw); err != nil {
			return fmt.Errorf("keeping the raw data: %w", err)
		}
		raw = kept
	}
	say(out, "%s; results in %s, raw data in %s", verdict, results, raw)
	return nil
}

// draw writes the charts of a run into a folder.
func (s scenario) draw(r *record.Run, dir string) error {
	if s.charts == nil {
		return nil
	}
	charts, err := s.charts(r)
	for name, picture := range charts {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), picture, 0o644))
	}
	return err
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// say prints a line; that it cannot be printed is no reason to stop.
func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}

// results is the file that they go to, in bench as the scenario calls it. Only
// those of a whole run of all arms replace that unasked.
func (o options) results(name string, complete bool) string {
	switch {
	case o.out != "":
		return o.out
	case o.length == stage.Quick || !complete:
		return filepath.Join(o.bench, "out", name)
	default:
		return filepath.Join(o.bench, name)
	}
}

// busy is the share of the processors in use from which on a warning is given.
const busy = 0.05

// warnIfBusy looks at the machine for a second before anything is started.
func warnIfBusy(ctx context.Context, out io.Writer) error {
	const look = time.Second
	before, err := proc.ReadLoad()
	if err != nil {
		return err
	}
	select {
	case <-time.After(look):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := proc.ReadLoad()
	if err != nil {
		return err
	}
	share := after.Sub(before).Busy.Seconds() / look.Seconds() / float64(runtime.NumCPU())
	if share > busy {
		say(out, "warning: other processes use %.0f %% of the processors; the figures will be worth little", share*100)
	}
	return nil
}

// chooseArms finds the arms to measure; those whose program is not installed
// are left out with a line that says how to get it.
func chooseArms(all []arm.Arm, list string, out io.Writer) ([]arm.Arm, error) {
	arms := all
	if list != "" {
		var unknown []string
		if arms, unknown = arm.Find(all, strings.Split(list, ",")); len(unknown) > 0 {
			var names []string
			for _, a := range all {
				names = append(names, a.Name)
			}
			return nil, fmt.Errorf("no arm %s; there are: %s", strings.Join(unknown, ", "), strings.Join(names, ", "))
		}
	}
	for _, program := range []arm.Program{arm.Nginx} {
		executable, pkg := program.Debian()
		if _, err := exec.LookPath(executable); err == nil {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(arms), func(a arm.Arm) bool { return a.Program == program })
		if len(left) < len(arms) {
			say(out, "%s is missing, its arms are skipped; it is in Debian's package %s", executable, pkg)
		}
		arms = left
	}
	if len(arms) == 0 {
		return nil, errors.New("no arm is left to measure")
	}
	return arms, nil
}

// places makes the folders absolute, since servers run in folders of their
// own, and adds a temporary one.
func (o options) places() (stage.Places, error) {
	var p stage.Places
	for _, f := range []struct {
		from string
		to   *string
	}{{o.bench, &p.Bench}, {o.bin, &p.Bin}, {o.millrace, &p.Binary}} {
		abs, err := filepath.Abs(f.from)
		if err != nil {
			return stage.Places{}, err
		}
		*f.to = abs
	}
	temp, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return stage.Places{}, fmt.Errorf("making a folder for the servers: %w", err)
	}
	p.Temp = temp
	return p, nil
}
