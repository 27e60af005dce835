package sockets

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/wsload"
)

const (
	// maxAnswer is the longest line of a client.
	maxAnswer = 1 << 16
	// grace is how much longer than an order says its answer may take: opening,
	// and waiting for what does not come, have times of their own.
	grace = 20 * time.Second
	// stopping is how long a client may take to end.
	stopping = 5 * time.Second
)

// client is a process that holds connections.
type client struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte     // its answers; closed when it has ended
	moans strings.Builder // its standard error; to be read when it has ended
}

// start starts a client. The caller stops it.
func startClient(bin string) (*client, error) {
	c := &client{cmd: exec.Command(filepath.Join(bin, "wsload")), lines: make(chan []byte)}
	c.cmd.Stderr = &c.moans
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a client: %w", err)
	}
	// Ends with the process, which stop waits for.
	go func() {
		defer close(c.lines)
		s := bufio.NewScanner(out)
		for s.Buffer(nil, maxAnswer); s.Scan(); {
			c.lines <- append([]byte(nil), s.Bytes()...)
		}
	}()
	return c, nil
}

// stop ends a client and waits for it.
func (c *client) stop() {
	_ = c.in.Close() // that ends it
	limit := time.AfterFunc(stopping, func() { _ = c.cmd.Process.Kill() })
	defer limit.Stop()
	for range c.lines {
		continue // so that it never waits for us to read
	}
	_ = c.cmd.Wait() // how it ended matters to nobody any more
}

// cpu is what the client has used so far.
func (c *client) cpu() (proc.CPU, error) { return proc.ReadCPU([]int{c.cmd.Process.Pid}) }

// ask gives an order, which should take so long, and returns the answer.
func ask[T any](ctx context.Context, c *client, o wsload.Order, expected time.Duration) (answer T, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return answer, err
	}
	if _, err := c.in.Write(append(text, '\n')); err != nil {
		return answer, fmt.Errorf("giving a client an order: %w", err)
	}
	limit := time.NewTimer(expected + grace)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	case <-limit.C:
		return answer, fmt.Errorf("a client has not carried out %s within %v", text, expected+grace)
	case line, ok := <-c.lines:
		if !ok {
			c.stop()
			return answer, fmt.Errorf("a client ended early; it printed: %.500s", c.moans.String())
		}
		var failure wsload.Failure
		if err := errors.Join(json.Unmarshal(line, &failure), json.Unmarshal(line, &answer)); err != nil {
			return answer, fmt.Errorf("reading a client's answer: %w", err)
		}
		if failure.Error != "" {
			return answer, fmt.Errorf("a client could not carry out %s: %s", text, failure.Error)
		}
		return answer, nil
	}
}

const (
	// sources are the source addresses of a client, each good for some 28,000
	// connections to one server.
	sources = 4
	// busy is how many connections are opened at one moment. It is far below the
	// queue of a listening socket (net.core.somaxconn, 4096 by default), which
	// would otherwise be what breaks first.
	busy = 128
	// openLimit is how long opening may take.
	openLimit = 60 * time.Second
)

// opening is the order to open connections to a server.
func opening(address string, n int) wsload.Open {
	return wsload.Open{
		Address: address, Path: echoPath, Connections: n, FirstSource: 2, Sources: sources, Busy: busy, Limit: openLimit,
	}
}

// open opens connections. That some do not open is told by the state.
func (c *client) open(ctx context.Context, o wsload.Open) (wsload.State, error) {
	return ask[wsload.State](ctx, c, wsload.Order{Open: &o}, o.Limit)
}

func (c *client) echo(ctx context.Context, size int, d time.Duration) (wsload.Echoed, error) {
	// Of very many connections the last answer may come late.
	return ask[wsload.Echoed](ctx, c, wsload.Order{Echo: &wsload.Echo{Size: size, Duration: d}}, d+openLimit/2)
}

func (c *client) state(ctx context.Context) (wsload.State, error) {
	return ask[wsload.State](ctx, c, wsload.Order{State: true}, 0)
}

func (c *client) close(ctx context.Context) (wsload.State, error) {
	return ask[wsload.State](ctx, c, wsload.Order{Close: true}, openLimit/2)
}
