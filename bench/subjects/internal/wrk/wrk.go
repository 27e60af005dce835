// Package wrk runs the load generator wrk and reads its summary.
package wrk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Threads is how many threads wrk has: one for each core of the machine that
// the bars were set on.
const Threads = 2

// Timeout is how long wrk waits for an answer before it counts a failure.
const Timeout = 10 * time.Second

// grace is how long wrk may take for starting and ending beside its duration,
// before it is killed.
const grace = 20 * time.Second

// mark stands before the summary that bench/wrk/requests.lua prints.
const mark = "@bench "

// Job is one run of wrk.
type Job struct {
	Script      string // the path of bench/wrk/requests.lua
	Requests    string // the file of requests, empty for GET of the URL
	URL         string
	Connections int
	Duration    time.Duration // wrk counts whole seconds
}

// Args is wrk's command line without its name.
func (j Job) Args() []string {
	args := []string{
		"-t" + strconv.Itoa(Threads),
		"-c" + strconv.Itoa(j.Connections),
		"-d" + strconv.Itoa(int(j.Duration/time.Second)) + "s",
		"--timeout", strconv.Itoa(int(Timeout/time.Second)) + "s",
		"-s", j.Script, j.URL,
	}
	if j.Requests != "" {
		args = append(args, "--", j.Requests)
	}
	return args
}

// Failures are the requests that wrk counts as failed, by what went wrong.
type Failures struct {
	Connect uint64 `json:"connect"`
	Read    uint64 `json:"read"`
	Write   uint64 `json:"write"`
	Timeout uint64 `json:"timeout"` // no answer within Timeout
	Status  uint64 `json:"status"`  // 400 and above
}

// Sum of all of them.
func (f Failures) Sum() uint64 { return f.Connect + f.Read + f.Write + f.Timeout + f.Status }

// Result is what wrk saw.
type Result struct {
	Requests uint64        `json:"requests"` // answered, failed ones too
	Bytes    uint64        `json:"bytes"`    // read, headers too
	Duration time.Duration `json:"duration"` // ns, as measured by wrk
	Failures
	P50 time.Duration `json:"p50"` // ns, of all answers
	P99 time.Duration `json:"p99"` // ns
	Max time.Duration `json:"max"` // ns
	CPU time.Duration `json:"cpu"` // ns that wrk itself used, from start to end
}

// Rate is requests per second.
func (r Result) Rate() float64 { return float64(r.Requests) / r.Duration.Seconds() }

// Run runs wrk to its end; ctx ends it early.
func Run(ctx context.Context, j Job) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Duration+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, "wrk", j.Args()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, problems bytes.Buffer // wrk prints a screen, so no bound is needed
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return Result{}, fmt.Errorf("running wrk on %s: %w: %s", j.URL, err, strings.TrimSpace(problems.String()))
	}
	r, err := Parse(out.String())
	if err != nil {
		return Result{}, fmt.Errorf("running wrk on %s: %w: %s", j.URL, err, strings.TrimSpace(problems.String()))
	}
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, nil
}

// Parse finds the marked line of bench/wrk/requests.lua in what wrk printed.
func Parse(output string) (Result, error) {
	for line := range strings.Lines(output) {
		if text, ok := strings.CutPrefix(line, mark); ok {
			return parseSummary(text)
		}
	}
	return Result{}, errors.New("its output has no summary line")
}

func parseSummary(text string) (Result, error) {
	var s struct {
		Requests uint64 `json:"requests"`
		Bytes    uint64 `json:"bytes"`
		Duration int64  `json:"duration_us"`
		Failures
		P50 int64 `json:"p50_us"`
		P99 int64 `json:"p99_us"`
		Max int64 `json:"max_us"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Result{}, fmt.Errorf("reading its summary: %w", err)
	}
	if s.Duration <= 0 {
		return Result{}, fmt.Errorf("its summary says that it ran for %d µs", s.Duration)
	}
	return Result{
		Requests: s.Requests,
		Bytes:    s.Bytes,
		Duration: time.Duration(s.Duration) * time.Microsecond,
		Failures: s.Failures,
		P50:      time.Duration(s.P50) * time.Microsecond,
		P99:      time.Duration(s.P99) * time.Microsecond,
		Max:      time.Duration(s.Max) * time.Microsecond,
	}, nil
}

// Version is the first line of wrk -v without its copyright.
func Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "wrk", "-v").Output()
	// wrk -v prints its usage after its version and exits with 1.
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return "", err
	}
	return version(string(out)), nil
}

func version(output string) string {
	line, _, _ := strings.Cut(output, "\n")
	line, _, _ = strings.Cut(line, " Copyright")
	return strings.TrimSpace(line)
}
