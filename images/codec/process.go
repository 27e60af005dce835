package codec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// maxMessage bounds what is kept of a command's messages: the end of them,
	// where the reason stands.
	maxMessage = 2 << 10
	// maxLag is how long a pipe may stay open after the command ended, held by
	// a process that fled from its group. What the command has written is in the
	// pipe by then and is read in any case: on a busy machine nobody may have
	// had the time for it yet.
	maxLag = time.Second
	// resultFD is the descriptor that a command with job.apart writes to: the
	// first after standard input, output and error.
	resultFD = 3
)

// A command is an installed program.
type command struct {
	name    string // such as "cwebp"
	file    string // absolute
	path    string // PATH of its environment, which holds nothing else
	version string
	memory  int64         // bytes of address space
	lag     time.Duration // maxLag, but in tests

	size     int64 // of the file that was tested
	modified time.Time
}

// A job is one run of a command.
type job struct {
	args []string
	// input is fed to standard input, one slice after the other.
	input [][]byte
	// apart says that the result comes out of resultFD, since the command
	// writes messages to standard output.
	apart bool
}

// run executes the command until it ends or ctx does, and returns what it
// wrote. Nothing of it is left when run returns: no process of its group, no
// zombie, no descriptor. Errors are of kind ErrFailed and carry what the
// command said; ErrUnsupported when the command is not there any more.
func (c *command) run(ctx context.Context, j job) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.failed(err, "")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, c.failed(err, "")
	}
	defer r.Close()

	cmd := exec.Command(c.file, j.args...) // found in PATH at the start; group ends with ctx, see process_linux.go
	cmd.Env = []string{"PATH=" + c.path}
	cmd.Dir = "/"
	lag := cmp.Or(c.lag, maxLag)
	cmd.WaitDelay = lag
	messages := &tail{}
	cmd.Stdout, cmd.Stderr = w, messages
	if j.apart {
		cmd.Stdout = messages // the same writer as Stderr: exec writes one at a time
		cmd.ExtraFiles = []*os.File{w}
	}
	if len(j.input) > 0 {
		readers := make([]io.Reader, len(j.input))
		for i, b := range j.input {
			readers[i] = bytes.NewReader(b)
		}
		cmd.Stdin = io.MultiReader(readers...)
	}

	g := newGroup(cmd, c.memory)
	defer g.release()
	err = g.start()
	w.Close()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("starting %s: %w: %w", c.name, ErrUnsupported, err)
		}
		return nil, c.failed(err, "")
	}
	stop := context.AfterFunc(ctx, g.kill)
	defer stop()

	// The reader ends when the command has closed its end, at the latest with
	// the deadline that is set once the command has ended.
	var file []byte
	read := make(chan error, 1)
	go func() {
		var err error
		if file, err = readResult(r); len(file) > maxResult {
			err = fmt.Errorf("the result is larger than %d MiB", maxResult>>20)
			g.kill()
		}
		read <- err
	}()
	err = g.wait(func() { _ = r.SetReadDeadline(time.Now().Add(lag)) })
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well; only its messages may not be whole
	}
	readErr := <-read
	switch {
	case ctx.Err() != nil:
		return nil, c.failed(context.Cause(ctx), "")
	case readErr != nil && len(file) > maxResult:
		return nil, c.failed(readErr, "")
	case err != nil:
		return nil, c.failed(err, messages.String())
	case readErr != nil:
		return nil, c.failed(readErr, messages.String())
	}
	return file, nil
}

// readResult reads what a command writes, until it has closed the pipe or the
// deadline of r has passed. Then it takes what is in the pipe still: the end of
// it, if nobody else holds it open.
func readResult(r *os.File) ([]byte, error) {
	var file bytes.Buffer
	_, err := file.ReadFrom(io.LimitReader(r, maxResult+1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return file.Bytes(), err
	}
	// A read under a deadline that has passed does not even look.
	raw, rawErr := r.SyscallConn()
	if rawErr != nil || r.SetReadDeadline(time.Time{}) != nil {
		return file.Bytes(), err
	}
	piece := make([]byte, 64<<10)
	for file.Len() <= maxResult {
		var n int
		var got error
		if raw.Read(func(fd uintptr) bool {
			n, got = readNow(fd, piece)
			return true // whatever it is: this does not wait
		}) != nil {
			return file.Bytes(), err
		}
		switch {
		case errors.Is(got, syscall.EINTR):
		case got != nil: // EAGAIN: it is open, and nothing comes
			return file.Bytes(), err
		case n == 0:
			return file.Bytes(), nil
		default:
			file.Write(piece[:n])
		}
	}
	return file.Bytes(), nil // too long, as the caller sees
}

// failed wraps the reason why a run ended without a result.
func (c *command) failed(err error, messages string) error {
	if messages != "" {
		return fmt.Errorf("%s: %w: %w: %s", c.name, ErrFailed, err, messages)
	}
	return fmt.Errorf("%s: %w: %w", c.name, ErrFailed, err)
}

// tail keeps the last maxMessage bytes that are written to it.
type tail struct{ kept []byte }

func (t *tail) Write(b []byte) (int, error) {
	if len(b) >= maxMessage {
		t.kept = append(t.kept[:0], b[len(b)-maxMessage:]...)
		return len(b), nil
	}
	if over := len(t.kept) + len(b) - maxMessage; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.kept = append(t.kept, b...)
	return len(b), nil
}

// String is what was kept, on one line.
func (t *tail) String() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(t.kept), "?")), " ")
}
