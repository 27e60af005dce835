package servecmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// maxProfiling bounds a CPU profile that somebody started by a signal and then
// forgot. It costs a percent or two, and its stacks are kept in memory.
const maxProfiling = 10 * time.Minute

// profiler takes CPU profiles on demand, one at a time. It belongs to the one
// goroutine that serves signals.
type profiler struct {
	file    *os.File // nil while none is taken
	started time.Time
	late    *time.Timer
	taken   func([]byte) error // gets what was taken; nil: nobody wants it
}

// overdue delivers when a profile has gone on for too long; nil, and so never,
// while none is taken.
func (p *profiler) overdue() <-chan time.Time {
	if p.file == nil {
		return nil
	}
	return p.late.C
}

// toggle starts a profile, or ends the one that runs. It returns what the
// operator should know.
func (p *profiler) toggle() (string, error) {
	if p.file != nil {
		return p.stop()
	}
	return p.start()
}

// start opens a file that nobody else can have put there: the folder for
// temporary files is open to everybody. `millrace-lab pgo record --pid` finds the
// file by its name among those that this process holds open.
func (p *profiler) start() (string, error) {
	now := time.Now().UTC()
	name := filepath.Join(os.TempDir(), fmt.Sprintf("millrace-%d-%s.pprof", os.Getpid(), now.Format("20060102T150405.000")))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("no CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		_ = os.Remove(name) // nothing is in it
		// The runtime takes one at a time, and gives no other reason.
		return "", errors.New("no CPU profile: another is being taken, through the admin listener; try again when it has ended")
	}
	p.file, p.started, p.late = f, now, time.NewTimer(maxProfiling)
	return fmt.Sprintf("taking a CPU profile into %s; SIGUSR2 again ends it, at the latest in %v", name, maxProfiling), nil
}

// stop ends the profile that is being taken, if there is one, and says where
// it is.
func (p *profiler) stop() (string, error) {
	if p.file == nil {
		return "", nil
	}
	f := p.file
	p.file = nil
	p.late.Stop()
	pprof.StopCPUProfile() // returns when all is written
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("writing the CPU profile: %w", err)
	}
	output := fmt.Sprintf("CPU profile of %v in %s", time.Since(p.started).Round(100*time.Millisecond), f.Name())
	if p.taken == nil {
		return output, nil
	}
	b, err := os.ReadFile(f.Name())
	if err == nil {
		err = p.taken(b)
	}
	if err != nil { // the file is there all the same
		output += fmt.Sprintf("; the dashboard does not show it: %v", err)
	}
	return output, nil
}
