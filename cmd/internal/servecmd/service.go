package servecmd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/process/handover"
)

// service is this process as systemd sees it: it says when it serves, reloads and
// stops, and while it works well it says so for the unit's watchdog (sd_notify(3)).
// Elsewhere it does nothing.
type service struct {
	streams cli.Streams
	handed  atomic.Bool // another process is the service: systemd hears nothing more from this one
}

// notify tells systemd a state.
func (v *service) notify(state string) {
	if v.handed.Load() {
		return
	}
	if err := handover.NotifySystemd(state); err != nil {
		v.streams.Log(slog.LevelWarn, err.Error())
	}
}

// reloading says that the config is being read, and returns what says the result.
func (v *service) reloading() (done func(error)) {
	v.notify("RELOADING=1\nMONOTONIC_USEC=" + handover.MonotonicTime())
	return func(err error) {
		status := "READY=1\nSTATUS=serving"
		if err != nil {
			status = "READY=1\nSTATUS=serving by the old config: the new one has mistakes"
		}
		v.notify(status)
	}
}

// setMainPID says which process is the service from now on.
func (v *service) setMainPID(pid int) {
	v.notify(fmt.Sprintf("MAINPID=%d", pid))
	v.handed.Store(true)
}

// watch tells the watchdog that the event loops go round, each time after they
// have said so. One that hangs keeps it quiet, and systemd starts the program anew.
// It ends with ctx.
func (v *service) watch(ctx context.Context, answer func(context.Context) error) {
	every := handover.WatchdogInterval(os.Getenv)
	if every <= 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		within, cancel := context.WithTimeout(ctx, every)
		err := answer(within)
		cancel()
		switch {
		case err == nil:
			v.notify("WATCHDOG=1")
		case ctx.Err() == nil:
			v.streams.Log(slog.LevelError, "the watchdog is not told that all is well: "+err.Error())
		}
	}
}
