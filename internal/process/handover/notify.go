package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Notify tells systemd about this service, as sd_notify(3) does: "READY=1", or
// "MAINPID=4711" for a successor, without which systemd would take the end of the
// old process for the end of the service. It does nothing under another parent.
func Notify(getenv func(string) string, state string) error {
	path := getenv("NOTIFY_SOCKET") // "@" begins the name of an abstract one
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	_, err = c.Write([]byte(state))
	if err = errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	return nil
}

// WatchdogInterval is how often systemd wants to hear that the service works well:
// half of the unit's WatchdogSec (sd_watchdog_enabled(3)). 0: it does not.
func WatchdogInterval(getenv func(string) string) time.Duration {
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 || us > int64(longestWatchdog/time.Microsecond) {
		return 0
	}
	return time.Duration(us) * time.Microsecond / 2
}

// longestWatchdog is more than any unit has.
const longestWatchdog = 365 * 24 * time.Hour

// NotifySystemd is Notify for this process.
func NotifySystemd(state string) error { return Notify(os.Getenv, state) }
