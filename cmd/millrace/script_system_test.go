package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// lock FOLDER holds the lock of a folder until the script ends.
func lock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lock FOLDER")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Defer(func() { _ = f.Close() }) // nothing is written
	ts.Check(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
}

// begin NAME ARG... runs `millrace ARG...` and waits for nothing. unread does so
// with a standard output and a standard error that are full pipes.
func begin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: begin NAME ARG...")
	}
	startProgram(ts, args[0], args[1:])
}

func unread(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: unread NAME ARG...")
	}
	r, w, err := os.Pipe()
	ts.Check(err)
	ts.Defer(func() { _, _ = r.Close(), w.Close() }) // nobody reads
	fd := int(w.Fd())                                // which makes it one that waits
	ts.Check(syscall.SetNonblock(fd, true))
	for err == nil {
		_, err = syscall.Write(fd, []byte{'x'})
	}
	if !errors.Is(err, syscall.EAGAIN) {
		ts.Fatalf("filling a pipe: %v", err)
	}
	ts.Check(syscall.SetNonblock(fd, false))
	startWith(ts, args[0], args[1:], w, w)
}
