package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/images/convert"
	"millrace/images/sandbox"
)

const (
	// watchEvery is how often a worker's memory is looked at while it works.
	// In that time a decoder can touch about 100 MB more.
	watchEvery = 50 * time.Millisecond
	// helloWithin bounds a worker's start. The first one tests the encoders,
	// seconds of CPU for AVIF in WebAssembly, perhaps on a busy machine.
	helloWithin = time.Minute
	// lingering bounds how long a pipe may stay open after the process that
	// wrote to it has ended (by a command of its that was not killed).
	lingering = 2 * time.Second
	// maxProcs of a child: one for the conversion, one for the collector and
	// the pipe.
	maxProcs = 2
	// gcPercent is lower than Go's 100: images are few large pieces without
	// pointers, which cost nothing to mark and much to keep.
	gcPercent = 50
)

// A process is one child.
type process struct {
	kind      int
	abilities Abilities
	sandbox   sandbox.Report
	jobs      int  // converted so far
	took      bool // the job that it was given last
	compiled  bool // it has the compiled encoder of AVIF in memory, some 120 MiB
	retire    *time.Timer

	over   func(n int64) bool // whether taking n bytes ends it
	needs  int64              // bytes that its conversion is predicted to take; the pool's lock guards it
	taking int64              // bytes that it was last seen to take; the same

	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	lines  *bufio.Reader // of out
	stderr *tail

	done chan struct{} // closed when the child is reaped and forgotten

	mu     sync.Mutex
	killed bool
	reaped bool
}

// start starts a worker for a conversion that needs so much memory, and greets
// it. With known it tests nothing.
func (p *Pool) start(ctx context.Context, kind int, needs int64, known *Abilities) (*process, error) {
	w := &process{kind: kind, needs: needs, stderr: &tail{}, done: make(chan struct{})}
	w.over = func(n int64) bool { return p.overBudget(w, n) }
	if err := p.launch(w); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloWithin, errors.New("it did not answer in a minute"))
	defer cancel()
	var reply welcome
	err := w.watch(ctx, func() error {
		h := hello{Level: p.o.Level, Background: kind == background, Memory: p.o.Memory, Network: sandbox.NetworkID(), Known: known}
		if err := writeFrame(w.in, h, 0); err != nil {
			return err
		}
		_, err := readFrame(w.lines, &reply, 0)
		return err
	})
	if err == nil && reply.Failure != nil {
		w.kill()
		err = reply.Failure
	}
	if err != nil {
		return nil, err
	}
	if reply.Priority != "" && !p.complained.Swap(true) {
		p.o.ErrorLog.Warn("image workers run at the server's own priority", "err", reply.Priority)
	}
	w.abilities, w.sandbox = reply.Abilities, reply.Sandbox
	return w, nil
}

// command is the child's, with the rights of one way to start it.
func (p *Pool) command(w *process, rights *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command(p.o.Command[0], p.o.Command[1:]...)
	cmd.Env = environment(p.o.Memory)
	cmd.Stderr = w.stderr
	cmd.WaitDelay = lingering
	cmd.SysProcAttr = rights
	ownGroup(cmd)
	return cmd
}

// spawn starts the child in the best way that the kernel allows, and remembers
// which that is; p.mu is held.
func (p *Pool) spawn(w *process, in, out *os.File) (err error) {
	for {
		rights := *p.ways[0]
		w.cmd = p.command(w, &rights)
		w.cmd.Stdin, w.cmd.Stdout = in, out
		p.starter.do(func() { err = w.cmd.Start() })
		if err == nil || len(p.ways) == 1 || !sandbox.Refused(err) {
			return err
		}
		p.ways = p.ways[1:]
	}
}

// launch makes the pipes and the child, and the goroutine that reaps it. It
// ends with the child; Close waits for it.
func (p *Pool) launch(w *process) error {
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		childIn.Close()
		in.Close()
		return err
	}
	w.in, w.out, w.lines = in, out, bufio.NewReader(out)

	// Under the lock, so that Close either sees the child or forbids it.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		err = ErrClosed
	} else {
		err = p.spawn(w, childIn, childOut)
	}
	childIn.Close()
	childOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return err
	}
	p.started.Add(1)
	p.all[w] = false
	p.processes.Go(func() {
		w.reap()
		p.mu.Lock()
		delete(p.all, w)
		p.mu.Unlock()
		close(w.done)
	})
	return nil
}

// reap waits for the child's end, kills what it may have left in its group,
// and only then gives its number back to the system.
func (w *process) reap() {
	zombie := awaitEnd(w.cmd.Process.Pid)
	if !zombie {
		w.cmd.Wait() //nolint:errcheck // how it ended is in ProcessState
	}
	w.mu.Lock()
	if zombie {
		killGroup(w.cmd.Process.Pid)
	}
	w.reaped = true
	w.mu.Unlock()
	if zombie {
		w.cmd.Wait() //nolint:errcheck // as above
	}
	w.in.Close()
	w.out.Close() // whoever reads still gets an error instead of waiting
}

// kill ends the child and all it has started, now. It may be called again, and
// does not wait.
func (w *process) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed = true
	if !w.reaped { // else the number may be another's already
		killFamily(w.cmd.Process.Pid)
		killGroup(w.cmd.Process.Pid)
	}
}

// alive reports whether the child can be given another image.
func (w *process) alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.killed && !w.reaped
}

// A sourceError is the caller's: its Reader failed.
type sourceError struct{ err error }

func (e sourceError) Error() string { return "reading the original: " + e.err.Error() }
func (e sourceError) Unwrap() error { return e.err }

// convert hands the child one image. After an error that is not the
// image's own the child is dead.
func (w *process) convert(ctx context.Context, src Source, s convert.Spec) (*convert.Result, error) {
	begin := time.Now()
	w.jobs++
	w.took = false
	w.stderr.reset()
	var a answer
	var data []byte
	err := w.watch(ctx, func() error {
		if err := w.send(src, s); err != nil {
			return err
		}
		size, err := readFrame(w.lines, &a, maxResult)
		if err != nil {
			return err
		}
		if a.Failure == nil && a.Result == nil {
			return fmt.Errorf("%w: an empty answer", errGarbage)
		}
		data, err = readBody(w.lines, size)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case a.Failure != nil:
		return nil, a.Failure
	}
	a.Result.Data = data
	a.Result.Wall = time.Since(begin)
	return a.Result, nil
}

// send writes a job. The source is not held: it goes from Reader to pipe.
func (w *process) send(src Source, s convert.Spec) error {
	if err := writeFrame(w.in, job{Spec: s, Memory: src.Memory}, src.Size); err != nil {
		return err
	}
	if _, err := readFrame(w.lines, &accepted{}, 0); err != nil {
		return err
	}
	w.took = true
	from := &noting{r: io.LimitReader(src.Reader, src.Size)}
	n, err := io.Copy(w.in, from)
	switch {
	case from.err != nil:
		return sourceError{from.err}
	case err != nil:
		return err
	case n < src.Size:
		return sourceError{fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, n, src.Size)}
	}
	return nil
}

// noting keeps a reader's error, since io.Copy does not say which side failed.
type noting struct {
	r   io.Reader
	err error
}

func (n *noting) Read(b []byte) (int, error) {
	c, err := n.r.Read(b)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return c, err
}

// readBody reads size bytes, which are bounded but only claimed: memory grows
// with what comes.
func readBody(r io.Reader, size int64) ([]byte, error) {
	const first = 1 << 20
	b := bytes.NewBuffer(make([]byte, 0, min(size, first)))
	if _, err := io.CopyN(b, r, size); err != nil {
		return nil, noEOF(err)
	}
	return b.Bytes(), nil
}

// watch calls talk, which talks to the child, and kills the child when ctx ends or the
// child takes too much memory. After an error the child is dead, and the error says
// why. The goroutine that watches has ended when watch returns.
func (w *process) watch(ctx context.Context, talk func() error) error {
	var over int64
	var watcher sync.WaitGroup
	stop := make(chan struct{})
	watcher.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				w.kill()
				return
			case <-tick.C:
				if n := resident(w.cmd.Process.Pid); w.over(n) {
					over = n
					w.kill()
					return
				}
			}
		}
	})
	err := talk()
	close(stop)
	watcher.Wait()
	if err == nil {
		return nil
	}
	w.kill()
	<-w.done
	var source sourceError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("a conversion was ended: %w", context.Cause(ctx))
	case errors.As(err, &source):
		return source
	case over > 0:
		return fmt.Errorf("%w: %w: it took %d MiB, and all workers more than they may", ErrCrashed, convert.ErrMemory, over>>20)
	case errors.Is(err, errGarbage):
		return fmt.Errorf("%w: it was killed, because %w", ErrCrashed, err)
	}
	return fmt.Errorf("%w: %v%s", ErrCrashed, w.cmd.ProcessState, w.stderr.reason())
}

// environment is all that a child is told: nothing of the server's secrets.
func environment(memory int64) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", coverage} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env,
		"GOMEMLIMIT="+strconv.FormatInt(memory, 10),
		"GOGC="+strconv.Itoa(gcPercent),
		"GOMAXPROCS="+strconv.Itoa(maxProcs))
}

// A starter starts children from one thread that lives as long as the pool:
// Linux sends a child its death signal when the thread that started it ends,
// and Go ends threads as it likes.
type starter struct {
	calls chan func()
	ended chan struct{}
}

// newStarter starts the goroutine, which close ends and waits for.
func newStarter() *starter {
	s := &starter{calls: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // and never unlocked: the thread, which has fewer rights, ends with the goroutine
		sandbox.KeepRights()
		for f := range s.calls {
			f()
		}
	}()
	return s
}

func (s *starter) do(f func()) {
	done := make(chan struct{})
	s.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (s *starter) close() {
	close(s.calls)
	<-s.ended
}

// A tail keeps the beginning and the end of what a child says on its standard
// error: a Go program says first why it dies, and then where, at length.
type tail struct {
	mu          sync.Mutex
	first, last []byte
}

const (
	maxTail   = 2 << 10 // bytes of each part
	maxReason = 400     // bytes of an error's text
)

// Write implements io.Writer; it never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if room := maxTail - len(t.first); room > 0 {
		k := min(room, len(b))
		t.first = append(t.first, b[:k]...)
		b = b[k:]
	}
	t.last = append(t.last, b[max(0, len(b)-maxTail):]...)
	t.last = append(t.last[:0], t.last[max(0, len(t.last)-maxTail):]...)
	return n, nil
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.last = t.first[:0], t.last[:0]
}

// reason is the line that says why a Go program died, or else its last lines.
func (t *tail) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.first) + string(t.last)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			lines = []string{line}
			break
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	text := strings.Join(lines[max(0, len(lines)-3):], "; ")
	return ": " + strings.ToValidUTF8(text[max(0, len(text)-maxReason):], "")
}
