package tls

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"millrace/lab/experiment/fileserver"
	"millrace/lab/trial"
)

// h2load (of nghttp2) makes the load: it is what others measure HTTP/2 with, and
// costs less for a request than the lab's own client.

// A burst is one run of h2load.
type burst struct {
	connections, streams int
	http1                bool
	path                 string // empty: /
	requests             int    // in all; 0: as many as there are in the slot's length
}

// The time before the window in which the connections are opened. A handshake
// costs a millisecond of both sides, and the machine may be slow.
const (
	warmUpBase          = 500 * time.Millisecond
	warmUpPerConnection = 2500 * time.Microsecond
)

// arguments are those of h2load.
func (b burst) arguments(url string, length time.Duration) []string {
	args := []string{"-t", "1", "-c", strconv.Itoa(b.connections), "-m", strconv.Itoa(b.streams)}
	if b.http1 {
		args = append(args, "--h1")
	}
	if b.requests > 0 {
		args = append(args, "-n", strconv.Itoa(b.requests))
	} else {
		warmUp := warmUpBase + time.Duration(b.connections)*warmUpPerConnection
		args = append(args, "-D", milliseconds(length), "--warm-up-time", milliseconds(warmUp))
	}
	return append(args, url)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// press looks whether the page is right and has h2load ask for it.
func (m *measurement) press(ctx context.Context, slot trial.TaskSlot, b burst) (trial.TaskResult, error) {
	if err := m.look(ctx, slot.URL, !b.http1); err != nil {
		return trial.TaskResult{}, err
	}
	target, err := url.JoinPath(slot.URL, b.path)
	if err != nil {
		return trial.TaskResult{}, fmt.Errorf("reading the server's URL: %w", err)
	}
	cmd := exec.CommandContext(ctx, m.h2load, b.arguments(target, slot.Length)...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if b.requests > 0 {
		slot.Window(true)
		defer slot.Window(false)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return trial.TaskResult{}, fmt.Errorf("starting h2load: %w", err)
	}
	said := listen(out, slot.Window)
	if err := cmd.Wait(); err != nil {
		return trial.TaskResult{}, fmt.Errorf("running h2load: %w: %s", err, complaints.String())
	}
	got, err := said.result(b.requests == 0)
	if err != nil {
		return got, fmt.Errorf("%w; it said:\n%s", err, said.text)
	}
	if least := uint64(b.requests) * uint64(m.large); b.path == fileserver.LargePath && said.body() < least { //nolint:gosec // neither is negative
		return got, fmt.Errorf("%w: %d bytes of files of %d", errAnswer, said.body(), least)
	}
	if b.requests == 0 {
		got.Values["requests_per_second"] = float64(got.Done) / slot.Length.Seconds()
	}
	return got, nil
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

// errSaidNothing is why a run of h2load is of no use.
var errSaidNothing = errors.New("h2load has not said what it has measured")

// result is what h2load has counted. timed: it had a window of its own.
func (w words) result(timed bool) (trial.TaskResult, error) {
	requests, codes := counted.FindStringSubmatch(w.text), statuses.FindStringSubmatch(w.text)
	if requests == nil || codes == nil || timed && (!w.opened || !w.closed) {
		return trial.TaskResult{}, errSaidNothing
	}
	// What failed has what was reset, refused or late in it. A redirect counts as
	// a success there. The 2xx are no count of the window: an answer whose head
	// came before it is done in it.
	done, moved := number(requests[1]), number(codes[1])
	got := trial.TaskResult{Done: done - min(done, moved), Failed: number(requests[2]) + moved, Values: map[string]float64{}}
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
