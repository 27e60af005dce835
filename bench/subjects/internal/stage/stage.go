// Package stage is what the scenarios of bench/run have in common: servers that
// run from the start to the end, of which one at a time is under load from wrk,
// in slots whose order is drawn for each round. What is compared lies next to
// each other, so that whatever changes on the machine meets all alike.
package stage

import (
	"context"
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
	Temp   string // an empty folder for all that the run and its servers write
}

// Stage is a run under way.
type Stage struct {
	Plan    Plan
	Places  Places
	Meter   *progress.Meter
	Random  *rand.Rand
	Servers map[string]*arm.Running // by the arm's name
	Run     *record.Run

	// Upstream says how many requests have reached what stands behind the
	// servers; nil where nothing does.
	Upstream func() uint64
}

// New begins a run of a scenario with so many steps, which should take total.
// Call Stop at its end, however it ends.
func New(scenario string, p Plan, places Places, steps int, total time.Duration, out io.Writer) (*Stage, error) {
	machine, err := proc.ThisMachine()
	if err != nil {
		return nil, err
	}
	s := &Stage{
		Plan: p, Places: places,
		Meter:   progress.New(out, time.Now, steps, total),
		Random:  rand.New(rand.NewPCG(p.Seed, 0)),
		Servers: map[string]*arm.Running{},
		Run: &record.Run{
			Scenario: scenario, Quick: p.Length == Quick, Full: p.Length == Full, Seed: p.Seed, Rounds: p.Rounds,
			Slot: p.Slot, Started: time.Now(), Machine: machine,
		},
	}
	s.Meter.Say("%d steps, about %v; order from seed %d", steps, total.Round(time.Second), p.Seed)
	return s, nil
}

// Start starts all arms. env has what differs between scenarios; each arm gets
// a folder and an address of its own.
func (s *Stage) Start(ctx context.Context, env arm.Env) error {
	for _, a := range s.Plan.Arms {
		server, err := s.StartOne(ctx, a, a.Name, env)
		if err != nil {
			return err
		}
		s.Servers[a.Name] = server
		s.Run.Arms = append(s.Run.Arms, record.Arm{
			Name: a.Name, Title: a.Title, Program: string(a.Program), Logs: a.Logs,
			Variant: a.Variant, Ours: a.Ours(), Command: s.Placeholders(server),
		})
	}
	return nil
}

// StartOne starts one server in the folder of that name, which must not exist.
// The caller stops it.
func (s *Stage) StartOne(ctx context.Context, a arm.Arm, folder string, env arm.Env) (*arm.Running, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	env.Dir, env.Address = filepath.Join(s.Places.Temp, folder), address
	env.Bench, env.Bin, env.Binary = s.Places.Bench, s.Places.Bin, s.Places.Binary
	if err := os.Mkdir(env.Dir, 0o755); err != nil {
		return nil, err
	}
	return arm.Start(ctx, a, env)
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

// Placeholders is a server's command line without what differs between
// machines and runs.
func (s *Stage) Placeholders(server *arm.Running) string {
	e := server.Env
	pairs := []string{e.Dir, "DIR", s.Places.Binary, "bin/millrace", s.Places.Bin + string(filepath.Separator), "bench/out/bin/"}
	if e.Site != "" {
		pairs = append(pairs, e.Site, "SITE")
	}
	for address, name := range map[string]string{e.Address: "PORT", e.Upstream: "UPSTREAM"} {
		if _, port, err := net.SplitHostPort(address); err == nil {
			pairs = append(pairs, ":"+port, ":"+name)
		}
	}
	return strings.NewReplacer(pairs...).Replace(strings.Join(server.Argv, " "))
}

// Stop stops all arms.
func (s *Stage) Stop() {
	for _, server := range s.Servers {
		server.Stop()
	}
	s.Servers = map[string]*arm.Running{}
}

// Alive returns an error if a server has ended by itself.
func (s *Stage) Alive() error {
	for _, server := range s.Servers {
		if err := server.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// Verify compares what a server answers to a workload's requests over network
// (tcp or unix) with the right bytes.
func (s *Stage) Verify(
	ctx context.Context, server *arm.Running, network string, w workload.Workload, right func(testsite.File) ([]byte, error),
) error {
	conn, err := server.Dial(ctx, network)
	if err != nil {
		return err
	}
	defer conn.Close()
	requests := w.Requests(server.Env.Address)
	// Three times: what is learnt from one answer may be served in the next.
	return verify.Small(conn, append(append(requests, requests...), requests...), right)
}

// Warm loads each arm with each workload for a while and writes the requests
// down for the later slots.
func (s *Stage) Warm(ctx context.Context) error {
	for _, a := range s.Plan.Arms {
		server := s.Servers[a.Name]
		for _, w := range s.Plan.Workloads {
			if err := writeRequests(server, w); err != nil {
				return err
			}
			if _, err := s.Load(ctx, server, w, s.Plan.Connections[0], s.Plan.Warm); err != nil {
				return err
			}
		}
		s.Meter.Step(s.Plan.WarmTime(), "warmed up %s", a.Name)
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

// Sleep waits, unless ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Apart runs f in a goroutine of its own and waits for it. The main goroutine
// is tied to its thread (see harness), which makes each of its reads that have
// to wait dearer.
func Apart[T any](f func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := f()
		done <- outcome{v, err}
	}()
	o := <-done
	return o.value, o.err
}
