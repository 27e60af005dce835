package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/sandbox"
)

// freeMemoryAfter is when a worker without work gives back to the system what its last
// image has taken: the budget counts what runs. Between two images of a row
// that would only cost time.
const freeMemoryAfter = 100 * time.Millisecond

// programBytes are resident in a worker that Go's limit does not count: pages of
// the program's file.
const programBytes = 24 << 20

// Main is the worker: it converts what comes in until in ends, and returns. It
// lowers the priority of the process that calls it and gives up its rights, for
// ever. An error means that what comes in is not from a Pool of the same version.
func Main(in io.Reader, out io.Writer) error {
	return serve(in, out, func(ctx context.Context, h hello) (converter, *welcome, error) {
		needs := sandbox.Needs{Network: h.Network}
		if h.Level != "embedded" {
			needs.Programs = codec.Commands(os.Getenv("PATH"))
		}
		if dir := os.Getenv(coverage); dir != "" {
			needs.Folders = []string{dir}
		}
		report := sandbox.Enter(needs) // before the encoders: they are tested as they will run
		e, err := newEngine(ctx, h)
		if err != nil {
			return nil, nil, err
		}
		return e, &welcome{Abilities: e.abilities, Sandbox: report}, nil
	})
}

// coverage names the folder that a program built to measure its tests writes to.
const coverage = "GOCOVERDIR"

// A converter does the work of a child. Tests put others in its place.
type converter interface {
	convert(ctx context.Context, source []byte, s convert.Spec) (*convert.Result, error)
}

// serve speaks the protocol of frame.go: one greeting, then jobs, one at a time.
// Whoever sends them ends this process when nobody waits for one any more.
func serve(in io.Reader, out io.Writer, open func(context.Context, hello) (converter, *welcome, error)) error {
	ctx := context.Background()
	r := bufio.NewReader(in)
	var h hello
	if _, err := readFrame(r, &h, 0); err != nil {
		return fmt.Errorf("this command is started by a millrace server to convert its images, not by hand: %w", err)
	}
	low := lowerPriority(h.Background)
	c, w, err := open(ctx, h)
	if err != nil {
		w = &welcome{Failure: newFailure(err)}
	}
	if low != nil {
		w.Priority = cut(low.Error())
	}
	if err := writeFrame(out, w, 0); err != nil {
		return err
	}
	freeMemory := time.AfterFunc(freeMemoryAfter, debug.FreeOSMemory)
	defer freeMemory.Stop()
	for w.Failure == nil {
		freeMemory.Reset(freeMemoryAfter)
		var j job
		size, err := readFrame(r, &j, maxSource)
		freeMemory.Stop()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // no more work
		}
		if err != nil {
			return fmt.Errorf("reading a job: %w", err)
		}
		if err := serveJob(ctx, r, out, c, j, size); err != nil {
			return err
		}
	}
	return nil
}

// serveJob does one job. The CPU it counts begins before the source is read.
func serveJob(ctx context.Context, r io.Reader, out io.Writer, c converter, j job, size int64) error {
	before := convert.CPUTime()
	if err := writeFrame(out, accepted{}, 0); err != nil {
		return err
	}
	if j.Memory > 0 {
		debug.SetMemoryLimit(max(j.Memory-programBytes, programBytes))
	}
	source := make([]byte, size)
	if _, err := io.ReadFull(r, source); err != nil {
		return fmt.Errorf("reading an original of %d bytes: %w", size, noEOF(err))
	}
	res, err := c.convert(ctx, source, j.Spec)
	if err == nil && int64(len(res.Data)) > maxResult {
		err = fmt.Errorf("%w: the result has %d bytes", convert.ErrNoGain, len(res.Data))
	}
	if err != nil {
		return writeFrame(out, answer{Failure: newFailure(err)}, 0)
	}
	res.CPU = convert.CPUTime() - before
	res.Source.ICC = nil
	res.Source.Copyright, res.Source.Artist = cut(res.Source.Copyright), cut(res.Source.Artist)
	if err := writeFrame(out, answer{Result: res}, int64(len(res.Data))); err != nil {
		return err
	}
	_, err = out.Write(res.Data)
	return err
}
