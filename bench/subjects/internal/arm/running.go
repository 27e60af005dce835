package arm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"millrace/bench/subjects/internal/proc"
)

const (
	// startTimeout is how long a server may take until it answers.
	startTimeout = 15 * time.Second
	// stopTimeout is how long it may take to end after SIGTERM; then SIGKILL.
	stopTimeout = 5 * time.Second
	// outputShown is how much of a failed server's output an error quotes.
	outputShown = 2000 // bytes
)

// Running is an arm whose server runs.
type Running struct {
	Arm  Arm
	Env  Env
	Argv []string
	pids []int // the server's process and its workers

	cmd    *exec.Cmd
	output *os.File
	exited chan struct{} // closed when the process has ended
}

// Start starts the arm's server in e and returns when it answers. Stop ends
// it. If it does not answer in time, the error quotes what it printed.
func Start(ctx context.Context, a Arm, e Env) (*Running, error) {
	argv, err := a.Command(e)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", a.Name, err)
	}
	output, err := os.Create(e.Output())
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", a.Name, err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = e.Dir
	cmd.Stdout, cmd.Stderr = output, output
	// Its own group, so that ^C reaches us alone and we stop it in order; and
	// the kernel ends it if we are killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		output.Close()
		return nil, fmt.Errorf("starting %s: %w", a.Name, err)
	}
	r := &Running{Arm: a, Env: e, Argv: argv, cmd: cmd, output: output, exited: make(chan struct{})}
	// Ends with the process, which Stop waits for.
	go func() {
		_ = cmd.Wait() // the way it ended is told by its output
		close(r.exited)
	}()
	if err := r.ready(ctx); err != nil {
		err = fmt.Errorf("starting %s: %w; it printed: %s", a.Name, err, r.printed())
		r.Stop()
		return nil, err
	}
	return r, nil
}

// ready waits until its listeners answer and knows the workers then.
func (r *Running) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	networks := []string{"tcp", "unix"}
	if r.Arm.TCP {
		networks = networks[:1]
	}
	for _, network := range networks {
		for {
			err := r.ask(ctx, network)
			if err == nil {
				break
			}
			select {
			case <-r.exited:
				return errors.New("it ended at once")
			case <-ctx.Done():
				return fmt.Errorf("no answer within %v: %w", startTimeout, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	pids, err := proc.Family(r.cmd.Process.Pid)
	r.pids = slices.DeleteFunc(pids, passing)
	return err
}

// passing reports whether a process ends by itself soon, so that its clock is
// gone when it is: nginx's cache loader, which reads what an earlier run has left
// (there is none, so it uses nothing), and the workers with which millrace tries
// its encoders at its start. What workers use later, package pictures counts.
func passing(pid int) bool {
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && (strings.Contains(string(title), "cache loader process") || strings.Contains(string(title), "images-worker"))
}

// PID is the process that was started, the parent of all others.
func (r *Running) PID() int { return r.cmd.Process.Pid }

// ask makes one request of the index page.
func (r *Running) ask(ctx context.Context, network string) error {
	client := r.Client(network)
	defer client.CloseIdleConnections()
	url := r.URL("/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK && !r.Arm.Any {
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	return err
}

// Client is an HTTP client that reaches the server over network ("tcp" or
// "unix"), follows no redirect and leaves compressed answers compressed.
func (r *Running) Client(network string) *http.Client {
	return &http.Client{
		Timeout:       startTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return r.Dial(ctx, network)
			},
		},
	}
}

// Dial connects to the server over network ("tcp" or "unix").
func (r *Running) Dial(ctx context.Context, network string) (net.Conn, error) {
	address := r.Env.Address
	if network == "unix" {
		address = r.Env.Socket()
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// URL is the address of path on the server.
func (r *Running) URL(path string) string { return "http://" + r.Env.Address + path }

// CPU is what the server has used so far, all its processes together.
func (r *Running) CPU() (proc.CPU, error) { return proc.ReadCPU(r.pids) }

// Memory is what the server holds now, all its processes together.
func (r *Running) Memory() (proc.Memory, error) { return proc.ReadMemory(r.pids) }

// Alive returns an error with the server's output if it has ended.
func (r *Running) Alive() error {
	select {
	case <-r.exited:
		return fmt.Errorf("%s ended by itself; it printed: %s", r.Arm.Name, r.printed())
	default:
		return nil
	}
}

// Stop ends the server and waits for it.
func (r *Running) Stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-r.exited:
	case <-time.After(stopTimeout):
		// The whole group: a master that is killed leaves its workers.
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.exited
	}
	r.output.Close()
}

// printed is the end of what the server printed.
func (r *Running) printed() string {
	text, err := os.ReadFile(r.Env.Output())
	if err != nil {
		return err.Error()
	}
	if len(text) > outputShown {
		text = text[len(text)-outputShown:]
	}
	return strings.TrimSpace(string(text))
}
