package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/workload"
	"millrace/bench/subjects/internal/wrk"
)

// Load runs wrk on a server and does not look at anything else.
func (s *Stage) Load(ctx context.Context, server *arm.Running, w workload.Workload, connections int, d time.Duration) (wrk.Result, error) {
	job := wrk.Job{
		Script:      filepath.Join(s.Places.Bench, "wrk", "requests.lua"),
		URL:         server.URL(w.Path()),
		Connections: connections,
		Duration:    d,
	}
	if !w.Fixed() {
		job.Requests = requestsFile(server, w)
	}
	result, err := wrk.Run(ctx, job)
	if err == nil {
		err = server.Alive()
	}
	if err == nil && result.Requests == 0 {
		err = errNoRequests
	}
	if err != nil {
		return result, fmt.Errorf("loading %s: %w", server.Arm.Name, err)
	}
	return result, nil
}

var errNoRequests = errors.New("no request was answered")

// Reading is what is read of a server before and after it is put under load.
type Reading struct {
	at       time.Time
	cpu      proc.CPU
	load     proc.Load
	counts   *metrics.Counts // millrace only
	upstream uint64          // requests that have reached it
}

// Read takes the counters first before a load and last after it, so that what
// reading them costs the server lies outside.
func (s *Stage) Read(ctx context.Context, server *arm.Running, before bool) (Reading, error) {
	var now Reading
	steps := []func() error{
		func() (err error) { now.counts, err = counts(ctx, server); return err },
		func() (err error) { now.at = time.Now(); now.load, err = proc.ReadLoad(); return err },
		func() (err error) { now.cpu, err = server.CPU(); return err },
	}
	if !before {
		steps[0], steps[2] = steps[2], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Reading{}, err
		}
	}
	if s.Upstream != nil {
		now.upstream = s.Upstream()
	}
	return now, nil
}

// CPU is what the server used between before and r.
func (r Reading) CPU(before Reading) proc.CPU { return r.cpu.Sub(before.cpu) }

// Counts is what the server itself counted between before and r; nil if it
// does not count.
func (r Reading) Counts(before Reading) *metrics.Counts {
	if r.counts == nil || before.counts == nil {
		return nil
	}
	d := r.counts.Sub(*before.counts)
	return &d
}

// counts are millrace's own; other servers have none.
func counts(ctx context.Context, server *arm.Running) (*metrics.Counts, error) {
	if !server.Arm.Ours() {
		return nil, nil
	}
	c, err := metrics.Scrape(ctx, server.Env.Admin())
	return &c, err
}

// Rounds runs all rounds of slots under wrk.
func (s *Stage) Rounds(ctx context.Context) error {
	for round := 1; round <= s.Plan.Rounds; round++ {
		for _, slot := range s.Plan.order(s.Random) {
			got, err := s.slot(ctx, slot)
			if err != nil {
				return err
			}
			got.Round = round
			s.Run.Small = append(s.Run.Small, got)
			s.Meter.Step(s.Plan.SlotTime(), "round %d, %s, %d connections: %-15s %7.0f requests/s, %6.2f µs each, %d failed",
				round, slot.workload.Name, slot.connections, slot.arm.Name,
				got.Wrk.Rate(), float64(got.CPUPerRequest())/1e3, got.Wrk.Sum())
		}
	}
	return nil
}

// slot measures one slot.
func (s *Stage) slot(ctx context.Context, slot slot) (record.Small, error) {
	server := s.Servers[slot.arm.Name]
	if err := EmptyLog(server); err != nil {
		return record.Small{}, err
	}
	before, err := s.Read(ctx, server, true)
	if err != nil {
		return record.Small{}, err
	}
	result, err := s.Load(ctx, server, slot.workload, slot.connections, s.Plan.Slot)
	if err != nil {
		return record.Small{}, err
	}
	if err := Sleep(ctx, Pause); err != nil {
		return record.Small{}, err
	}
	after, err := s.Read(ctx, server, false)
	if err != nil {
		return record.Small{}, err
	}
	lines, err := countLines(server)
	if err != nil {
		return record.Small{}, err
	}
	machine := after.load.Sub(before.load)
	used := after.CPU(before)
	return record.Small{
		Cell: slot.cell(), Arm: slot.arm.Name, Wrk: result, Server: used,
		Wall: after.at.Sub(before.at), Other: max(0, machine.Busy-used.Total-result.CPU), Steal: machine.Steal,
		Counts: after.Counts(before), Lines: lines, Upstream: after.upstream - before.upstream,
	}, nil
}

// EmptyLog cuts a server's access log, so that it neither fills the disk nor
// keeps it busy with writing back.
func EmptyLog(server *arm.Running) error {
	if !server.Arm.Logs {
		return nil
	}
	err := os.Truncate(server.Env.Log(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not opened before the first line
	}
	return err
}

// countLines counts the lines of a server's access log: a log that is not
// written costs nothing. 0 for a server without a log.
func countLines(server *arm.Running) (int64, error) {
	if !server.Arm.Logs {
		return 0, nil
	}
	f, err := os.Open(server.Env.Log())
	if err != nil {
		return 0, fmt.Errorf("counting the lines of the log of %s: %w", server.Arm.Name, err)
	}
	defer f.Close()
	var lines int64
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return 0, fmt.Errorf("counting the lines of the log of %s: %w", server.Arm.Name, err)
		}
	}
}
