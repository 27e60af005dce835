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
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/load"
)

const (
	// maxLine is the longest line of a client: its histograms have some
	// thousand entries of less than 32 bytes at most.
	maxLine = 1 << 20
	// maxBuckets bounds the histogram of one phase: 32 for each power of two
	// of nanoseconds.
	maxBuckets = 32 * 64
	// sourcesPerClient are the source addresses of one client, each good for some
	// 28,000 connections to one server.
	sourcesPerClient = 4
	// rampTimeout is how long one connection may take for one phase.
	rampTimeout = 10 * time.Second
	// clientEnd is how long a client may take to end when its input does.
	clientEnd = 5 * time.Second
)

// A clientsReport is what the clients of one step found together.
type clientsReport struct {
	Connections, Succeeded, Failed, Unclean int
	First                                   string // the first error, in words
	// Duration is of the whole step, without the pauses between its phases.
	Duration               time.Duration
	connect, upgrade, echo load.Histogram
}

// clientLine is a client's report as it writes it; see lab/bench/subjects/websocket/ramp.go.
type clientLine struct {
	Connections int        `json:"connections"`
	Succeeded   int        `json:"succeeded"`
	Failed      int        `json:"failed"`
	Unclean     int        `json:"unclean"`
	First       string     `json:"first_error"`
	OpenNS      int64      `json:"open_ns"`
	EchoNS      int64      `json:"echo_ns"`
	CloseNS     int64      `json:"close_ns"`
	Connect     [][2]int64 `json:"connect"`
	Upgrade     [][2]int64 `json:"upgrade"`
	Echo        [][2]int64 `json:"echo"`
}

// parseLine reads a client's report, and refuses one that contradicts itself.
func parseLine(line []byte) (clientLine, error) {
	var l clientLine
	if err := json.Unmarshal(line, &l); err != nil {
		return clientLine{}, fmt.Errorf("reading a client's report: %w", err)
	}
	if l.Connections < 1 || l.Succeeded < 0 || l.Failed < 0 || l.Unclean < 0 || l.Succeeded > l.Connections || l.Failed != l.Connections-l.Succeeded {
		return clientLine{}, fmt.Errorf("reading a client's report: %d of %d connections succeeded and %d failed", l.Succeeded, l.Connections, l.Failed)
	}
	if l.OpenNS < 0 || l.EchoNS < 0 || l.CloseNS < 0 {
		return clientLine{}, errors.New("reading a client's report: a phase took less than no time")
	}
	for phase, h := range map[string][][2]int64{"connect": l.Connect, "upgrade": l.Upgrade, "echo": l.Echo} {
		if len(h) > maxBuckets {
			return clientLine{}, fmt.Errorf("reading a client's report: the histogram of %s has %d entries", phase, len(h))
		}
		left := int64(l.Connections)
		for _, bucket := range h {
			if bucket[0] < 0 || bucket[1] < 1 || bucket[1] > left {
				return clientLine{}, fmt.Errorf("reading a client's report: the histogram of %s does not fit %d connections", phase, l.Connections)
			}
			left -= bucket[1]
		}
	}
	return l, nil
}

// addUp puts the reports of clients that worked at the same time together: a
// phase took as long as with the slowest of them.
func addUp(lines []clientLine) clientsReport {
	var r clientsReport
	var open, echo, closing int64
	for _, l := range lines {
		r.Connections += l.Connections
		r.Succeeded += l.Succeeded
		r.Failed += l.Failed
		r.Unclean += l.Unclean
		r.First = cmp.Or(r.First, l.First)
		open, echo, closing = max(open, l.OpenNS), max(echo, l.EchoNS), max(closing, l.CloseNS)
		addBuckets(&r.connect, l.Connect)
		addBuckets(&r.upgrade, l.Upgrade)
		addBuckets(&r.echo, l.Echo)
	}
	r.Duration = time.Duration(open + echo + closing)
	return r
}

// addBuckets adds pairs of a duration in ns and a count to a histogram.
func addBuckets(h *load.Histogram, buckets [][2]int64) {
	for _, bucket := range buckets {
		for range bucket[1] {
			h.Record(time.Duration(bucket[0]))
		}
	}
}

// clientCommands are one client for each server; the connections are shared out
// evenly, and so are those that may be busy at once.
func (w *ramp) clientCommands(arm *echoServer, addresses []string, n int) [][]string {
	commands := make([][]string, len(addresses))
	for i, address := range addresses {
		share := n*(i+1)/len(addresses) - n*i/len(addresses)
		commands[i] = []string{
			w.client, "client", "-address", address, "-path", arm.path, "-connections", strconv.Itoa(share),
			"-first-source", strconv.Itoa(2 + i*sourcesPerClient), "-sources", strconv.Itoa(sourcesPerClient),
			"-busy", strconv.Itoa(max(1, busyAtOnce/len(addresses))), "-timeout", rampTimeout.String(), "-limit", w.rampPlan.limit.String(),
		}
	}
	return commands
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
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
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
func runClients(ctx context.Context, commands [][]string, held func()) (clientsReport, error) {
	var clients []*clientProcess
	defer func() {
		for _, c := range clients {
			c.stop()
		}
	}()
	for _, command := range commands {
		c, err := startClient(ctx, command)
		if err != nil {
			return clientsReport{}, err
		}
		clients = append(clients, c)
	}
	for _, phase := range []struct{ text, next string }{{"open", "echo\n"}, {"echoed", "close\n"}} {
		for _, c := range clients {
			line, err := c.await()
			if err != nil {
				return clientsReport{}, err
			}
			if string(line) != phase.text {
				return clientsReport{}, fmt.Errorf("a client said %.40q where %q was due", line, phase.text)
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
				return clientsReport{}, fmt.Errorf("telling a client to go on: %w", err)
			}
		}
	}
	return collect(clients)
}

// collect reads the reports of all clients, at the same time, as each is
// written when that client has closed its connections.
func collect(clients []*clientProcess) (clientsReport, error) {
	lines := make([]clientLine, len(clients))
	errs := make([]error, len(clients))
	var all sync.WaitGroup // of one goroutine for each client, which ends with its line
	for i, c := range clients {
		all.Go(func() {
			line, err := c.await()
			if err == nil {
				lines[i], err = parseLine(line)
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return clientsReport{}, err
	}
	return addUp(lines), nil
}
