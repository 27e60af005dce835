package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/lab/record"
)

const (
	// stopTime is how long a server may take to end after SIGTERM.
	stopTime = 5 * time.Second
	// pollTime is how often a starting server is asked whether it is ready.
	pollTime = 10 * time.Millisecond
	// dialTime bounds one such question; loopback answers at once or never.
	dialTime = time.Second
	// outputTime is how long output is waited for that a process left behind
	// by the server still holds open.
	outputTime = time.Second
)

// A Process is a server that the lab started. End it with Stop.
type Process struct {
	// PID is its first process, the leader of its group.
	PID int

	name    string
	address string
	out     tail
	grace   time.Duration // between SIGTERM and SIGKILL

	ended chan struct{} // closed when the first process has ended
	done  chan struct{} // closed when it was waited for; exit is set then
	exit  error

	mu     sync.Mutex // guards signals against a number that belongs to somebody else by now
	reaped bool

	stop    sync.Once
	stopErr error
}

// Start runs a command in a process group of its own and returns when address
// ("host:port" or "unix:/path") accepts connections. Its first process gets
// SIGTERM when this program dies, however it dies.
//
// The command's output is kept, its last 4 KB, for errors: a command that
// ends, or is not ready within wait, is an error that quotes it. So is an
// address that accepted connections before the start: somebody else's server
// would be measured. Address "" is found by looking at where the process group
// listens; of several, it is the socket that the first process opened first.
//
// ctx ends the waiting only; a server that was started lives until Stop.
func Start(ctx context.Context, cmd *exec.Cmd, address string, wait time.Duration) (*Process, error) {
	p := &Process{
		name: filepath.Base(cmd.Path), address: address, grace: stopTime,
		ended: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("it is not ready within %v", wait))
	defer cancel()
	if address != "" && connect(ctx, address) == nil {
		return nil, fmt.Errorf("starting %s: somebody listens at %s already: stop that server or choose another address", p.name, address)
	}
	cmd.Stdout, cmd.Stderr = beside(cmd.Stdout, &p.out), beside(cmd.Stderr, &p.out)
	cmd.WaitDelay = outputTime
	if err := setGroup(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	started := make(chan error)
	go p.run(cmd, started) // ends with the process, which Stop waits for
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	if err := p.ready(ctx); err != nil {
		_ = p.Stop() // why it is not ready matters more than how it ended
		return nil, fmt.Errorf("starting %s: %w%s", p.name, err, p.quote())
	}
	return p, nil
}

// beside adds a writer to the one that the caller of Start may have set.
func beside(w io.Writer, t *tail) io.Writer {
	if w == nil {
		return t
	}
	return io.MultiWriter(w, t)
}

// run starts the command and waits for it. It keeps a thread for itself: the
// kernel sends the signal of a parent's death when the thread dies that forked,
// and Go ends threads when it likes.
func (p *Process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		p.PID = cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	awaitEnd(p.PID)
	close(p.ended)
	p.mu.Lock()
	// What it left behind in its group would go on listening. The group's
	// number is still its own, as the process was not waited for yet.
	killGroup(p.PID, syscall.SIGKILL)
	p.exit = cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	close(p.done)
}

// ready waits until the server accepts connections.
func (p *Process) ready(ctx context.Context) error {
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	for {
		err := p.try(ctx)
		select {
		case <-p.ended: // even if somebody answered: it was not this one
			<-p.done
			return p.endedError()
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// try finds out whether the server accepts connections now, and where.
func (p *Process) try(ctx context.Context) error {
	if p.address != "" {
		return connect(ctx, p.address)
	}
	group, err := record.Group(p.PID)
	if err != nil {
		return err
	}
	addresses, err := record.Addresses(group...)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return errors.New("it listens nowhere")
	}
	for _, a := range addresses {
		if err = connect(ctx, a); err == nil {
			p.address = a
			return nil
		}
	}
	return err
}

// connect opens a connection and closes it.
func connect(ctx context.Context, address string) error {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Address is where it accepts connections: "host:port" or "unix:/path".
func (p *Process) Address() string { return p.address }

// Output is the end of what it printed, at most 4 KB.
func (p *Process) Output() string { return p.out.String() }

// Stop asks with SIGTERM, insists with SIGKILL after 5 s, and waits. It
// reports a process that had ended by itself, and quotes its output. Further
// calls return the same.
func (p *Process) Stop() error {
	p.stop.Do(func() {
		select {
		case <-p.ended:
			<-p.done
			p.stopErr = fmt.Errorf("%s: %w%s", p.name, p.endedError(), p.quote())
			return
		default:
		}
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(p.grace):
			p.signal(syscall.SIGKILL)
			<-p.done
		}
	})
	return p.stopErr
}

// signal sends a signal to the process group, as long as it is ours.
func (p *Process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.PID, s)
	}
}

// endedError says how the process ended by itself. It may be called when done
// is closed.
func (p *Process) endedError() error {
	if p.exit == nil {
		return errors.New("it ended (exit status 0): a server must stay in the foreground to be measured")
	}
	return fmt.Errorf("it ended (%w)", p.exit)
}

// quote is the end of the output as the tail of an error.
func (p *Process) quote() string {
	text := strings.TrimSpace(p.Output())
	if text == "" {
		return "; it printed nothing"
	}
	return "; it printed:\n" + text
}
