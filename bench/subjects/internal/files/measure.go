package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/download"
	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/testsite"
	"millrace/bench/subjects/internal/workload"
	"millrace/bench/subjects/internal/wrk"
)

// load runs wrk on a server and does not look at anything else.
func (r *runner) load(ctx context.Context, server *arm.Running, w workload.Workload, connections int, d time.Duration) (wrk.Result, error) {
	job := wrk.Job{
		Script:      filepath.Join(r.places.Bench, "wrk", "requests.lua"),
		URL:         server.URL("/"),
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

// reading is what is read of a server before and after a slot.
type reading struct {
	at     time.Time
	cpu    proc.CPU
	load   proc.Load
	counts *metrics.Counts // millrace only
}

// read takes the counters first before a slot and last after it, so that what
// reading them costs the server lies outside.
func (r *runner) read(ctx context.Context, server *arm.Running, before bool) (reading, error) {
	var now reading
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
			return reading{}, err
		}
	}
	return now, nil
}

// counts are millrace's own; other servers have none.
func counts(ctx context.Context, server *arm.Running) (*metrics.Counts, error) {
	if !server.Arm.Ours() {
		return nil, nil
	}
	c, err := metrics.Scrape(ctx, server.Env.Admin())
	return &c, err
}

// difference of two counts, nil if there are none.
func difference(after, before *metrics.Counts) *metrics.Counts {
	if after == nil || before == nil {
		return nil
	}
	d := after.Sub(*before)
	return &d
}

// smallRounds runs all rounds of small files.
func (r *runner) smallRounds(ctx context.Context) error {
	for round := 1; round <= r.plan.Rounds; round++ {
		for _, slot := range r.plan.smallOrder(r.rnd) {
			s, err := r.small(ctx, slot)
			if err != nil {
				return err
			}
			s.Round = round
			r.run.Small = append(r.run.Small, s)
			r.meter.Step(r.plan.slotTime(), "round %d, %s, %d connections: %-15s %7.0f requests/s, %6.2f µs each, %d failed",
				round, slot.workload.Name, slot.connections, slot.arm.Name,
				s.Wrk.Rate(), float64(s.CPUPerRequest())/1e3, s.Wrk.Sum())
		}
	}
	return nil
}

// small measures one slot.
func (r *runner) small(ctx context.Context, slot smallSlot) (record.Small, error) {
	server := r.servers[slot.arm.Name]
	if err := emptyLog(server); err != nil {
		return record.Small{}, err
	}
	before, err := r.read(ctx, server, true)
	if err != nil {
		return record.Small{}, err
	}
	result, err := r.load(ctx, server, slot.workload, slot.connections, r.plan.Slot)
	if err != nil {
		return record.Small{}, err
	}
	if err := sleep(ctx, pause); err != nil {
		return record.Small{}, err
	}
	after, err := r.read(ctx, server, false)
	if err != nil {
		return record.Small{}, err
	}
	lines, err := countLines(server)
	if err != nil {
		return record.Small{}, err
	}
	machine := after.load.Sub(before.load)
	used := after.cpu.Sub(before.cpu)
	return record.Small{
		Cell: slot.cell(), Arm: slot.arm.Name, Wrk: result, Server: used,
		Wall: after.at.Sub(before.at), Other: max(0, machine.Busy-used.Total-result.CPU), Steal: machine.Steal,
		Counts: difference(after.counts, before.counts), Lines: lines,
	}, nil
}

// emptyLog cuts a server's access log, so that it neither fills the disk nor
// keeps it busy with writing back.
func emptyLog(server *arm.Running) error {
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

// largeRounds runs all rounds of downloads.
func (r *runner) largeRounds(ctx context.Context) error {
	for round := 1; round <= r.plan.Rounds; round++ {
		for _, slot := range r.plan.largeOrder(r.rnd) {
			l, err := r.download(ctx, slot)
			if err != nil {
				return fmt.Errorf("%s over %s: %w", slot.arm.Name, slot.network, err)
			}
			l.Round = round
			r.run.Large = append(r.run.Large, l)
			r.meter.Step(largeGuess, "round %d, large file over %s: %-15s %5.2f GB/s, %.3f ns/byte",
				round, slot.network, slot.arm.Name, float64(l.Bytes)/float64(l.Duration), l.CPUPerByte())
		}
	}
	return nil
}

// download measures one slot of downloads. One comes before it, so that the
// connection and the page cache are as warm as they get.
func (r *runner) download(ctx context.Context, slot largeSlot) (record.Large, error) {
	server := r.servers[slot.arm.Name]
	conn, err := server.Dial(ctx, slot.network)
	if err != nil {
		return record.Large{}, err
	}
	defer conn.Close()
	request := r.largeRequest(server)
	if _, err := download.Run(conn, request); err != nil {
		return record.Large{}, err
	}
	before, err := r.read(ctx, server, true)
	if err != nil {
		return record.Large{}, err
	}
	request.Times = r.plan.Downloads
	got, err := runApart(func() (download.Result, error) { return download.Run(conn, request) })
	if err != nil {
		return record.Large{}, err
	}
	after, err := r.read(ctx, server, false)
	if err != nil {
		return record.Large{}, err
	}
	return record.Large{
		Arm: slot.arm.Name, Network: slot.network, Bytes: got.Bytes, Duration: got.Duration,
		Server: after.cpu.Sub(before.cpu), Counts: difference(after.counts, before.counts),
	}, nil
}

// runApart runs f in a goroutine of its own and waits for it. The main
// goroutine is tied to its thread (see main), which makes each of its reads
// that have to wait dearer.
func runApart[T any](f func() (T, error)) (T, error) {
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

func (r *runner) largeRequest(server *arm.Running) download.Request {
	return download.Request{Host: server.Env.Address, Path: testsite.LargePath, Size: r.plan.LargeSize, Times: 1}
}

// verifyLarge compares the large file's sum with that of what a server sends.
func (r *runner) verifyLarge(ctx context.Context, server *arm.Running, network string) error {
	if r.large == 0 {
		sum, err := checksum(filepath.Join(r.site(), filepath.FromSlash(testsite.LargePath)))
		if err != nil {
			return err
		}
		r.large = sum
	}
	conn, err := server.Dial(ctx, network)
	if err != nil {
		return err
	}
	defer conn.Close()
	request := r.largeRequest(server)
	request.Checksum = true
	got, err := download.Run(conn, request)
	if err == nil && got.CRC != r.large {
		err = fmt.Errorf("the answer to %s is not the file", testsite.LargePath)
	}
	return err
}

// checksum is the CRC-32C of a file.
func checksum(name string) (uint32, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(h, f); err != nil {
		return 0, err
	}
	return h.Sum32(), nil
}

// hold keeps each arm under load with the most connections and reads its
// memory while they are open.
func (r *runner) hold(ctx context.Context) error {
	workloads := r.plan.Workloads
	w := workloads[len(workloads)-1]
	connections := r.plan.Connections[len(r.plan.Connections)-1]
	for _, a := range r.plan.holdArms() {
		server := r.servers[a.Name]
		if err := emptyLog(server); err != nil {
			return err
		}
		watch := watchMemory(server)
		result, err := r.load(ctx, server, w, connections, r.plan.Hold)
		m := watch.stop()
		if err = errors.Join(err, m.err); err != nil {
			return err
		}
		r.run.Memory = append(r.run.Memory, record.Memory{
			Arm: a.Name, Held: m.last, Peak: m.peak, Fail: result.Sum(), Done: result.Requests,
		})
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		if err := emptyLog(server); err != nil {
			return err
		}
		r.meter.Step(r.plan.holdTime(), "after %v at %d connections: %-15s %.1f MB resident, %d failed",
			r.plan.Hold, connections, a.Name, float64(m.last.RSS)/1e6, result.Sum())
	}
	return nil
}

// watchEvery is how often memory is read: not a whole second, so that the last
// reading is not at the moment when wrk closes its connections.
const watchEvery = 900 * time.Millisecond

// memoryWatch reads a server's memory every so often until it is stopped.
type memoryWatch struct {
	quit chan struct{}
	done chan memories
}

type memories struct {
	last, peak proc.Memory
	err        error
}

// watchMemory starts the watch; stop ends it and waits for it.
func watchMemory(server *arm.Running) memoryWatch {
	w := memoryWatch{make(chan struct{}), make(chan memories, 1)}
	go func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		var m memories
		for {
			select {
			case <-w.quit:
				w.done <- m
				return
			case <-ticker.C:
			}
			held, err := server.Memory()
			if err != nil {
				m.err = errors.Join(m.err, err)
				<-w.quit
				w.done <- m
				return
			}
			m.last = held
			m.peak.RSS = max(m.peak.RSS, held.RSS)
			m.peak.PSS = max(m.peak.PSS, held.PSS)
		}
	}()
	return w
}

func (w memoryWatch) stop() memories {
	close(w.quit)
	return <-w.done
}
