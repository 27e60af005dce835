package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// clientMain is one process of the load of the experiment ws-echo-ramp. It opens
// -connections WebSockets to -address and writes a line "open"; on "echo" at its
// standard input it echoes once on each and writes "echoed"; on "close" it closes them
// and writes one line of JSON (rampReport). The end of its standard input ends it at
// once. Several of them are used where one process may not hold enough descriptors.
func clientMain(args []string) error {
	var c rampConfig
	flags := flag.NewFlagSet("websocket client", flag.ExitOnError)
	flags.StringVar(&c.Address, "address", "", "`host:port` of the server")
	flags.StringVar(&c.Path, "path", "/", "of the WebSocket")
	flags.IntVar(&c.Connections, "connections", 100, "how many")
	flags.IntVar(&c.Sources, "sources", 4, "source addresses")
	flags.IntVar(&c.FirstSource, "first-source", 2, "the first is 127.0.0.`N`")
	flags.IntVar(&c.Busy, "busy", 256, "connections that open, echo or close at one moment")
	flags.DurationVar(&c.Timeout, "timeout", 10*time.Second, "for each phase of one connection")
	flags.DurationVar(&c.Limit, "limit", time.Minute, "for each phase of all connections")
	_ = flags.Parse(args) // it exits
	return runPhases(c, os.Stdin, os.Stdout)
}

// runPhases goes through the phases, each when it is told to. A goroutine reads the
// orders, so that the end of them ends the process in the middle of a phase
// too; it lives as long as the process.
func runPhases(c rampConfig, orders io.Reader, answers io.Writer) error {
	client, err := newRamp(c)
	if err != nil {
		return err
	}
	lines := make(chan string) // no buffer: an order is read when it is due
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(orders); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for _, phase := range []struct {
		do    func()
		done  string
		order string
	}{{client.Open, "open", "echo"}, {client.Echo, "echoed", "close"}} {
		finished := make(chan struct{})
		go func() { phase.do(); close(finished) }()
		if err := await(finished, lines); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(answers, phase.done); err != nil {
			return err
		}
		if order := <-lines; order != phase.order {
			return fmt.Errorf("told %q where %q was due", order, phase.order)
		}
	}
	return json.NewEncoder(answers).Encode(client.Close())
}

// await waits for the end of a phase. An order before that, or the end of the
// orders, is an error.
func await(finished <-chan struct{}, lines <-chan string) error {
	select {
	case <-finished:
		return nil
	case order, ok := <-lines:
		if ok {
			return fmt.Errorf("told %q in the middle of a phase", order)
		}
		return io.ErrUnexpectedEOF
	}
}
