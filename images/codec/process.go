package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// maxMessage bounds what is kept of a command's messages: the end of them,
	// where the reason stands.
	maxMessage = 2 << 10
	// maxLag is how long a pipe may stay open after the command ended, held by
	// a process that fled from its group.
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
	memory  int64 // bytes of address space

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

	cmd := exec.Command(c.file, j.args...) //nolint:gosec,noctx // found in PATH at the start; group ends with ctx, see process_linux.go
	cmd.Env = []string{"PATH=" + c.path}
	cmd.Dir = "/"
	cmd.WaitDelay = maxLag
	said := &tail{}
	cmd.Stdout, cmd.Stderr = w, said
	if j.apart {
		cmd.Stdout = said // the same writer as Stderr: exec writes one at a time
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
		if file, err = io.ReadAll(io.LimitReader(r, maxResult+1)); len(file) > maxResult {
			err = fmt.Errorf("the result is larger than %d MiB", maxResult>>20)
			g.kill()
		}
		read <- err
	}()
	err = g.wait(func() { _ = r.SetReadDeadline(time.Now().Add(maxLag)) })
	readErr := <-read
	switch {
	case ctx.Err() != nil:
		return nil, c.failed(context.Cause(ctx), "")
	case readErr != nil && len(file) > maxResult:
		return nil, c.failed(readErr, "")
	case err != nil:
		return nil, c.failed(err, said.String())
	case readErr != nil:
		return nil, c.failed(readErr, said.String())
	}
	return file, nil
}

// failed wraps the reason why a run ended without a result.
func (c *command) failed(err error, said string) error {
	if said != "" {
		return fmt.Errorf("%s: %w: %w: %s", c.name, ErrFailed, err, said)
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
