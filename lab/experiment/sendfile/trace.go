package sendfile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"millrace/lab/record"
	"millrace/lab/trial"
)

// A tally counts calls and the bytes they moved.
type tally struct{ Calls, Bytes int64 }

func (t *tally) add(n int64) {
	t.Calls++
	t.Bytes += max(0, n)
}

func (t tally) cells() []string {
	return []string{fmt.Sprint(t.Calls), fmt.Sprintf("%.2f", float64(t.Bytes)/1e6)}
}

// moved is what a server's system calls moved during one download.
type moved struct {
	Sendfile, Splice tally // bytes that never were in the program
	Read, Write      tally // bytes copied into and out of it
	Other            int64 // calls of any other kind
}

// traceArms downloads one file from each arm over TCP and UNIX, with every
// system call of the server counted. It is not timed: tracing slows all down.
func (m *measurement) traceArms(ctx context.Context, arms []trial.Arm, limit time.Duration) record.Table {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := record.Table{
		Title: "How the bytes travel",
		About: fmt.Sprintf("One download of %d MB by each arm, not timed, with the server's system calls counted through ptrace(2). "+
			"What read and write moved was copied into the program and out of it again; what sendfile moved was not. "+
			"A few reads and bytes are the request itself.", tracedSize/1_000_000),
		Columns: []string{
			"arm", "socket", "sendfile calls", "MB", "splice calls", "MB", "read calls", "MB", "write calls", "MB", "other calls",
		},
	}
	for _, a := range arms {
		if a.Skipped != "" {
			continue
		}
		rows, err := m.traceArm(ctx, a.Name)
		t.Rows = append(t.Rows, rows...)
		if err != nil {
			t.About += fmt.Sprintf(" Not seen: %s (%v).", a.Name, err)
		}
	}
	return t
}

// grandchild is a command that runs another one in the background of a shell
// and ends with it. The kernel reports every stop of a traced process to
// whichever thread of the tracing program waits for its children; of
// grandchildren it tells the tracing thread alone.
func grandchild(exe string, args ...string) *exec.Cmd {
	const script = `trap 'trap - TERM; kill 0' TERM; "$@" & wait`
	return exec.Command("/bin/sh", append([]string{"-c", script, "sh", exe}, args...)...)
}

// tracees are the processes of a grandchild, without the shell.
func tracees(shell int) ([]int, error) {
	pids, err := record.Group(shell)
	if err != nil {
		return nil, fmt.Errorf("finding the server's processes: %w", err)
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == shell }), nil
}

func (m *measurement) traceArm(ctx context.Context, name string) (rows [][]string, err error) {
	in, err := m.Start(ctx, name, grandchild)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := in.Stop(); err == nil {
			err = stopErr
		}
	}()
	for _, target := range []struct{ name, network, address string }{
		{"TCP", "tcp", strings.TrimSuffix(strings.TrimPrefix(in.URL[""], "http://"), "/")},
		{"UNIX", "unix", strings.TrimPrefix(in.URL["unix"], "unix:")},
	} {
		fetch := func() error { return download(ctx, target.network, target.address, tracedPath, tracedSize) }
		if err := fetch(); err != nil { // what is done once only is not counted
			return rows, err
		}
		pids, err := tracees(in.PIDs[0])
		if err != nil {
			return rows, err
		}
		got, err := traceMoves(pids, fetch)
		if err != nil {
			return rows, err
		}
		row := []string{name, target.name}
		for _, c := range []tally{got.Sendfile, got.Splice, got.Read, got.Write} {
			row = append(row, c.cells()...)
		}
		rows = append(rows, append(row, fmt.Sprint(got.Other)))
	}
	return rows, nil
}

// download fetches a file of size bytes on a connection of its own and throws
// it away.
func download(ctx context.Context, network, address, path string, size int64) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", path, err)
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return fmt.Errorf("downloading %s: %w", path, err)
		}
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return fmt.Errorf("downloading %s: %w", path, err)
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<18), nil)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", path, err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || n != size) {
		err = fmt.Errorf("status %d and %d bytes instead of 200 and %d", answer.StatusCode, n, size)
	}
	if err != nil {
		return fmt.Errorf("downloading %s: %w", path, err)
	}
	return nil
}
