package websocket

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"millrace/lab/load"
)

const (
	// maxLine is the longest line of a client: its histograms have some
	// thousand entries of less than 32 bytes at most.
	maxLine = 1 << 20
	// clientEnd is how long a client may take to end when its input does.
	clientEnd = 5 * time.Second
)

// A report is what a client found, as it writes it (lab/bench/subjects/websocket), or
// what those of one step found together.
type report struct {
	Connections int    `json:"connections"`
	Succeeded   int    `json:"succeeded"`
	Failed      int    `json:"failed"`
	First       string `json:"first_error"` // in words
	// How long each phase took over all connections.
	OpenNS  int64 `json:"open_ns"`
	EchoNS  int64 `json:"echo_ns"`
	CloseNS int64 `json:"close_ns"`
	// Pairs of a duration in ns and how many connections took that long.
	Connect buckets `json:"connect"`
	Upgrade buckets `json:"upgrade"`
	Echo    buckets `json:"echo"`
}

type buckets [][2]int64

// parseReport reads a client's report, and refuses one that contradicts itself.
func parseReport(line []byte) (r report, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return report{}, fmt.Errorf("reading a client's report: %w", err)
	}
	if r.Connections < 1 || r.Succeeded < 0 || r.Succeeded > r.Connections || r.Failed != r.Connections-r.Succeeded || min(r.OpenNS, r.EchoNS, r.CloseNS) < 0 {
		return report{}, fmt.Errorf("reading a client's report: %d of %d connections succeeded and %d failed", r.Succeeded, r.Connections, r.Failed)
	}
	for _, h := range []buckets{r.Connect, r.Upgrade, r.Echo} {
		left := int64(r.Connections)
		for _, b := range h {
			if b[0] < 0 || b[1] < 1 || b[1] > left {
				return report{}, fmt.Errorf("reading a client's report: a histogram does not fit %d connections", r.Connections)
			}
			left -= b[1]
		}
	}
	return r, nil
}

// addUp puts the reports of clients that worked at the same time together: a phase
// took as long as with the slowest of them.
func addUp(all []report) (sum report) {
	for _, r := range all {
		sum.Connections += r.Connections
		sum.Succeeded += r.Succeeded
		sum.Failed += r.Failed
		sum.First = cmp.Or(sum.First, r.First)
		sum.OpenNS, sum.EchoNS, sum.CloseNS = max(sum.OpenNS, r.OpenNS), max(sum.EchoNS, r.EchoNS), max(sum.CloseNS, r.CloseNS)
		sum.Connect, sum.Upgrade, sum.Echo = append(sum.Connect, r.Connect...), append(sum.Upgrade, r.Upgrade...), append(sum.Echo, r.Echo...)
	}
	return sum
}

// values are a report's figures by metric. What is unknown is not there.
func (r report) values() map[string]float64 {
	v := map[string]float64{"step_ns": float64(r.OpenNS + r.EchoNS + r.CloseNS), "succeeded": float64(r.Succeeded), "failed": float64(r.Failed)}
	for name, b := range map[string]buckets{"connect": r.Connect, "upgrade": r.Upgrade, "echo": r.Echo} {
		var h load.Histogram
		for _, pair := range b {
			for range pair[1] {
				h.Record(time.Duration(pair[0]))
			}
		}
		if h.Count() > 0 {
			v[name+"_p50_ns"], v[name+"_p99_ns"] = float64(h.Quantile(0.5)), float64(h.Quantile(0.99))
		}
	}
	return v
}

// A clientProcess is one process of the load.
type clientProcess struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	moans strings.Builder // its standard error
}

func startClient(ctx context.Context, command []string) (*clientProcess, error) {
	c := &clientProcess{cmd: exec.CommandContext(ctx, command[0], command[1:]...)}
	c.cmd.WaitDelay = clientEnd
	c.cmd.Stderr = &c.moans
	in, err := c.cmd.StdinPipe()
	out, outErr := c.cmd.StdoutPipe()
	if err = errors.Join(err, outErr); err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewScanner(out)
	c.out.Buffer(nil, maxLine)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a client: %w", err)
	}
	return c, nil
}

// await reads the next line of a client.
func (c *clientProcess) await() ([]byte, error) {
	if !c.out.Scan() {
		err := c.out.Err()
		c.stop() // then nobody writes what it said any more
		return nil, fmt.Errorf("a client ended early: %w; it said %q", errors.Join(err, io.ErrUnexpectedEOF), c.moans.String())
	}
	return c.out.Bytes(), nil
}

// stop ends a client, if it has not ended yet, and waits for it. It may be
// called again.
func (c *clientProcess) stop() {
	_ = c.in.Close() // the end of its input ends it
	for c.out.Scan() {
		continue // so that it never waits for us to read
	}
	_ = c.cmd.Wait()
}

// runClients leads several clients through the phases together: all connections
// of all of them are open before the first message. held is called when every
// connection was echoed on and all of them are still open.
func runClients(ctx context.Context, commands [][]string, held func()) (report, error) {
	var clients []*clientProcess
	defer func() {
		for _, c := range clients {
			c.stop()
		}
	}()
	for _, command := range commands {
		c, err := startClient(ctx, command)
		if err != nil {
			return report{}, err
		}
		clients = append(clients, c)
	}
	for _, phase := range []struct{ text, next string }{{"open", "echo\n"}, {"echoed", "close\n"}} {
		for _, c := range clients {
			line, err := c.await()
			if err != nil {
				return report{}, err
			}
			if string(line) != phase.text {
				return report{}, fmt.Errorf("a client said %.40q where %q was due", line, phase.text)
			}
		}
		if phase.text == "echoed" {
			held()
		}
		for _, c := range clients {
			if _, err := io.WriteString(c.in, phase.next); err != nil {
				if _, why := c.await(); why != nil {
					err = why // it has ended, and said why
				}
				return report{}, fmt.Errorf("telling a client to go on: %w", err)
			}
		}
	}
	return collect(clients)
}

// collect reads the reports of all clients, at the same time, as each is
// written when that client has closed its connections.
func collect(clients []*clientProcess) (report, error) {
	reports, errs := make([]report, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup // of one goroutine for each client, which ends with its line
	for i, c := range clients {
		all.Go(func() {
			line, err := c.await()
			if err == nil {
				reports[i], err = parseReport(line)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return addUp(reports), errors.Join(errs...)
}
