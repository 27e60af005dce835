package pgo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// signalWait is how long a server may take to open its file, or to finish
	// it. It does both at once; a machine under load does little at once.
	signalWait = 10 * time.Second
	signalPoll = 20 * time.Millisecond
)

// RecordBySignal takes a profile of a process that has no HTTP route for it:
// SIGUSR2 starts one, and once more ends it. The file is found among those that
// the process holds open, so it does not matter which folder it is in or whether
// that has another name for us (containers). When ctx ends the profile is as
// long as it got. The file stays where the server put it; its name there is
// returned.
//
// Progress is called as in a [Recording]; r.Target is not looked at.
func RecordBySignal(ctx context.Context, pid int, r Recording) (data []byte, file string, err error) {
	seconds, err := r.seconds()
	if err != nil {
		return nil, "", err
	}
	if err := hears(pid); err != nil {
		return nil, "", fmt.Errorf("recording a profile of process %d: %w", pid, err)
	}
	if _, name, found := openProfile(pid); found {
		return nil, "", fmt.Errorf("recording a profile of process %d: it writes %s: %w", pid, name, ErrBusy)
	}
	f, name, err := begin(pid)
	if err != nil {
		return nil, "", fmt.Errorf("recording a profile of process %d: %w", pid, err)
	}
	defer f.Close()
	took := time.Duration(seconds) * time.Second
	stop := watch(took, r.Progress)
	select {
	case <-ctx.Done():
	case <-time.After(took):
	}
	stop()
	if err := end(pid); err != nil {
		return nil, "", fmt.Errorf("recording a profile of process %d: %w", pid, err)
	}
	data, err = copyProfile(name, f)
	return data, name, err
}

// begin sends the first signal and opens the file that the process opens.
func begin(pid int) (*os.File, string, error) {
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
		return nil, "", err
	}
	link, name := "", ""
	found := eventually(func() (ok bool) {
		link, name, ok = openProfile(pid)
		return ok
	})
	if !found {
		return nil, "", fmt.Errorf("%w: it opened no file named millrace-PID-TIME.pprof; its log says why", ErrNoSignal)
	}
	f, err := os.Open(link) // the file itself, whatever it is called over there
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGUSR2) // it shall not go on for nobody
		return nil, "", fmt.Errorf("opening %s: %w", name, err)
	}
	return f, name, nil
}

// end sends the second signal and waits until the process has closed the file.
// A process that ended meanwhile has finished it as well.
func end(pid int) error {
	if _, _, open := openProfile(pid); !open {
		return nil // its own bound was shorter, or it ended
	}
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if !eventually(func() bool { _, _, open := openProfile(pid); return !open }) {
		return fmt.Errorf("it has not finished its profile within %v", signalWait)
	}
	return nil
}

func eventually(ok func() bool) bool {
	for deadline := time.Now().Add(signalWait); ; time.Sleep(signalPoll) {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// openProfile finds the profile that a process holds open.
func openProfile(pid int) (link, name string, found bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", false
	}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		if name, err := os.Readlink(link); err == nil && signalFile.MatchString(filepath.Base(name)) {
			return link, name, true
		}
	}
	return "", "", false
}

// hears reports why a process must not get SIGUSR2: without a handler it ends a
// process (signal(7)).
func hears(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("%d is not a process id", pid)
	}
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such process")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		mask, ok := strings.CutPrefix(s.Text(), "SigCgt:")
		if !ok {
			continue
		}
		caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err != nil || caught&(1<<(uint(syscall.SIGUSR2)-1)) == 0 {
			return ErrNoSignal
		}
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		if _, err := os.ReadDir(dir); err != nil {
			return fmt.Errorf("its open files may not be looked at: %w", err)
		}
		return nil
	}
	return ErrNoSignal
}
