// Package lab measures servers, not only ours. Load loads one. Compare compares
// several until it can tell them apart or knows that it cannot. Experiment runs
// the experiments behind this project's claims.
//
// It looks at servers from outside, through sockets and /proc, and imports none
// of the packages that serve: Millrace is measured like every other server.
//
// What it finds is a record.Result; lab/report makes the reports.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"millrace/lab/gate"
	"millrace/lab/load"
	"millrace/lab/record"
)

// LoadOptions say what Load does.
type LoadOptions struct {
	load.Config
	// PID is the target's process; 0: whoever listens at the URL's address, if
	// that is on this machine.
	PID int
	// Syscalls counts the target's system calls, which costs each of them some
	// 80 ns and needs root.
	Syscalls bool
}

// recordEvery is how often the target is looked at: ten points a second draw a
// curve, and a look costs well under a millisecond.
const recordEvery = 100 * time.Millisecond

// Load loads one target. When ctx ends early the result holds what was measured
// and says so. An error comes with what was measured as far as there is any:
// a result without samples has nothing worth keeping.
func Load(ctx context.Context, o LoadOptions, watch record.Watch) (*record.Result, error) {
	if watch == nil {
		watch = func(record.Event) {}
	}
	res := &record.Result{
		Format: record.Format, Kind: record.KindLoad, Name: "load", Title: "load on " + o.URL,
		Started: time.Now(), Machine: record.ReadMachine(),
		Arms:      []record.Arm{{Name: "target", About: o.URL}},
		Workloads: []record.Workload{{Name: "load", About: describe(o.Config)}},
	}
	if err := o.Check(); err != nil {
		return res, err
	}
	target, pids := openTarget(o, res)
	if target != nil {
		defer func() { _ = target.Close() }() // only read from: nothing is lost
	}
	s := session{options: o, res: res, watch: watch, meter: gate.Meter{Target: target, Everybody: true, Ours: pids}}
	err := s.run(ctx)
	res.Ended = time.Now()
	if ctx.Err() != nil {
		res.Interrupted, err = "stopped before its time was up", nil
	} else if err != nil {
		res.Interrupted = err.Error()
	}
	return res, err
}

// describe puts a load in words.
func describe(c load.Config) string {
	what := "closed loop"
	if c.Arrival != load.Closed {
		what = fmt.Sprintf("open loop, %s arrivals, %g requests/s", c.Arrival, c.Rate)
		for _, stage := range c.Stages {
			what += fmt.Sprintf(", to %g in %v", stage.Rate, stage.Length)
		}
	}
	paths := "one path"
	if n := len(c.Steps); n > 0 {
		paths = fmt.Sprintf("a scenario of %d requests", n)
	} else if n := len(c.Paths); n > 1 {
		paths = fmt.Sprintf("%d paths in turn", n)
	}
	protocol := c.Protocol
	if protocol == load.Auto {
		protocol = "HTTP/1.1"
		if strings.HasPrefix(c.URL, "ws") {
			protocol = load.WebSocket
		}
	}
	return fmt.Sprintf("%s, %s, %d connections, %s", protocol, paths, max(1, c.Connections), what)
}

// openTarget finds the target's processes. Where it cannot, the result says so
// and the load goes on without.
func openTarget(o LoadOptions, res *record.Result) (*record.Target, []int) {
	pids, err := []int{o.PID}, error(nil)
	if o.PID == 0 {
		pids, err = listening(o.URL, o.ConnectTo)
	}
	var target *record.Target
	if err == nil && o.Syscalls {
		target, err = record.OpenTraced(pids...)
	} else if err == nil {
		target, err = record.Open(pids...)
	}
	if err != nil {
		res.Notes = append(res.Notes, "what the target costs is unknown: "+err.Error())
		return nil, pids
	}
	res.Notes = append(res.Notes, target.Missing()...)
	return target, pids
}

// session is one Load while it lasts.
type session struct {
	options LoadOptions
	res     *record.Result
	watch   record.Watch

	meter    gate.Meter
	readings []record.Reading
	opened   time.Time

	busy     busy
	answered uint64 // so far, for the view
	failed   uint64
}

// busy is how many cores the target keeps busy now. One goroutine writes it and
// another reads.
type busy struct {
	millicores atomic.Int64
	before     record.Reading
}

func (b *busy) reading(r record.Reading) {
	if length := r.At.Sub(b.before.At); !b.before.At.IsZero() && length > 0 {
		b.millicores.Store(int64(1000 * (r.CPU - b.before.CPU) / length))
	}
	b.before = r
}

func (s *session) run(ctx context.Context) error {
	cfg := s.options.Config
	cfg.Duration = cmp.Or(cfg.Duration, 10*time.Second)
	watching, stop := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { // ends with stop, and is waited for below
		defer close(watched)
		if s.meter.Target != nil {
			// A target that died is the load's news.
			s.readings, _ = s.meter.Target.Watch(watching, recordEvery, s.busy.reading)
		}
	}()
	cfg.Window = s.window
	cfg.Progress = func(k load.Tick) { s.watch(s.tick(k, cfg)) }
	s.watch(record.Event{Time: time.Now(), Kind: record.EventStep, Text: "loading " + cfg.URL, Left: cfg.Warmup + cfg.Duration})
	got, err := load.Run(ctx, cfg)
	stop()
	<-watched
	if got == nil || got.Requests == 0 {
		if err == nil && ctx.Err() == nil {
			err = errors.New("nothing was answered")
		}
		return err
	}
	s.fill(cfg, got)
	return err
}

func (s *session) window(open bool) {
	if open {
		s.opened = time.Now()
	}
	s.meter.Window(open)
}

// tick is what the view shows of the last quarter of a second.
func (s *session) tick(k load.Tick, cfg load.Config) record.Event {
	s.answered += k.Requests
	s.failed += k.Errors.Sum()
	e := record.Event{
		Time: time.Now(), Kind: record.EventTick,
		Rate: k.Rate, P50: k.P50, P90: k.P90, P99: k.P99, Requests: s.answered, Errors: s.failed,
		TargetCPU: float64(s.busy.millicores.Load()) / 1000,
		Done:      min(1, max(0, float64(k.At+cfg.Warmup)/float64(cfg.Duration+cfg.Warmup))),
		Left:      max(0, cfg.Duration-k.At),
	}
	if k.Length > 0 {
		e.GeneratorCPU = float64(k.CPU) / float64(k.Length)
	}
	return e
}

// fill makes the result of what the load found.
func (s *session) fill(cfg load.Config, got *load.Result) {
	s.res.Samples = []record.Sample{{
		Arm: "target", Workload: "load", At: time.Since(s.res.Started).Seconds(), Seconds: got.Took.Seconds(), Values: s.meter.Values(got),
	}}
	s.res.Metrics = gate.Measured(s.res.Samples)
	s.res.Tables = append(s.res.Tables, latencyTable(got, cfg), outcomeTable(got))
	if len(got.Steps) > 0 {
		s.res.Tables = append(s.res.Tables, stepsTable(got))
	}
	s.res.Charts = append(s.res.Charts, loadCharts(got)...)
	s.res.Charts = append(s.res.Charts, targetCharts(s.readings, s.opened)...)
	s.res.Answer = answer(cfg, got)
	slot := gate.FromLoad(gate.Slot{Arm: "target", Workload: "load", Steal: s.meter.Steal(), Others: s.meter.Others()}, cfg, got)
	slot.Takers = s.meter.Takers()
	s.res.Gates = gate.Check([]gate.Slot{slot}, gate.Limits{Single: true})
}
