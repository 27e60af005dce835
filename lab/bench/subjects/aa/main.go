// Command aa asks the lab what an instrument must answer about itself: does it
// see differences where there are none, does it see those that there are, and
// what does it cost?
//
//	aa -millrace FILE [-runs 40] [-found 5] [-generator] [-out FILE]
//
// It compares millrace with itself again and again, then a server with the same
// server slowed down by a known amount, then the generator with wrk, and writes
// a page of Markdown.
// lab/bench/aa builds and runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	o := options{}
	flag.StringVar(&o.millrace, "millrace", "millrace", "the server, a `file`")
	flag.StringVar(&o.lab, "lab", "millrace-lab", "the program that measures, a `file`")
	flag.StringVar(&o.site, "site", "examples/site", "the `folder` that it serves")
	flag.IntVar(&o.runs, "runs", 40, "comparisons of millrace with itself")
	flag.IntVar(&o.found, "found", 5, "comparisons with a slowed server, for each amount")
	flag.BoolVar(&o.generator, "generator", true, "compare the generator with wrk, too")
	flag.StringVar(&o.out, "out", "", "where to write; empty: the standard output")
	serveAt := flag.String("serve", "", "be the server that is slowed, at this `address`")
	burn := flag.Int("burn", 0, "with -serve: `rounds` of useless work per request")
	flag.Parse()
	var err error
	if *serveAt != "" {
		err = serve(*serveAt, *burn)
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "aa:", err)
		os.Exit(1)
	}
}

type options struct {
	millrace, lab, site, out string
	runs, found              int
	generator                bool
}

// page is what the server answers: as long as the smallest page of the site
// that lab/bench/run measures.
const page = 501

// serve answers every request with the same bytes after some useless work.
func serve(address string, burn int) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	body := []byte(strings.Repeat("x", page))
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // no timeouts: measured on loopback only
		if spin(burn) == 0 {
			panic("the work was optimised away")
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(body) // a client that went away has what it wanted
	}))
}

// spin multiplies, each time by what came before, so that it cannot be skipped.
func spin(rounds int) uint64 {
	x := uint64(0x9e3779b97f4a7c15)
	for range rounds {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x | 1
}

// found is the part of a result file that is needed here.
type found struct {
	Machine struct {
		CPU, Kernel string
		Cores       int
		Counters    bool
	}
	Samples []struct {
		Arm    string
		Values map[string]float64
	}
	Verdicts []verdict
	Gates    []struct{ Name, Status, Detail string }
}

type verdict struct {
	Metric, Arm, Outcome string
	Ratio, Low, High, P  float64
	Blocks               int
}

// compare runs millrace-lab compare once.
func compare(ctx context.Context, lab string, a, b string) (*found, error) {
	dir, err := os.MkdirTemp("", "aa-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "result.json")
	cmd := exec.CommandContext(ctx, lab, "compare", "A="+a, "B="+b, "--quick", "--json", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	output, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(file) // a void result ends with status 1 and is a finding all the same
	if readErr != nil {
		return nil, fmt.Errorf("%w, and no result: %s", errors.Join(err, readErr), tail(output))
	}
	f := new(found)
	if err := json.Unmarshal(text, f); err != nil {
		return nil, err
	}
	if len(f.Verdicts) == 0 {
		return nil, fmt.Errorf("the result has no verdicts: %s", tail(output))
	}
	return f, nil
}

func tail(b []byte) string { return string(b[max(0, len(b)-500):]) }

// wrong is what a verdict must not be between two of the same.
func (v verdict) wrong() bool { return v.Outcome != "equal" && v.Outcome != "undecided" }

// of are the verdicts about an arm.
func (f *found) of(arm string) (out []verdict) {
	for _, v := range f.Verdicts {
		if v.Arm == arm {
			out = append(out, v)
		}
	}
	return out
}

func (f *found) void() (why []string) {
	for _, g := range f.Gates {
		if g.Status == "failed" {
			why = append(why, g.Name)
		}
	}
	return why
}

// mean of a metric over an arm's slots.
func (f *found) mean(arm, metric string) float64 {
	sum, n := 0.0, 0.0
	for _, s := range f.Samples {
		if v, ok := s.Values[metric]; ok && s.Arm == arm {
			sum, n = sum+v, n+1
		}
	}
	return sum / n
}

// run asks both questions and writes the page.
func run(ctx context.Context, o options) error {
	if o.runs < 1 {
		return errors.New("-runs must be at least 1: the first says what machine this is")
	}
	began := time.Now()
	var body strings.Builder
	machine, wrong, err := same(ctx, o, &body)
	if err == nil && o.found > 0 {
		err = slowed(ctx, o, machine, &body)
	}
	if err == nil && o.generator {
		err = generator(ctx, o, &body)
	}
	out := io.Writer(os.Stdout)
	if o.out != "" {
		f, createErr := os.Create(o.out)
		if createErr != nil {
			return errors.Join(err, createErr)
		}
		defer f.Close()
		out = f
	}
	if machine == nil {
		return err
	}
	_, writeErr := fmt.Fprintf(out, "# The lab, measured by itself\n\n"+
		"Written by `lab/bench/aa` on %s, in %d minutes; %s, %d cores, Linux %s; hardware counters: %v.\n\n%s",
		began.UTC().Format("2006-01-02"), int(time.Since(began).Minutes()+0.5),
		machine.Machine.CPU, machine.Machine.Cores, machine.Machine.Kernel, machine.Machine.Counters, body.String())
	if err = errors.Join(err, writeErr); err != nil {
		return err
	}
	if allowed := max(1, o.runs/20); wrong > allowed {
		return fmt.Errorf("%d of %d comparisons of a server with itself found a difference, more than %d", wrong, o.runs, allowed)
	}
	return nil
}

// same compares millrace with itself.
func same(ctx context.Context, o options, w io.Writer) (machine *found, wrong int, err error) {
	command := fmt.Sprintf("%s serve %s --listen 127.0.0.1:{port} --log off --admin off", o.millrace, o.site)
	var rows strings.Builder
	void, done := 0, 0
	for i := range o.runs {
		f, err := compare(ctx, o.lab, command, command)
		if err != nil {
			return machine, wrong, err
		}
		machine = f
		done++
		bad := false
		cells := make([]string, 0, 4)
		for _, v := range f.of("B") {
			bad = bad || v.wrong()
			cells = append(cells, fmt.Sprintf("%s %.3f [%.3f, %.3f] %s", v.Metric, v.Ratio, v.Low, v.High, v.Outcome))
		}
		if bad {
			wrong++
		}
		note := ""
		if why := f.void(); why != nil {
			void++
			note = "void: " + strings.Join(why, ", ")
		}
		_, _ = fmt.Fprintf(&rows, "| %d | %s | %d | %s |\n", i+1, strings.Join(cells, "<br>"), f.of("B")[0].Blocks, note)
		_, _ = fmt.Fprintf(os.Stderr, "same %d of %d: %s; wrong so far: %d\n", i+1, o.runs, strings.Join(cells, "; "), wrong)
	}
	_, _ = fmt.Fprintf(w, "## A server against itself\n\n"+
		"%d runs of `millrace-lab compare --quick` with the same command as A and as B. "+
		"**%d of them gave a verdict other than equal or undecided** (at most %d may); %d were stamped void by a gate.\n\n"+
		"| run | B ÷ A, 95 %% interval, verdict | blocks | |\n|---|---|---|---|\n%s\n", done, wrong, max(1, o.runs/20), void, rows.String())
	return machine, wrong, nil
}

// slowed compares a server with itself made slower by known amounts.
func slowed(ctx context.Context, o options, machine *found, w io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := func(rounds int) string { return fmt.Sprintf("%s -serve 127.0.0.1:{port} -burn %d", self, rounds) }
	metric, amounts := "cpu_ns", []float64{0.03, 0.10, 0.20}
	about := "This machine shows no instruction counters, so the amounts are of CPU time per request, which is noisier."
	if machine.Machine.Counters {
		metric, amounts = "user_instructions", []float64{0.03, 0.05, 0.10}
		about = "The amounts are of user instructions per request."
	}
	const probe = 200_000 // rounds: some 0.2 ms, several times what a request costs
	f, err := compare(ctx, o.lab, server(0), server(probe))
	if err != nil {
		return err
	}
	plain := f.mean("A", metric)
	perRound := (f.mean("B", metric) - plain) / probe
	if !(perRound > 0) {
		return fmt.Errorf("%d rounds of work do not show in %s", probe, metric)
	}
	_, _ = fmt.Fprintf(w, "## A server against the same server slowed down\n\n%s A net/http server answers %d bytes; its twin does useless work first. "+
		"One round of it costs %.3g, a request without it %.5g.\n\n| slowed by | rounds | runs | found worse | ratios measured |\n|---|---|---|---|---|\n", about, page, perRound, plain)
	for _, amount := range amounts {
		rounds := int(math.Round(amount * plain / perRound))
		worse := 0
		var ratios []string
		for range o.found {
			f, err := compare(ctx, o.lab, server(0), server(rounds))
			if err != nil {
				return err
			}
			for _, v := range f.of("B") {
				if v.Metric != metric {
					continue
				}
				if v.Outcome == "worse" {
					worse++
				}
				ratios = append(ratios, fmt.Sprintf("%.3f [%.3f, %.3f]", v.Ratio, v.Low, v.High))
			}
			_, _ = fmt.Fprintf(os.Stderr, "slowed by %.0f %%: found %d, %s\n", amount*100, worse, ratios[len(ratios)-1])
		}
		_, _ = fmt.Fprintf(w, "| %.0f %% | %d | %d | **%d** | %s |\n", amount*100, rounds, o.found, worse, strings.Join(ratios, "<br>"))
	}
	return nil
}
