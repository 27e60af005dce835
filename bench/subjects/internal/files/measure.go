package files

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/download"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/testsite"
)

// largeRounds runs all rounds of downloads.
func (r *runner) largeRounds(ctx context.Context) error {
	for round := 1; round <= r.Plan.Rounds; round++ {
		for _, slot := range r.plan.largeOrder(r.Random) {
			l, err := r.download(ctx, slot)
			if err != nil {
				return fmt.Errorf("%s over %s: %w", slot.arm.Name, slot.network, err)
			}
			l.Round = round
			r.Run.Large = append(r.Run.Large, l)
			r.Meter.Step(largeGuess, "round %d, large file over %s: %-15s %5.2f GB/s, %.3f ns/byte",
				round, slot.network, slot.arm.Name, float64(l.Bytes)/float64(l.Duration), l.CPUPerByte())
		}
	}
	return nil
}

// download measures one slot of downloads. One comes before it, so that the
// connection and the page cache are as warm as they get.
func (r *runner) download(ctx context.Context, slot largeSlot) (record.Large, error) {
	server := r.Servers[slot.arm.Name]
	conn, err := server.Dial(ctx, slot.network)
	if err != nil {
		return record.Large{}, err
	}
	defer conn.Close()
	request := r.largeRequest(server)
	if _, err := download.Run(conn, request); err != nil {
		return record.Large{}, err
	}
	before, err := r.Read(ctx, server, true)
	if err != nil {
		return record.Large{}, err
	}
	request.Times = r.plan.Downloads
	got, err := stage.Apart(func() (download.Result, error) { return download.Run(conn, request) })
	if err != nil {
		return record.Large{}, err
	}
	after, err := r.Read(ctx, server, false)
	if err != nil {
		return record.Large{}, err
	}
	return record.Large{
		Arm: slot.arm.Name, Network: slot.network, Bytes: got.Bytes, Duration: got.Duration,
		Server: after.CPU(before), Counts: after.Counts(before),
	}, nil
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
	workloads := r.Plan.Workloads
	w := workloads[len(workloads)-1]
	connections := r.Plan.Connections[len(r.Plan.Connections)-1]
	for _, a := range r.plan.holdArms() {
		server := r.Servers[a.Name]
		if err := stage.EmptyLog(server); err != nil {
			return err
		}
		watch := stage.WatchMemory(server, nil)
		result, err := r.Load(ctx, server, w, connections, r.plan.Hold)
		readings, werr := watch.Stop()
		if err = errors.Join(err, werr); err != nil {
			return err
		}
		m := record.Memory{Arm: a.Name, Fail: result.Sum(), Done: result.Requests}
		for _, held := range readings {
			m.Held = held.Memory
			m.Peak.RSS = max(m.Peak.RSS, held.RSS)
			m.Peak.PSS = max(m.Peak.PSS, held.PSS)
		}
		r.Run.Memory = append(r.Run.Memory, m)
		if err := stage.Sleep(ctx, stage.Pause); err != nil {
			return err
		}
		if err := stage.EmptyLog(server); err != nil {
			return err
		}
		r.Meter.Step(r.plan.holdTime(), "after %v at %d connections: %-15s %.1f MB resident, %d failed",
			r.plan.Hold, connections, a.Name, float64(m.Held.RSS)/1e6, result.Sum())
	}
	return nil
}
