package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/progress"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/testsite"
	"millrace/bench/subjects/internal/verify"
	"millrace/bench/subjects/internal/workload"
)

// Places are the folders that a run works in.
type Places struct {
	Bench  string // the repository's folder bench
	Bin    string // the folder of the compiled subjects
	Binary string // the path of the program millrace
	Temp   string // an empty folder for the site and all that servers write
}

// runner is a run under way.
type runner struct {
	plan    Plan
	places  Places
	meter   *progress.Meter
	rnd     *rand.Rand
	servers map[string]*arm.Running // by the arm's name
	large   uint32                  // CRC of the large file
	run     *record.Run
}

// Run carries out the plan and returns what was measured. It stops what it
// started, also when ctx ends it early.
func Run(ctx context.Context, p Plan, places Places, out io.Writer) (*record.Run, error) {
	machine, err := proc.ThisMachine()
	if err != nil {
		return nil, err
	}
	steps, total := p.steps()
	r := &runner{
		plan: p, places: places,
		meter:   progress.New(out, time.Now, steps, total),
		rnd:     rand.New(rand.NewPCG(p.Seed, 0)),
		servers: map[string]*arm.Running{},
		run: &record.Run{
			Scenario: "files", Quick: p.Quick, Seed: p.Seed, Rounds: p.Rounds,
			Slot: p.Slot, Hold: p.Hold, Started: time.Now(), Machine: machine,
		},
	}
	r.meter.Say("%d steps, about %v; order from seed %d", steps, total.Round(time.Second), p.Seed)
	defer r.stop()
	for _, stage := range []func(context.Context) error{
		r.makeSite, r.start, r.verify, r.warm, r.smallRounds, r.largeRounds, r.hold, r.verify, r.end,
	} {
		if err := stage(ctx); err != nil {
			return nil, err
		}
	}
	r.run.Took = r.meter.Took()
	return r.run, nil
}

func (r *runner) site() string { return filepath.Join(r.places.Temp, "site") }

func (r *runner) makeSite(context.Context) error {
	if err := testsite.Write(r.site()); err != nil {
		return err
	}
	return testsite.WriteLarge(r.site(), r.plan.LargeSize)
}

// start starts all arms.
func (r *runner) start(ctx context.Context) error {
	for _, a := range r.plan.Arms {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		e := arm.Env{
			Dir: filepath.Join(r.places.Temp, a.Name), Site: r.site(), Address: address,
			Bench: r.places.Bench, Bin: r.places.Bin, Binary: r.places.Binary,
		}
		if err := os.Mkdir(e.Dir, 0o755); err != nil {
			return err
		}
		server, err := arm.Start(ctx, a, e)
		if err != nil {
			return err
		}
		r.servers[a.Name] = server
		r.run.Arms = append(r.run.Arms, record.Arm{
			Name: a.Name, Title: a.Title, Program: string(a.Program), Logs: a.Logs,
			Variant: a.Variant, Ours: a.Ours(), Command: r.placeholders(server),
		})
	}
	return nil
}

// freeAddress is a loopback address that nobody listens on at the moment.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// placeholders is a server's command line without what differs between
// machines and runs.
func (r *runner) placeholders(s *arm.Running) string {
	_, port, _ := net.SplitHostPort(s.Env.Address)
	return strings.NewReplacer(
		s.Env.Dir, "DIR",
		r.site(), "SITE",
		r.places.Binary, "bin/millrace",
		r.places.Bin+string(filepath.Separator), "bench/out/bin/",
		":"+port, ":PORT",
	).Replace(strings.Join(s.Argv, " "))
}

// stop stops all arms.
func (r *runner) stop() {
	for _, server := range r.servers {
		server.Stop()
	}
}

// verify compares all answers of all arms with the files.
func (r *runner) verify(ctx context.Context) error {
	for _, a := range r.plan.Arms {
		server := r.servers[a.Name]
		for _, network := range networks() {
			for _, w := range r.plan.Workloads {
				if err := r.verifySmall(ctx, server, network, w); err != nil {
					return fmt.Errorf("%s over %s, %s: %w", a.Name, network, w.Name, err)
				}
			}
			if err := r.verifyLarge(ctx, server, network); err != nil {
				return fmt.Errorf("%s over %s: %w", a.Name, network, err)
			}
		}
	}
	r.meter.Say("all answers of %d arms are the files, over %s", len(r.plan.Arms), strings.Join(networks(), " and "))
	return nil
}

func (r *runner) verifySmall(ctx context.Context, server *arm.Running, network string, w workload.Workload) error {
	conn, err := server.Dial(ctx, network)
	if err != nil {
		return err
	}
	defer conn.Close()
	requests := w.Requests(server.Env.Address)
	// Three times: what is learnt from one answer may be served in the next.
	return verify.Small(conn, append(append(requests, requests...), requests...), r.site())
}

// warm loads each arm with each workload for a while and writes the requests
// down for the later slots.
func (r *runner) warm(ctx context.Context) error {
	for _, a := range r.plan.Arms {
		server := r.servers[a.Name]
		for _, w := range r.plan.Workloads {
			if err := writeRequests(server, w); err != nil {
				return err
			}
			if _, err := r.load(ctx, server, w, r.plan.Connections[0], r.plan.Warm); err != nil {
				return err
			}
		}
		r.meter.Step(r.plan.warmTime(), "warmed up %s", a.Name)
	}
	return nil
}

// requestsFile is where the requests of w for a server are.
func requestsFile(server *arm.Running, w workload.Workload) string {
	return filepath.Join(server.Env.Dir, "requests-"+w.Name+".txt")
}

func writeRequests(server *arm.Running, w workload.Workload) error {
	var b strings.Builder
	for _, request := range w.Requests(server.Env.Address) {
		b.WriteString(request.Head)
	}
	return os.WriteFile(requestsFile(server, w), []byte(b.String()), 0o644)
}

// end reads what each server holds after the run.
func (r *runner) end(context.Context) error {
	for i := range r.run.Memory {
		m := &r.run.Memory[i]
		held, err := r.servers[m.Arm].Memory()
		if err != nil {
			return err
		}
		m.End = held
	}
	for _, server := range r.servers {
		if err := server.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errNoRequests = errors.New("no request was answered")
