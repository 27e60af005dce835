package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// rampMessage is what each connection sends and expects back.
const rampMessage = "Hello, echod!\n"

// maxConnections is more than the descriptors of one process in any use of
// this; it bounds the memory for results.
const maxConnections = 1 << 20

// rampConfig is one ramp.
type rampConfig struct {
	Address     string        // host:port of the server
	Path        string        // of the WebSocket; empty: /
	Connections int           // open at once in the end
	Sources     int           // source addresses 127.0.0.FirstSource and following
	FirstSource int           // at least 2: 127.0.0.1 is the server's
	Busy        int           // connections that open, echo or close at the same moment
	Timeout     time.Duration // for each phase of one connection
	Limit       time.Duration // for each phase of all connections: what is not through then has failed
}

// errLimit is why a connection was not even tried.
var errLimit = errors.New("its turn did not come within the limit of a phase")

// A ramp opens many WebSocket connections to one server, holds them, echoes once on
// each and closes them, and times every phase, with as little of its own as possible: no
// goroutine and no buffer for a connection that is only held. Call Open, Echo and Close in this order, each
// once, from one goroutine.
type ramp struct {
	config rampConfig
	conns  []net.Conn // nil: failed
	report rampReport
	mu     sync.Mutex // guards report.First
	times  [3][]int64 // connect, upgrade, echo; ns by connection, 0: not reached
}

// A rampReport is what a ramp found, as one line of JSON.
type rampReport struct {
	Connections int `json:"connections"`
	Succeeded   int `json:"succeeded"` // connected, upgraded, got their own message back
	Failed      int `json:"failed"`
	// What the failed ones failed at.
	FailedConnect int64  `json:"failed_connect"`
	FailedUpgrade int64  `json:"failed_upgrade"`
	FailedEcho    int64  `json:"failed_echo"`
	Unclean       int64  `json:"unclean"` // succeeded, but the server did not close in time
	First         string `json:"first_error,omitempty"`
	// How long each phase took over all connections.
	OpenNS  int64 `json:"open_ns"`
	EchoNS  int64 `json:"echo_ns"`
	CloseNS int64 `json:"close_ns"`
	// Histograms of one connection's phases: pairs of a duration in ns and how
	// many took as long, rounded down to about 3 %.
	Connect [][2]int64 `json:"connect"`
	Upgrade [][2]int64 `json:"upgrade"`
	Echo    [][2]int64 `json:"echo"`
}

// newRamp checks a config. Nothing is opened yet.
func newRamp(c rampConfig) (*ramp, error) {
	switch {
	case c.Connections < 1 || c.Connections > maxConnections:
		return nil, fmt.Errorf("%d connections: it must be 1 to %d", c.Connections, maxConnections)
	case c.Busy < 1:
		return nil, fmt.Errorf("%d connections busy at once: it must be at least 1", c.Busy)
	case c.Sources < 1 || c.FirstSource < 2 || c.FirstSource+c.Sources > 255:
		return nil, fmt.Errorf("sources 127.0.0.%d and %d following: they must be within 127.0.0.2…254", c.FirstSource, c.Sources-1)
	case c.Timeout <= 0 || c.Limit <= 0:
		return nil, errors.New("timeout and limit must be above zero")
	}
	client := &ramp{config: c, conns: make([]net.Conn, c.Connections)}
	client.report.Connections = c.Connections
	for i := range client.times {
		client.times[i] = make([]int64, c.Connections)
	}
	return client, nil
}

// Open opens and upgrades all connections, rampConfig.Busy of them at once, so that
// the server's queue of connections is not what is measured.
func (c *ramp) Open() {
	c.report.OpenNS = c.each(func(i int, r *bufio.Reader, timeout time.Duration) {
		if timeout <= 0 {
			c.fail(&c.report.FailedConnect, errLimit)
			return
		}
		from := net.IPv4(127, 0, 0, byte(c.config.FirstSource+i%c.config.Sources))
		dialer := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: from}, Control: bindLate}
		start := time.Now()
		conn, err := dialer.Dial("tcp", c.config.Address)
		if err != nil {
			c.fail(&c.report.FailedConnect, err)
			return
		}
		connected := time.Now()
		c.times[0][i] = int64(connected.Sub(start))
		_ = conn.SetDeadline(start.Add(timeout))
		r.Reset(conn)
		if err := upgrade(conn, r, c.config.Address, cmp.Or(c.config.Path, "/")); err != nil {
			c.fail(&c.report.FailedUpgrade, fmt.Errorf("upgrading: %w", err))
			_ = conn.Close()
			return
		}
		c.times[1][i] = int64(time.Since(connected))
		c.conns[i] = conn
	})
}

// Echo sends the message on each open connection and compares what comes back.
func (c *ramp) Echo() {
	c.report.EchoNS = c.each(func(i int, r *bufio.Reader, timeout time.Duration) {
		conn := c.conns[i]
		if conn == nil {
			return
		}
		start := time.Now()
		_ = conn.SetDeadline(start.Add(timeout)) // past: fails at once
		r.Reset(conn)
		if err := echo(conn, r); err != nil {
			c.fail(&c.report.FailedEcho, fmt.Errorf("echoing: %w", err))
			_ = conn.Close()
			c.conns[i] = nil
			return
		}
		c.times[2][i] = int64(time.Since(start))
	})
}

// Close says goodbye on each connection, waits for the server to close it, and
// returns what the ramp found.
func (c *ramp) Close() rampReport {
	c.report.CloseNS = c.each(func(i int, r *bufio.Reader, timeout time.Duration) {
		conn := c.conns[i]
		if conn == nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(timeout))
		r.Reset(conn)
		if err := goodbye(conn, r); err != nil {
			atomic.AddInt64(&c.report.Unclean, 1)
		}
		_ = conn.Close()
		c.conns[i] = nil
	})
	rep := &c.report
	rep.Failed = int(rep.FailedConnect + rep.FailedUpgrade + rep.FailedEcho)
	rep.Succeeded = rep.Connections - rep.Failed
	rep.Connect, rep.Upgrade, rep.Echo = histogram(c.times[0]), histogram(c.times[1]), histogram(c.times[2])
	return *rep
}

// each calls do for every connection from rampConfig.Busy goroutines, which it
// waits for, and returns how long all of it took. Each goroutine has one reader;
// timeout is how long that connection may take.
func (c *ramp) each(do func(i int, r *bufio.Reader, timeout time.Duration)) int64 {
	start := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(c.config.Busy, c.config.Connections) {
		all.Go(func() {
			r := bufio.NewReaderSize(nil, maxHead)
			for i := next.Add(1) - 1; i < int64(c.config.Connections); i = next.Add(1) - 1 {
				do(int(i), r, min(c.config.Timeout, c.config.Limit-time.Since(start)))
			}
		})
	}
	all.Wait()
	return int64(time.Since(start))
}

// fail counts a failed connection and keeps the first reason.
func (c *ramp) fail(counter *int64, err error) {
	atomic.AddInt64(counter, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report.First == "" {
		c.report.First = err.Error()
	}
}

// histogram counts durations (ns; 0 is none) by their six leading bits.
func histogram(times []int64) [][2]int64 {
	counts := map[int64]int64{} // at most 32 entries per power of two
	for _, t := range times {
		if t > 0 {
			counts[floor(t)]++
		}
	}
	out := make([][2]int64, 0, len(counts))
	for t, n := range counts {
		out = append(out, [2]int64{t, n})
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	return out
}

// floor clears all but the six leading bits of a positive number.
func floor(t int64) int64 {
	shift := 0
	for t>>shift >= 64 {
		shift++
	}
	return t >> shift << shift
}
