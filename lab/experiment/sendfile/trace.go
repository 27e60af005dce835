// Package sendfile is what of the experiment sendfile-paths is code: one download of
// each arm with every system call of its server counted.
package sendfile

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load/client"
	"millrace/lab/record"
)

const (
	// traced is the file of the traced downloads: each system call of those takes many
	// times as long, and how bytes travel does not depend on its size.
	traced     = "/zeros-16.bin"
	tracedSize = 16 << 20
	// traceTime is what all of them may take.
	traceTime = time.Minute
)

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	var trace record.Table
	return experiment.Hooks{
		After: func(ctx context.Context) error {
			r.Emit(record.Event{Kind: record.EventStep, Text: "tracing one download of each arm", Done: 0.95})
			trace = traceArms(ctx, r)
			return nil
		},
		Report: func() {
			if len(trace.Rows) > 0 {
				r.Res.Tables = append(r.Res.Tables, trace)
				r.Res.Answer = strings.TrimSuffix(users(trace)+"; "+r.Res.Answer, "; ")
			}
		},
	}
}

// users are who lets the kernel send, by the traced downloads.
func users(trace record.Table) string {
	used := map[string][]string{}
	for _, row := range trace.Rows {
		if arm, socket, calls := row[0], row[1], row[2]; calls != "0" {
			used[socket] = append(used[socket], arm)
		}
	}
	var parts []string
	for _, socket := range []string{"TCP", "UNIX"} {
		who := "nobody"
		if len(used[socket]) > 0 {
			who = experiment.List(used[socket])
		}
		parts = append(parts, fmt.Sprintf("over %s sendfile is used by %s", socket, who))
	}
	return strings.Join(parts, "; ")
}

// traceArms downloads one file from each arm over TCP and UNIX, with every
// system call of the server counted. It is not timed: tracing slows all down.
func traceArms(ctx context.Context, r *experiment.Run) record.Table {
	ctx, cancel := context.WithTimeout(ctx, traceTime)
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
	for _, a := range r.Res.Arms {
		if a.Skipped != "" || a.Placebo != "" {
			continue
		}
		rows, err := traceArm(ctx, r, a.Name)
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

func traceArm(ctx context.Context, r *experiment.Run, name string) (rows [][]string, err error) {
	in, err := r.StartWith(ctx, name, nil, grandchild)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := in.Stop(); err == nil {
			err = stopErr
		}
	}()
	for _, target := range []struct{ name, url string }{{"TCP", in.URL[""]}, {"UNIX", in.URL["unix"]}} {
		fetch := func() error { return download(ctx, target.url, traced, tracedSize) }
		if err := fetch(); err != nil { // what is done once only is not counted
			return rows, err
		}
		pids, err := tracees(in.PIDs[0])
		if err != nil {
			return rows, err
		}
		got, err := record.TraceMoves(pids, fetch)
		if err != nil {
			return rows, err
		}
		row := []string{name, target.name}
		for _, c := range []record.Tally{got.Sendfile, got.Splice, got.Read, got.Write} {
			row = append(row, fmt.Sprint(c.Calls), fmt.Sprintf("%.2f", float64(c.Bytes)/1e6))
		}
		rows = append(rows, append(row, fmt.Sprint(got.Other)))
	}
	return rows, nil
}

// download fetches a file of size bytes on a connection of its own and throws
// it away.
func download(ctx context.Context, url, path string, size int64) error {
	d, err := client.New(client.Options{Protocol: "http1", URL: url, Paths: []string{path}, Timeout: traceTime})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	conn, err := d.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // likewise
	a, err := conn.Do(ctx, 0, nil)
	if err == nil && (a.Status != http.StatusOK || a.Body != size) {
		err = fmt.Errorf("downloading %s: status %d and %d bytes instead of 200 and %d", path, a.Status, a.Body, size)
	}
	return err
}
