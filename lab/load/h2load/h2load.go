// Package h2load makes load with h2load of nghttp2: it is what others measure HTTP/2
// with, and costs less for a request than the lab's own client.
package h2load

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"millrace/lab/load"
)

// A Burst is one run of h2load.
type Burst struct {
	Exe, URL             string
	Connections, Streams int
	HTTP1                bool
	Requests             uint64          // in all; 0: as many as there are in Length
	Length               time.Duration   // of the window
	Window               func(open bool) // is called when the window opens and closes
	Log                  string          // a file for the time of each request, which gives the 99th percentile; empty: none

	allowance time.Duration // 0: endAllowance
}

// A Result is what h2load has counted.
type Result struct {
	Done, Failed uint64
	FirstFailure string             // in words
	Values       map[string]float64 // requests_per_second, latency_mean_ns, latency_p99_ns: those that are known
	Body         uint64             // bytes of all bodies
}

// The time before the window in which the connections are opened. A handshake
// costs a millisecond of both sides, and the machine may be slow.
const (
	warmUpBase          = 500 * time.Millisecond
	warmUpPerConnection = 2500 * time.Microsecond
)

// endAllowance is what a run may take longer than its warm-up and its window. h2load
// waits at its end for every answer that is under way, and with 1,000 connections
// of 100 streams to Caddy that end never came.
const endAllowance = time.Minute

// warmUp is the time before the window of a timed run.
func (b Burst) warmUp() time.Duration {
	return warmUpBase + time.Duration(b.Connections)*warmUpPerConnection
}

// arguments are those of h2load.
func (b Burst) arguments() []string {
	args := []string{"-t", "1", "-c", strconv.Itoa(b.Connections), "-m", strconv.Itoa(b.Streams)}
	if b.HTTP1 {
		args = append(args, "--h1")
	}
	if b.Log != "" {
		args = append(args, "--log-file="+b.Log)
	}
	if b.Requests > 0 {
		args = append(args, "-n", strconv.FormatUint(b.Requests, 10))
	} else {
		args = append(args, "-D", milliseconds(b.Length), "--warm-up-time", milliseconds(b.warmUp()))
	}
	return append(args, b.URL)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// Run has h2load ask, and opens and closes the window: when its own opens and closes,
// or, with a count of requests, around all of it.
func (b Burst) Run(ctx context.Context) (got Result, err error) {
	limit := b.warmUp() + b.Length + cmp.Or(b.allowance, endAllowance)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %v", errNoEnd, limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, b.Exe, b.arguments()...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if b.Requests > 0 {
		b.Window(true)
		defer b.Window(false)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return got, fmt.Errorf("starting h2load: %w", err)
	}
	output := listen(out, b.Window)
	if err := cmd.Wait(); err != nil {
		return got, fmt.Errorf("running h2load: %w: %s", cmp.Or(context.Cause(ctx), err), complaints.String())
	}
	timed := b.Requests == 0
	if got, err = output.result(timed); err != nil {
		return got, fmt.Errorf("%w; it said:\n%s", err, output.text)
	}
	if timed {
		got.Values["requests_per_second"] = float64(got.Done) / b.Length.Seconds()
	}
	if b.Log != "" {
		times, err := readLog(b.Log)
		if err != nil {
			return got, err
		}
		got.Values["latency_p99_ns"] = float64(times.Quantile(0.99))
	}
	got.Body = output.body()
	return got, nil
}

// readLog reads h2load's log, and removes it: a line for each request, with its
// start in µs, its status and its time in µs.
func readLog(name string) (*load.Histogram, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading h2load's log: %w", err)
	}
	defer f.Close()
	var times load.Histogram
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return nil, fmt.Errorf("reading h2load's log: %w: %q", errNoResult, lines.Text())
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading h2load's log: %w", err)
		}
		times.Record(time.Duration(us) * time.Microsecond)
	}
	return &times, errors.Join(lines.Err(), os.Remove(name))
}

// words are what h2load has said.
type words struct {
	text           string
	opened, closed bool // its window
}

// listen reads what h2load says until its end, and opens and closes the window
// when it says that it begins and ends to count.
func listen(out io.Reader, window func(open bool)) words {
	var w words
	var text strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "Main benchmark duration is started"):
			window(true)
			w.opened = true
		case strings.HasPrefix(line, "Main benchmark duration is over"):
			window(false)
			w.closed = true
		default:
			text.WriteString(line + "\n")
		}
	}
	w.text = text.String()
	return w
}

// What h2load says of a run.
var (
	counted  = regexp.MustCompile(`(?m)^requests: .* (\d+) succeeded, (\d+) failed, .*$`)
	statuses = regexp.MustCompile(`(?m)^status codes: \d+ 2xx, (\d+) 3xx, .*$`)
	bodies   = regexp.MustCompile(`(?m)^traffic: .* \((\d+)\) data$`)
	latency  = regexp.MustCompile(`(?m)^time for request: +\S+ +\S+ +(\S+) `)
)

// errNoEnd is why a run was ended.
var errNoEnd = errors.New("h2load did not end")

// errNoResult is why a run of h2load is of no use.
var errNoResult = errors.New("h2load has not said what it has measured")

// result is what h2load has counted. timed: it had a window of its own.
func (w words) result(timed bool) (Result, error) {
	requests, codes := counted.FindStringSubmatch(w.text), statuses.FindStringSubmatch(w.text)
	if requests == nil || codes == nil || timed && (!w.opened || !w.closed) {
		return Result{}, errNoResult
	}
	// What failed has what was reset, refused or late in it. A redirect counts as
	// a success there. The 2xx are no count of the window: an answer whose head
	// came before it is done in it.
	done, moved := number(requests[1]), number(codes[1])
	got := Result{Done: done - min(done, moved), Failed: number(requests[2]) + moved, Values: map[string]float64{}}
	if got.Failed > 0 {
		got.FirstFailure = requests[0] + "; " + codes[0]
	}
	if m := latency.FindStringSubmatch(w.text); m != nil && timed {
		if d, err := time.ParseDuration(m[1]); err == nil {
			got.Values["latency_mean_ns"] = float64(d)
		}
	}
	return got, nil
}

// body is how many bytes of bodies have come.
func (w words) body() uint64 {
	if m := bodies.FindStringSubmatch(w.text); m != nil {
		return number(m[1])
	}
	return 0
}

// number reads what the expressions have found to be one.
func number(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}
